"""A run's metrics as curves: by canonical name and attempt, as the engine takes them."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tocsin_detectors.catalogue import Catalogue, Resolved
from tocsin_detectors.entries import StepVector
from tocsin_detectors.ordering import Order, Ordering
from tocsin_service.store import Store

__all__ = ["Curves", "Part", "read_curves"]

PAGE = 256  # log entries held in memory at once
MOST_ENTRIES = 100_000  # of a log that are looked at, and
MOST_VALUES = 8_000_000  # values in them: 130 MB


@dataclass(slots=True)
class Part:
    """The points of a metric in one attempt, by ascending step, in the canonical unit."""

    attempt: int
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Steps and values."""
        return np.array(self.steps, np.int64), np.array(self.values, np.float64)


@dataclass(slots=True)
class _Column:
    """What one of the trainer's names gives."""

    source: str
    resolved: Resolved
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Curves:
    """What was read of a log.

    Attributes:
        columns: by canonical name: the trainer's name for it, what is known of it, and its parts, one an attempt.
        position: of the last entry read.
        attempt: the attempt of the last vector.
        complete: whether the log was read from its beginning; a very long one is read from further on.
    """

    columns: Mapping[str, tuple[str, Resolved, list[Part]]]
    position: int
    attempt: int
    complete: bool


def read_curves(
    store: Store, run: str, framework: str | None, attempt: int, only: Collection[str] = (), behind: int | None = None
) -> Curves:
    """The curves of a run.

    Args:
        store: has the log.
        run: its id.
        framework: of the run, for names that mean different things in different frameworks.
        attempt: the engine's count. A log whose beginning is gone doesn't tell how many attempts went before.
        only: these metrics, by canonical name; empty: all.
        behind: only entries behind this position, which are taken to be of the latest attempt; None: the whole log.
    """
    last = _affordable(store, run)
    start = max(behind or 0, store.seek(run, None, last))
    reading = _Reading(framework, frozenset(only), attempt if behind is not None else 0)
    position = start
    while page := store.read(run, position, PAGE):
        for stored in page:
            if isinstance(stored.entry, StepVector):
                reading.add(stored.entry)
        position = page[-1].position
    missing = max(0, attempt - reading.attempt)
    for column in reading.columns.values():
        for part in column.parts:
            part.attempt += missing
    found = {one.resolved.canonical: (one.source, one.resolved, one.parts) for one in reading.chosen()}
    return Curves(found, position, reading.attempt + missing, complete=start <= (behind or 0))


class _Reading:
    """Takes vectors as the engine does: what was sent again is not there twice, and a resume opens an attempt."""

    def __init__(self, framework: str | None, only: frozenset[str], attempt: int) -> None:
        self._framework, self._only, self._before = framework, only, attempt
        self._catalogue, self._ordering = Catalogue(), Ordering()
        self._newest: dict[str, int] = {}  # by the trainer's name, in this attempt
        self.columns: dict[str, _Column] = {}

    @property
    def attempt(self) -> int:
        return self._before + self._ordering.attempt

    def add(self, vector: StepVector) -> None:
        match self._ordering.place(vector, lambda name, step: self._newest.get(name, -1) >= step):
            case Order.REPLAY | Order.STALE:
                return
            case Order.BACK:
                self._ordering.open_attempt(vector)
                self._newest.clear()
        step, newest = vector.step, self._newest
        for name, value in vector.metrics.items():
            if newest.get(name, -1) >= step:
                continue
            newest[name] = step
            column = self.columns.get(name) or self._open(name)
            resolved = column.resolved
            if (self._only and resolved.canonical not in self._only) or value in resolved.absent:
                continue
            if not column.parts or column.parts[-1].attempt != self.attempt:
                column.parts.append(Part(self.attempt))
            column.parts[-1].steps.append(step)
            column.parts[-1].values.append(value if resolved.transform is None else resolved.apply(value))

    def chosen(self) -> Iterator[_Column]:
        """Of the names that mean the same metric the one that counts."""
        ranked = sorted(self.columns.values(), key=lambda one: (one.resolved.priority, one.source), reverse=True)
        yield from {one.resolved.canonical: one for one in ranked if one.parts}.values()

    def _open(self, name: str) -> _Column:
        column = self.columns[name] = _Column(name, self._catalogue.resolve(name, self._framework))
        return column


def _affordable(store: Store, run: str) -> int:
    """How many of the latest entries may be read at once."""
    latest = store.read(run, store.seek(run, None, 1), 1)
    widest = max((len(one.entry.metrics) for one in latest if isinstance(one.entry, StepVector)), default=1)
    return min(MOST_ENTRIES, MOST_VALUES // max(1, widest))
