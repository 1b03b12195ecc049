"""A run's log on its way to curves, by canonical name and attempt, as the engine takes it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tocsin_detectors.catalogue import Catalogue, Resolved
from tocsin_detectors.entries import StepVector
from tocsin_detectors.ordering import Order, Ordering
from tocsin_service.lives import Life
from tocsin_service.store import Store

__all__ = ["Column", "Part", "Reading"]

PAGE = 256  # log entries held in memory at once
VALUE_BYTES = 18  # of a point: its step, its value, and room for more
COLUMN_BYTES = 1_000  # of a metric in an attempt beside its points


@dataclass(slots=True)
class Part:
    """The points of a metric in one attempt, by ascending step, in the canonical unit."""

    attempt: int
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Steps and values, copied."""
        return np.array(self.steps, np.int64), np.array(self.values, np.float64)


@dataclass(slots=True)
class Column:
    """What one of the trainer's names gives."""

    source: str
    resolved: Resolved
    parts: list[Part] = field(default_factory=list)


class Reading:
    """Takes vectors as the engine does: what was sent again is not there twice, and a resume opens an attempt.

    Args:
        framework: of the run, for names that mean different things in different frameworks.
        position: of the log, behind which to begin.
        before: the attempt of the first vector that is taken.

    Attributes:
        position: of the last entry taken.
        entries: vectors taken.
        values: points that there are.
        lives: the attempts, in order.
    """

    def __init__(self, framework: str | None, position: int, before: int = 0) -> None:
        self._framework, self._before, self.position = framework, before, position
        self._catalogue, self._ordering = Catalogue(), Ordering()
        self._newest: dict[str, int] = {}  # by the trainer's name, in this attempt
        self._columns: dict[str, Column] = {}
        self.entries = self.values = 0
        self.lives: list[Life] = []

    @property
    def attempt(self) -> int:
        """Of the latest vector."""
        return self._before + self._ordering.attempt

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        parts = sum(len(column.parts) for column in self._columns.values())
        return self.values * VALUE_BYTES + parts * COLUMN_BYTES

    def read_on(self, store: Store, run: str) -> None:
        """Takes what has come into the run's log since."""
        while page := store.read(run, self.position, PAGE):
            for stored in page:
                if isinstance(stored.entry, StepVector):
                    self.add(stored.entry)
            self.position = page[-1].position

    def add(self, vector: StepVector) -> None:
        """Takes the next vector of the log."""
        self.entries += 1
        match self._ordering.place(vector, lambda name, step: self._newest.get(name, -1) >= step):
            case Order.REPLAY | Order.STALE:
                return
            case Order.BACK:
                self._ordering.open_attempt(vector)
                self._newest.clear()
        self._live(vector)
        attempt, step, newest = self.attempt, vector.step, self._newest
        for name, value in vector.metrics.items():
            if newest.get(name, -1) >= step:
                continue
            newest[name] = step
            column = self._columns.get(name) or self._open(name)
            resolved = column.resolved
            if value in resolved.absent:
                continue
            if not column.parts or column.parts[-1].attempt != attempt:
                column.parts.append(Part(attempt))
            column.parts[-1].steps.append(step)
            column.parts[-1].values.append(value if resolved.transform is None else resolved.apply(value))
            self.values += 1

    def chosen(self) -> Iterator[Column]:
        """Of the names that mean the same metric the one that counts."""
        ranked = sorted(self._columns.values(), key=lambda one: (one.resolved.priority, one.source), reverse=True)
        yield from {one.resolved.canonical: one for one in ranked if one.parts}.values()

    def _open(self, name: str) -> Column:
        column = self._columns[name] = Column(name, self._catalogue.resolve(name, self._framework))
        return column

    def _live(self, vector: StepVector) -> None:
        """Notes the vector's step and time in its attempt's life."""
        step, time = vector.step, vector.time
        if not self.lives or self.lives[-1].attempt != self.attempt:
            self.lives.append(Life(self.attempt, None, step, step, time, time, logged=False))
        life = self.lives[-1]
        life.told = life.told if vector.attempt is None else vector.attempt
        if not vector.computed:
            life.logged = True
            life.last = max(life.last, step)
            life.ended = time if life.ended is None or time is None else max(life.ended, time)
