"""The thread that shows an Alertmanager everything that fires, again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tocsin_service.delivery import Failed, Retry, Sent
from tocsin_service.delivery.alertmanager import Alertmanager
from tocsin_service.exposition import Exposition
from tocsin_service.firing import Firing, labels_by_run, read_firing
from tocsin_service.store import Store, StoreUnavailable

__all__ = ["Resend"]

logger = logging.getLogger(__name__)

MOST_RUNS = 10_000  # those heard of last
LOOK_SECONDS = 1.0  # between two looks whether the receiver has become this process's to serve


class Resend:
    """Shows ``receiver`` what fires, at once when it starts and then every ``receiver.resend`` seconds.

    Args:
        store: what fires, the silences and acknowledgements.
        receiver: whom to show it; not closed with this.
        exposition: where attempts are counted.
        audible: whether an incident is for this receiver now, by routes and quiet hours (silences are looked at here).
        serves: where several processes share the store: whether the receiver of that name is this one's to serve.
    """

    def __init__(
        self,
        store: Store,
        receiver: Alertmanager,
        exposition: Exposition,
        audible: Callable[[Firing], bool] = lambda _: True,
        serves: Callable[[str], bool] | None = None,
    ) -> None:
        self._store, self._receiver, self._exposition = store, receiver, exposition
        self._audible, self._serves = audible, serves
        receiver.heed(store.silences)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"tocsin-{receiver.name}-resend", daemon=True)

    def start(self) -> None:
        """Starts showing."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stops; waits at most ``timeout`` seconds for a send that goes on. May be called twice, and before a start."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            name, wait = self._receiver.name, self._receiver.resend
            if self._serves is None or self._serves(name):
                try:
                    self._send()
                except StoreUnavailable as error:
                    logger.warning("%s can't be shown what fires: %s", name, error)
                except Exception as error:  # noqa: BLE001 - the thread must live; its text might hold the address
                    logger.error("%s can't be shown what fires: unexpected %s", name, type(error).__name__)  # noqa: TRY400 - no traceback: same
            else:
                self._receiver.clear()
                wait = min(wait, LOOK_SECONDS)
            self._stopping.wait(wait)

    def _send(self) -> None:
        labels = labels_by_run(self._store.runs(MOST_RUNS))
        found = [one for one in read_firing(self._store, labels) if self._audible(one)]
        result = self._receiver.show(found, self._store.silences(), self._store.acknowledgements())
        if result is None:
            return
        name = self._receiver.name
        self._exposition.deliveries.labels(name, type(result).__name__.lower()).inc()
        match result:
            case Retry(why):
                logger.warning("%s was not shown what fires: %s; again in %g s", name, why, self._receiver.resend)
            case Failed(why):
                logger.error("%s refuses what fires: %s", name, why)
            case Sent():
                pass
