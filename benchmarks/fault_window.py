"""A stretch of a healthy run in which a fault begins: its metrics by canonical name, readable and changeable."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tocsin_detectors.catalogue import Catalogue, Resolved, guess_framework
from tocsin_detectors.entries import StepVector

LOOK_BACK = 40  # rows before the fault that show what is normal

_CATALOGUE = Catalogue()


class Unfit(Exception):  # noqa: N818 - no error: this run can't show this fault
    """The window can't carry the fault: the metric is absent, too small, or the run's own noise would hide it."""


@dataclass
class Window:
    """Vectors of a healthy run; a fault changes those from row ``at`` on, in place.

    Attributes:
        vectors: their metrics are plain dicts of this window's own.
        at: row of the fault's first value.
        names: the trainer's name of each canonical metric.
        rng: seeded by run and fault, for the noise of added metrics.
    """

    vectors: list[StepVector]
    at: int
    names: dict[str, tuple[str, Resolved]]
    rng: random.Random

    @classmethod
    def of(cls, vectors: Iterable[StepVector], at: int, framework: str | None, rng: random.Random) -> Window:
        own = [replace(vector, metrics=dict(vector.metrics)) for vector in vectors]
        found = {name for vector in own for name in vector.metrics}
        reading = guess_framework(found, framework)
        names: dict[str, tuple[str, Resolved]] = {}
        resolved = [(_CATALOGUE.resolve(name, reading), name) for name in found]
        for answer, name in sorted(resolved, key=lambda pair: (pair[0].canonical, pair[0].priority, pair[1])):
            names.setdefault(answer.canonical, (name, answer))
        return cls(own, at, names, rng)

    def copy(self) -> Window:
        vectors = [replace(vector, metrics=dict(vector.metrics)) for vector in self.vectors]
        return Window(vectors, self.at, dict(self.names), self.rng)

    def has(self, *metrics: str) -> bool:
        return all(metric in self.names for metric in metrics)

    def first(self, *metrics: str) -> str:
        """The first of these that the run reports.

        Raises:
            Unfit: it reports none of them.
        """
        for metric in metrics:
            if metric in self.names:
                return metric
        raise Unfit(f"reports no {metrics[0]}")

    def get(self, row: int, metric: str) -> float | None:
        """The value in the canonical unit; None where this row has none."""
        name, resolved = self.names[metric]
        value = self.vectors[row].metrics.get(name)
        return None if value is None else resolved.apply(value)

    def set(self, row: int, metric: str, value: float) -> None:
        name, resolved = self.names[metric]
        if resolved.transform is not None:
            value = (value - resolved.transform.offset) / resolved.transform.factor
        self.metrics(row)[name] = value

    def metrics(self, row: int) -> dict[str, float]:
        metrics = self.vectors[row].metrics
        assert isinstance(metrics, dict)
        return metrics

    def values(self, metric: str, first: int, last: int) -> list[float]:
        """Finite values of rows first to last - 1."""
        found = (self.get(row, metric) for row in range(max(first, 0), min(last, len(self.vectors))))
        return [value for value in found if value is not None and math.isfinite(value)]

    def before(self, metric: str) -> list[float]:
        """The metric's values over the look-back."""
        return self.values(metric, self.at - LOOK_BACK, self.at)

    def stride(self, metric: str) -> int:
        """Rows per value of the metric."""
        return max(1, round(min(LOOK_BACK, self.at) / max(len(self.before(metric)), 1)))

    def level(self, metric: str) -> float:
        """Median of the last 20 values before the fault.

        Raises:
            Unfit: there are fewer than 6.
        """
        values = self.values(metric, self.at - 20, self.at)
        if len(values) < 6:
            raise Unfit(f"too few values of {metric}")
        return median(values)

    def change(self, metric: str, to: Callable[[float, int], float]) -> None:
        """Replace each value from the fault on by ``to(value, rows since the fault)``; rows without one stay so."""
        if metric not in self.names:
            return
        for row in range(self.at, len(self.vectors)):
            value = self.get(row, metric)
            if value is not None and math.isfinite(value):
                self.set(row, metric, to(value, row - self.at))

    def put(self, metric: str, to: Callable[[int], float]) -> None:
        """Add a metric that the run doesn't report, to every row: ``to(row)``."""
        if metric in self.names:
            return
        self.names[metric] = (metric, _CATALOGUE.resolve(metric, "verl"))
        for row in range(len(self.vectors)):
            self.set(row, metric, to(row))

    def demand_visible(self, metric: str, healthy: Window, rows: int) -> None:
        """A fault counts only if somebody could see it in a plot.

        Raises:
            Unfit: the median of its last 8 values within ``rows`` rows of the fault lies within the range of the
                look-back (less the outermost value on either side), so the run's own noise hides it.
        """
        order = sorted(healthy.before(metric))
        after = self.values(metric, self.at, self.at + rows)[-8:]
        if len(order) < 10 or not after:
            raise Unfit(f"too few values of {metric}")
        if order[1] <= median(after) <= order[-2]:
            raise Unfit(f"within the noise of {metric}")


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def ramp(row: int, rows: int) -> float:
    """0 to 1 over so many rows; 1 at once if it is one."""
    return min(1.0, (row + 1) / rows)
