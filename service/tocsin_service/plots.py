"""The curve of an alerting metric as SVG: baseline, limit, onset and the step at which it was said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tocsin_service.curves import Curve

__all__ = ["Marks", "plot"]

WIDTH, HEIGHT = 760, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 12, 26, 26
_MOST_COLUMNS = 600
_TICKS = 4
_DASHES = {"baseline": "- -", "limit": "\u00b7\u00b7\u00b7"}


@dataclass(frozen=True, slots=True)
class Marks:
    """What is marked in a plot, with the words to say so.

    Attributes:
        onset: step of the first sign.
        fired: step at which it was said.
        baseline: what was normal, None if unknown.
        limit: beyond which a value is abnormal, None if unknown.
        words: for "onset", "said", "baseline" and "limit".
        title: says what is drawn, for those who can't see it.
    """

    onset: int
    fired: int
    baseline: float | None
    limit: float | None
    words: dict[str, str]
    title: str


@dataclass(frozen=True, slots=True)
class _Axes:
    first: int
    last: int
    low: float
    high: float
    scale: Callable[[float], float]

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return _LEFT + min(1.0, max(0.0, share)) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        bottom, top = self.scale(self.low), self.scale(self.high)
        share = (self.scale(value) - bottom) / (top - bottom) if top > bottom else 0.5
        return HEIGHT - _BOTTOM - min(1.0, max(0.0, share)) * (HEIGHT - _TOP - _BOTTOM)


def plot(curve: Curve, marks: Marks) -> str:
    """The plot as one SVG element; its colours come from the page."""
    axes = _axes(curve, marks)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(marks.title)}">']
    parts += _frame(axes)
    parts += _levels(axes, marks)
    parts += _onset(axes, marks)
    parts += [f'<path class="curve" d="{path}"/>' for path in _paths(curve, axes)]
    parts += _crosses(curve, axes)
    parts += _fired(curve, axes, marks)
    return "".join((*parts, "</svg>"))


def _axes(curve: Curve, marks: Marks) -> _Axes:
    levels = [level for level in (marks.baseline, marks.limit) if level is not None]
    finite = [value for value in (*curve.values, *levels) if math.isfinite(value)] or [0.0]
    # Beyond this, differences would leave the range of floats.
    low, high = max(min(finite), -1e300), min(max(finite), 1e300)
    steep = curve.is_steep and low > 0
    if low == high:
        low, high = low - abs(low) / 2 - 0.5, high + abs(high) / 2 + 0.5
    return _Axes(curve.steps[0], curve.steps[-1], low, high, math.log if steep else float)


def _frame(axes: _Axes) -> Iterator[str]:
    for value in _ticks(axes):
        y = axes.y(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick end" x="{_LEFT - 6}" y="{y + 4:.1f}">{value + 0.0:.4g}</text>'
    for step in sorted({axes.first, (axes.first + axes.last) // 2, axes.last}):
        yield f'<text class="tick middle" x="{axes.x(step):.1f}" y="{HEIGHT - 8}">{step}</text>'


def _ticks(axes: _Axes) -> Iterator[float]:
    if axes.scale is math.log:
        first, last = math.ceil(math.log10(axes.low)), math.floor(math.log10(axes.high))
        yield from (10.0**power for power in range(first, last + 1, 1 + (last - first) // _TICKS))
        return
    span = axes.high - axes.low
    size = 10.0 ** math.floor(math.log10(span / _TICKS))
    size *= next(factor for factor in (1, 2, 5, 10) if span / (size * factor) <= _TICKS + 1)
    first = math.ceil(axes.low / size)
    yield from ((first + n) * size for n in range(_TICKS + 2) if (first + n) * size <= axes.high)


def _levels(axes: _Axes, marks: Marks) -> Iterator[str]:
    """Lines for baseline and limit, told of in a legend on the side where the onset isn't."""
    told = []
    for kind, level in (("baseline", marks.baseline), ("limit", marks.limit)):
        if level is None or not math.isfinite(level) or (axes.scale is math.log and level <= 0):
            continue
        y = axes.y(level)
        yield f'<line class="{kind}" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        told.append(f'<tspan class="{kind}">{_DASHES[kind]} {escape(marks.words[kind])} {level:.4g}</tspan>')
    left = axes.x(marks.onset) > WIDTH / 2
    side, x = ("start", _LEFT) if left else ("end", WIDTH - _RIGHT)
    yield f'<text class="label {side}" x="{x}" y="{_TOP - 8}">{"  ".join(told)}</text>'


def _onset(axes: _Axes, marks: Marks) -> Iterator[str]:
    x, said = axes.x(marks.onset), axes.x(marks.fired)
    if said > x:
        yield f'<rect class="open" x="{x:.1f}" y="{_TOP}" width="{said - x:.1f}" height="{HEIGHT - _TOP - _BOTTOM}"/>'
    yield f'<line class="onset" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
    side = "end" if x > WIDTH / 2 else "start"  # beside the legend
    told = escape(f"{marks.words['onset']} {marks.onset}")
    yield f'<text class="label onset {side}" x="{x + (-4 if side == "end" else 4):.1f}" y="{_TOP - 8}">{told}</text>'


def _fired(curve: Curve, axes: _Axes, marks: Marks) -> Iterator[str]:
    at = [value for step, value in zip(curve.steps, curve.values, strict=True) if step == marks.fired]
    if at and math.isfinite(at[0]):
        told = escape(f"{marks.words['said']} {marks.fired}: {at[0]:.4g}")
        x, y = axes.x(marks.fired), axes.y(at[0])
        yield f'<circle class="fired" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{told}</title></circle>'


def _crosses(curve: Curve, axes: _Axes) -> Iterator[str]:
    """NaN and infinities, at the upper edge; very many of them share their crosses."""
    places = {
        round(axes.x(step)) for step, value in zip(curve.steps, curve.values, strict=True) if not math.isfinite(value)
    }
    for x in sorted(places):
        yield f'<path class="broken" d="M{x - 3} {_TOP - 3}l6 6m0-6l-6 6"/>'


def _paths(curve: Curve, axes: _Axes) -> Iterator[str]:
    """The line, broken where a value is not finite. Of very many values in one column the extremes are drawn."""
    open_path: list[str] = []
    for step, value in _thinned(curve):
        if math.isfinite(value) and not (axes.scale is math.log and value <= 0):
            open_path.append(f"{axes.x(step):.1f} {axes.y(value):.1f}")
        elif open_path:
            yield _line(open_path)
            open_path = []
    if open_path:
        yield _line(open_path)


def _line(points: Sequence[str]) -> str:
    return "M" + "L".join(points if len(points) > 1 else [points[0], points[0]])


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
