"""A run's curves, read from its log once: what has been read is kept in memory, and only what is new is read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tocsin_detectors.catalogue import Resolved
from tocsin_detectors.entries import StepVector
from tocsin_service.dashboard.reading import Part, Reading
from tocsin_service.lives import Life
from tocsin_service.store import RunSummary, Store

__all__ = ["Curves", "History", "read_behind"]

MOST_ENTRIES = 100_000  # of a log that are looked at, and
MOST_VALUES = 8_000_000  # values in them: 144 MB
SLACK = 1.25  # so many times as much a curve may grow to before its beginning is given up
MOST_BYTES = 192_000_000  # kept of all runs together
SLOT_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Curves:
    """What was read of a log.

    Attributes:
        columns: by canonical name: the trainer's name for it, what is known of it, and its parts, one an attempt.
        position: of the last entry read.
        attempt: the attempt of the last vector.
        complete: whether the log was read from its beginning; a very long one is read from further on.
        earlier: so many attempts went before those of the parts: their beginning is gone from the log.
        lives: the attempts, as the engine counts them.
    """

    columns: Mapping[str, tuple[str, Resolved, list[Part]]]
    position: int
    attempt: int
    complete: bool
    earlier: int
    lives: tuple[Life, ...]


@dataclass(slots=True)
class _Slot:
    """A run that was read, as it was then; whoever holds the lock may read on."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    reading: Reading | None = None
    created: float = 0.0
    framework: str | None = None
    first: int = 0  # position of the log's first entry,
    start: int = 0  # and behind which it was read
    most: int = MOST_ENTRIES
    size: int = SLOT_BYTES


class History:
    """The curves of the runs that somebody looks at. Any thread may ask.

    Nothing that is kept outlives what it was read from: a run is read anew when it was removed and made again, when its
    framework, which says what names mean, has changed, and when entries that it was read from are gone.

    Args:
        store: has the logs.
        most_bytes: kept of all runs; those looked at last stay. One that is larger is read, and not kept.
    """

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES) -> None:
        self._store, self._most = store, most_bytes
        self._gate = threading.Lock()
        self._slots: OrderedDict[str, _Slot] = OrderedDict()

    @property
    def size(self) -> int:
        """About how many bytes are kept."""
        with self._gate:
            return sum(slot.size for slot in self._slots.values())

    @contextmanager
    def curves(self, run: RunSummary) -> Iterator[Curves]:
        """The run's curves up to now. They grow later: they are good until the block ends."""
        with self._gate:
            slot = self._slots.setdefault(run.run, _Slot())
            self._slots.move_to_end(run.run)
        with slot.lock:
            try:
                reading = self._read_on(slot, run)
            except BaseException:
                slot.reading = None  # what was read of it halfway is no beginning
                raise
            self._keep(run.run, slot, reading.size)
            yield _curves(reading, run.attempt or 0, complete=slot.start == 0)

    def _read_on(self, slot: _Slot, run: RunSummary) -> Reading:
        first = _first(self._store, run.run)
        reading = slot.reading
        if reading is None or not _holds(slot, reading, run, first):
            slot.created, slot.framework, slot.first = run.created, run.config.framework, first
            slot.most = _affordable(self._store, run.run)
            slot.start = self._store.seek(run.run, None, slot.most)
            reading = slot.reading = Reading(slot.framework, slot.start)
        reading.read_on(self._store, run.run)
        return reading

    def _keep(self, run: str, slot: _Slot, size: int) -> None:
        with self._gate:
            slot.size = SLOT_BYTES + size
            self._slots.setdefault(run, slot)  # it may have had to go while it was read
            total = sum(one.size for one in self._slots.values())
            while total > self._most:
                _, gone = self._slots.popitem(last=False)
                total -= gone.size


def read_behind(store: Store, run: str, framework: str | None, attempt: int, behind: int) -> Curves:
    """Only what came in behind a position of the log, which is taken to be of the latest attempt.

    Args:
        store: has the log.
        run: its id.
        framework: of the run.
        attempt: the engine's count.
        behind: the position.
    """
    start = max(behind, store.seek(run, None, _affordable(store, run)))
    reading = Reading(framework, start, attempt)
    reading.read_on(store, run)
    return _curves(reading, attempt, complete=start <= behind)


def _holds(slot: _Slot, reading: Reading, run: RunSummary, first: int) -> bool:
    """Whether what was read is still what the log says, and not more than may be read."""
    same = (slot.created, slot.framework) == (run.created, run.config.framework)
    there = slot.first == first or slot.start >= first
    return same and there and reading.entries <= slot.most * SLACK and reading.values <= MOST_VALUES * SLACK


def _curves(reading: Reading, attempt: int, *, complete: bool) -> Curves:
    earlier = max(0, attempt - reading.attempt)
    found = {one.resolved.canonical: (one.source, one.resolved, one.parts) for one in reading.chosen()}
    lives = tuple(replace(one, attempt=one.attempt + earlier) for one in reading.lives)
    return Curves(found, reading.position, reading.attempt + earlier, complete, earlier, lives)


def _first(store: Store, run: str) -> int:
    """Position of the log's first entry."""
    return next((one.position for one in store.read(run, 0, 1)), 0)


def _affordable(store: Store, run: str) -> int:
    """How many of the latest entries may be read at once."""
    latest = store.read(run, store.seek(run, None, 1), 1)
    widest = max((len(one.entry.metrics) for one in latest if isinstance(one.entry, StepVector)), default=1)
    return min(MOST_ENTRIES, MOST_VALUES // max(1, widest))
