"""Retention: what the store needn't keep any more goes, a few times an hour."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tocsin_service.store import Retention, Store, StoreUnavailable

__all__ = ["Keeper"]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 600.0


class Keeper:
    """One thread that trims.

    Args:
        store: what it trims.
        keep: what stays.
        clock: Unix time in seconds.
        serves: whether a run is this process's to look after; None: all are.
    """

    def __init__(
        self,
        store: Store,
        keep: Retention,
        clock: Callable[[], float],
        serves: Callable[[str], bool] | None = None,
    ) -> None:
        self._store, self._keep, self._clock, self._serves = store, keep, clock, serves
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tocsin-keeper", daemon=True)

    def start(self) -> None:
        """Starts looking. The first look isn't at once: a start has other things to do."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Ends; a look that takes longer than ``timeout`` seconds is left alone: no step needs the next."""
        self._stopping.set()
        self._thread.join(timeout)

    def _loop(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                removed = self._store.trim(self._keep, self._clock(), self._serves)
            except StoreUnavailable as error:
                logger.warning("the store can't be trimmed: %s", error)
            except Exception:
                logger.exception("the store can't be trimmed")
            else:
                if removed.entries or removed.runs:
                    logger.info("removed %d old log entries and %d old runs", removed.entries, removed.runs)
