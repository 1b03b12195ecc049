"""The bounded queue between the trainer's threads and the sender."""

from __future__ import annotations

import enum
import threading
from collections import deque
from dataclasses import dataclass

__all__ = ["Held", "Queue", "Wake"]


@dataclass(frozen=True, slots=True)
class Held:
    """A vector as the trainer logged it, not yet turned into numbers.

    Attributes:
        step: as given, or the run's own count.
        metrics: copy made by :func:`tocsin._values.hold`.
        time: Unix time in seconds as given, or None.
        logged: Unix time in seconds of the call.
        sequence: unique to this vector within the process; a text is the trainer's own, and holds beyond it.
        size: estimate of the bytes it holds.
    """

    step: object
    metrics: dict[str, object]
    time: object
    logged: float
    sequence: int | str
    size: int


class Wake(enum.Enum):
    """Why the sender was woken: something arrived or is due, someone waits for the end, or all is done."""

    WORK = "work"
    HURRY = "hurry"
    DRAINED = "drained"


class Queue:
    """Counts every vector from ``put`` until ``release``, so its bounds hold for those that the sender keeps too.

    Attributes:
        count: vectors that are neither delivered nor dropped yet.
        spooled: those of them that lie on disk, which the bounds don't count.
        size: bytes of those in memory.
    """

    def __init__(self, max_vectors: int, max_bytes: int) -> None:
        # A Condition's lock is re-entrant: a signal handler may log while its own thread is in here.
        self._changed = threading.Condition()
        self._inbox: deque[Held] = deque()
        self._max_vectors = max_vectors
        self._max_bytes = max_bytes
        self._closed = False
        self._hurry = False
        self._working = False
        self.count = 0
        self.spooled = 0
        self.size = 0

    def put(self, held: Held) -> bool:
        """Adds a vector without waiting; False if the queue is full."""
        with self._changed:
            if self.count - self.spooled >= self._max_vectors or self.size + held.size > self._max_bytes:
                return False
            self._inbox.append(held)
            self.count += 1
            self.size += held.size
            self._changed.notify()
            return True

    def claim(self) -> bool:
        """True for the one caller that has to start the sender, False while one works."""
        if self._working:
            return False
        with self._changed:
            claimed = not self._working
            self._working = True
            return claimed

    def retire(self) -> bool:
        """Whether the sender may end; False if a vector has arrived meanwhile, which no other sender will take."""
        with self._changed:
            if not self._drained():
                return False
            self._closed = self._hurry = self._working = False
            return True

    def disclaim(self) -> None:
        """The sender has failed (or did not start): the next ``claim`` starts another."""
        with self._changed:
            self._working = False

    def wait(self, timeout: float | None) -> Wake:
        """The sender's wait until something arrives, ``close`` is called or ``timeout`` seconds have passed.

        After ``DRAINED``, which says that the queue was closed and is empty, the sender is to ``retire``.
        """
        with self._changed:
            if not (self._inbox or self._hurry or self._drained()):
                self._changed.wait(timeout)
            if self._drained():
                return Wake.DRAINED
            wake = Wake.HURRY if self._hurry else Wake.WORK
            self._hurry = False
            return wake

    def take(self) -> list[Held]:
        """The vectors that have arrived since the last call."""
        with self._changed:
            arrived = list(self._inbox)
            self._inbox.clear()
            return arrived

    def resize(self, change: int) -> None:
        """Corrects the estimated bytes of a vector once they are known."""
        with self._changed:
            self.size += change

    def spool(self, count: int, size: int) -> None:
        """Counts vectors as lying on disk: they still wait, and take no more memory."""
        with self._changed:
            self.spooled += count
            self.size -= size

    def release(self, count: int, size: int) -> None:
        """Forgets vectors that were delivered or dropped out of memory."""
        with self._changed:
            self.count -= count
            self.size -= size

    def release_spooled(self, count: int) -> None:
        """Forgets vectors that were delivered or dropped from disk."""
        with self._changed:
            self.count -= count
            self.spooled -= count

    def close(self) -> None:
        """Asks the sender to hurry and to end once all is sent; a later ``put`` still counts."""
        with self._changed:
            if self._working:
                self._closed = self._hurry = True
                self._changed.notify_all()

    def _drained(self) -> bool:
        return self._closed and not self.count
