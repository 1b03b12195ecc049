"""What has changed in the store, for those who look on: each of them asks often, the store is asked once."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tocsin_service.store import Store

__all__ = ["POLL_SECONDS", "Change", "Changes"]

POLL_SECONDS = 0.5
MOST_RUNS = 10_000
MOST_INCIDENTS = 1_000
MOST_KEPT = 256  # answers remembered at once: those who look on look at fewer runs


@dataclass(frozen=True, slots=True)
class Change:
    """Where things stand. Two that are equal show the same.

    Attributes:
        vectors: of the run's log, or of all logs.
        attempt: the run's latest attempt; None for all runs.
        said: digest of what was said of it, of what people did about that, and of the run's configuration.
    """

    vectors: int
    attempt: int | None
    said: str


class Changes:
    """Asks the store where things stand, at most once in ``POLL_SECONDS`` for the same thing.

    Args:
        store: whichever; both are asked the same way, so that other processes' changes show too.
        tick: seconds, monotonic.
    """

    def __init__(self, store: Store, tick: Callable[[], float] = time.monotonic) -> None:
        self._store, self._tick = store, tick
        self._gate = threading.Lock()
        self._known: dict[str | None, tuple[float, Change]] = {}

    def of(self, run: str | None) -> Change:
        """Where a run stands; None: all of them."""
        with self._gate:
            known, now = self._known.get(run), self._tick()
            if known is not None and now - known[0] < POLL_SECONDS:
                return known[1]
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            found = self._all() if run is None else self._one(run)
            self._known[run] = now, found
            return found

    def _one(self, run: str) -> Change:
        summary = self._store.run(run)
        incidents = self._store.incidents(run, None, None, MOST_INCIDENTS)
        said = (
            [(one.id, one.state, one.severity, one.members) for one in incidents],
            self._store.acknowledgements(run),
            self._store.silences(),
            None if summary is None else (summary.firing, asdict(summary.config), summary.error),
        )
        vectors, attempt = (0, None) if summary is None else (summary.vectors, summary.attempt)
        return Change(vectors, attempt, _digest(said))

    def _all(self) -> Change:
        runs = self._store.runs(MOST_RUNS)
        said = [(one.run, one.firing, one.error, one.config.finished) for one in runs]
        acknowledged = sorted(self._store.acknowledgements())
        return Change(sum(one.vectors for one in runs), None, _digest((said, acknowledged)))


def _digest(what: object) -> str:
    return hashlib.blake2b(repr(what).encode(errors="backslashreplace"), digest_size=8).hexdigest()
