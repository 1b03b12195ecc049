"""What judges runs, in the process that does it: worker, deliveries, watchdog and retention."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from tocsin_detectors.rules import RuleSet
from tocsin_service.delivery.files import ReceiversError
from tocsin_service.delivery.telling import Telling
from tocsin_service.exposition import Exposition
from tocsin_service.judging.keeping import Keeper
from tocsin_service.judging.nudges import Nudges
from tocsin_service.judging.stalled import Watchdog
from tocsin_service.judging.worker import Worker
from tocsin_service.server import StartError
from tocsin_service.settings import Settings
from tocsin_service.store import Retention, Store

__all__ = ["Judging"]


class Judging:
    """Worker, deliveries, watchdog and retention on one store.

    Args:
        settings: whom to tell, and how long a stop may take.
        store: shared with other processes, or not.
        exposition: where they count.
        rules: what to judge by; None: the shipped rules.
        clock: Unix time in seconds.
        nudges: where to hear of news if the store is shared; then only the runs that fall to this process are judged,
            and only the receivers told that do.

    Raises:
        StartError: the file of receivers can't be used.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        exposition: Exposition,
        rules: RuleSet | None,
        clock: Callable[[], float],
        nudges: Nudges | None = None,
    ) -> None:
        self._stop_seconds, self._nudges = settings.stop_seconds, nudges
        serves = None if nudges is None else nudges.serves
        try:
            self._telling = Telling(settings, store, exposition, clock, serves)
        except ReceiversError as error:
            raise StartError(str(error)) from None
        receivers = self._telling.names
        self.worker = Worker(
            store,
            exposition,
            receivers,
            rules,
            self.notified,
            clock,
            feed=nudges,
            most_engines=settings.max_engines,
        )
        self._watchdog = Watchdog(store, receivers, self.notified, clock, rules, serves)
        self._keeper = Keeper(store, Retention(settings.keep_entries, settings.keep_days), clock, serves)

    def start(self, stack: ExitStack) -> None:
        """Starts everything; ``stack`` stops it again, in an order that leaves nothing half done."""
        self._telling.start(stack)
        if self._nudges is not None:
            stack.callback(self._nudges.leave)
        self.worker.start()
        stack.callback(self.worker.stop, self._stop_seconds)
        if self._nudges is not None:
            self._nudges.start(self.worker.wake, self.worker.alive)
            stack.callback(self._nudges.stop)
        self._watchdog.start()
        stack.callback(self._watchdog.stop)
        self._keeper.start()
        stack.callback(self._keeper.stop, self._stop_seconds)

    def trouble(self) -> str | None:
        """Why vectors are not judged here; None while they are."""
        if not self.worker.alive() or not (self._nudges is None or self._nudges.alive()):
            return "the worker has ended: restart this process; vectors are stored but not judged"
        return None

    def notified(self) -> None:
        """Says that there may be more to tell, or less to wait for."""
        self._telling.wake()
