"""Where a curve, its levels and its onset lie in a plot, whatever it is drawn with."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tocsin_service.pictures.curves import Curve
from tocsin_service.pictures.marks import Marks

__all__ = [
    "BOTTOM",
    "HEIGHT",
    "LEFT",
    "RIGHT",
    "TOP",
    "WIDTH",
    "Axes",
    "axes_of",
    "broken",
    "levels",
    "strokes",
    "ticks",
]

WIDTH, HEIGHT = 760, 230
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 26, 26
_MOST_COLUMNS = 600
_TICKS = 4


@dataclass(frozen=True, slots=True)
class Axes:
    """Where steps and values lie in a plot, in its units of length from its upper left corner."""

    first: int
    last: int
    low: float
    high: float
    scale: Callable[[float], float]

    @property
    def logarithmic(self) -> bool:
        return self.scale is math.log

    def steps(self) -> list[tuple[int, Literal["left", "center", "right"]]]:
        """The steps that are written below, and which side of the words lies there."""
        middle = (self.first + self.last) // 2
        sides: dict[int, Literal["left", "center", "right"]] = {middle: "center"}
        if self.last > self.first:
            sides |= {self.first: "left", self.last: "right"}
        return sorted(sides.items())

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        bottom, top = self.scale(self.low), self.scale(self.high)
        share = (self.scale(value) - bottom) / (top - bottom) if top > bottom else 0.5
        return HEIGHT - BOTTOM - min(1.0, max(0.0, share)) * (HEIGHT - TOP - BOTTOM)


def axes_of(curve: Curve, marks: Marks) -> Axes:
    """Axes that hold the curve and its levels; logarithmic if nothing could be seen otherwise."""
    known = [level for level in (marks.baseline, marks.limit) if level is not None]
    finite = [value for value in (*curve.values, *known) if math.isfinite(value)] or [0.0]
    # Beyond this, differences would leave the range of floats.
    low, high = (min(max(value, -1e300), 1e300) for value in (min(finite), max(finite)))
    steep = curve.is_steep and 0 < low < high
    if high - low < sys.float_info.min:  # the same, or too near to divide what lies between
        low, high = low - abs(low) / 2 - 0.5, high + abs(high) / 2 + 0.5
    return Axes(curve.steps[0], curve.steps[-1], low, high, math.log if steep else float)


def ticks(axes: Axes) -> Iterator[float]:
    """A few round values between the lowest and the highest."""
    if axes.logarithmic:
        first, last = math.ceil(math.log10(axes.low)), math.floor(math.log10(axes.high))
        yield from (10.0**power for power in range(first, last + 1, 1 + (last - first) // _TICKS))
        return
    span = axes.high - axes.low
    size = 10.0 ** math.floor(math.log10(span / _TICKS))
    size *= next(factor for factor in (1, 2, 5, 10) if span / (size * factor) <= _TICKS + 1)
    first = math.ceil(axes.low / size)
    yield from ((first + n) * size for n in range(_TICKS + 2) if (first + n) * size <= axes.high)


def levels(axes: Axes, marks: Marks) -> Iterator[tuple[Literal["baseline", "limit"], float]]:
    """Baseline and limit, if they are known and can be shown."""
    if marks.baseline is not None and _can_be_shown(marks.baseline, axes):
        yield "baseline", marks.baseline
    if marks.limit is not None and _can_be_shown(marks.limit, axes):
        yield "limit", marks.limit


def _can_be_shown(level: float, axes: Axes) -> bool:
    return math.isfinite(level) and not (axes.logarithmic and level <= 0)


def strokes(curve: Curve, axes: Axes) -> Iterator[list[tuple[float, float]]]:
    """The line as points, broken where a value is not finite. Of very many in one column the extremes are there."""
    points: list[tuple[float, float]] = []
    for step, value in _thinned(curve):
        if math.isfinite(value) and not (axes.logarithmic and value <= 0):
            points.append((axes.x(step), axes.y(value)))
        elif points:
            yield points
            points = []
    if points:
        yield points


def broken(curve: Curve, axes: Axes) -> list[int]:
    """Where NaN and infinities are, from left to right; very many of them share a place."""
    points = zip(curve.steps, curve.values, strict=True)
    return sorted({round(axes.x(step)) for step, value in points if not math.isfinite(value)})


def _thinned(curve: Curve) -> Iterator[tuple[int, float]]:
    points = list(zip(curve.steps, curve.values, strict=True))
    size = -(-len(points) // _MOST_COLUMNS)
    for begin in range(0, len(points), size):
        column = points[begin : begin + size]
        if size < 3:
            yield from column
            continue
        finite = [point for point in column if math.isfinite(point[1])]
        if not finite:
            yield column[0]
            continue
        extremes = {min(finite, key=lambda point: point[1]), max(finite, key=lambda point: point[1])}
        yield from sorted(extremes)
