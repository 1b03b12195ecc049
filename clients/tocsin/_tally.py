"""What became of the vectors: counted by reason, each kind of trouble said once."""

from __future__ import annotations

import threading
from collections import Counter

from tocsin._guard import say

__all__ = ["Tally"]

_MOST_NAMES = 100

_MEANING = {
    "queue_full": "the queue is full: the server is slower than the trainer or away; newest vectors are dropped",
    "invalid": "log() takes a mapping of metric names to numbers and a whole step >= 0",
    "too_large": "the vector is larger than the queue or the server allows: log fewer metrics a call",
    "misconfigured": "the client was started with a faulty setting, see the warning above",
    "unreachable": "the server can't be reached: retried, vectors wait; is TOCSIN_URL or url= right?",
    "throttled": "the server asks to wait: retried, vectors wait",
    "server_error": "the server has trouble: retried, vectors wait",
    "refused": "the server refused it as malformed",
    "unauthorised": "the server refused the token: set TOCSIN_TOKEN or pass token=",
    "not_found": "there is no Tocsin at this address: check TOCSIN_URL or url=",
    "spool": "vectors wait in memory until it works",
    "spool_full": "vectors wait in memory until there is room",
    "damaged": "spooled vectors are torn or changed",
    "unreadable": "the spool can't be read; its files stay",
    "config": "the server refused the run's config: rules go by what they can guess",
}


class Tally:
    """Counters of one run in one process; safe to use from any thread."""

    def __init__(self, run: str) -> None:
        # Re-entrant: a signal handler may log while its own thread counts.
        self._lock = threading.RLock()
        self._run = run
        self._said: set[str] = set()
        self._summary = ""
        self.dropped: Counter[str] = Counter()
        self.logged = 0
        self.delivered = 0
        self.recovered = 0
        self.skipped = 0

    def log(self) -> None:
        """Counts a vector that the trainer handed over."""
        with self._lock:
            self.logged += 1

    def deliver(self, count: int, *, recovered: bool = False) -> None:
        """Counts vectors that the server has stored, of this process or of an earlier one."""
        with self._lock:
            if recovered:
                self.recovered += count
            else:
                self.delivered += count

    def lose(self, reason: str, count: int = 1) -> None:
        """Counts vectors that are lost, where somebody else says so."""
        with self._lock:
            self.dropped[reason] += count

    def drop(self, reason: str, count: int = 1, detail: str = "") -> None:
        """Counts vectors that are lost, for a reason of ``_MEANING`` or an HTTP status, and says so."""
        self.lose(reason, count)
        # A tight loop with a full queue comes by here at every call.
        if reason not in self._said:
            self.warn(reason, f"dropping vectors ({reason})", detail)

    def skip(self, name: str, why: str) -> None:
        """Counts a value that can't be sent."""
        with self._lock:
            self.skipped += 1
        if len(self._said) < _MOST_NAMES:
            self.warn(f"metric {name}", f"metric {name!r:.300} is skipped: {why}", "")

    def warn(self, kind: str, text: str, detail: str) -> None:
        """Says what happened, once for every ``kind``."""
        with self._lock:
            if kind in self._said:
                return
            self._said.add(kind)
        # Outside the lock: a logging handler is foreign code and may itself log metrics.
        parts = [text, _MEANING.get(kind, ""), detail]
        say("run %s: %s (said once)", self._run, ": ".join(part for part in parts if part))

    def summary(self, waiting: int, spooled: int) -> None:
        """Says at the end, in one line, what wasn't delivered; nothing if all was or it has been said.

        Args:
            waiting: vectors that are still to be sent.
            spooled: how many of them lie on disk.
        """
        lost = [f"{count} {reason}" for reason, count in sorted(self.dropped.items())]
        if waiting:
            lost.append(f"{waiting} still waiting")
        if spooled:
            lost.append(f"{spooled} of them in the spool, for the next process of this run")
        if self.skipped:
            lost.append(f"{self.skipped} values skipped")
        text = f"{self.delivered} of {self.logged} vectors delivered; {', '.join(lost)}"
        if lost and text != self._summary:
            self._summary = text
            say("run %s: %s", self._run, text)
