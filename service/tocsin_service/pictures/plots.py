"""The curve of an alerting metric as SVG: baseline, limit, onset and the step at which it was said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from tocsin_service.pictures.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axes,
    axes_of,
    broken,
    levels,
    strokes,
    ticks,
)
from tocsin_service.pictures.curves import Curve
from tocsin_service.pictures.marks import Marks

__all__ = ["Marks", "plot"]

_SIDES = {"left": "start", "center": "middle", "right": "end"}
_DASHES = {"baseline": "- -", "limit": "\u00b7\u00b7\u00b7"}


def plot(curve: Curve, marks: Marks) -> str:
    """The plot as one SVG element; its colours come from the page."""
    axes = axes_of(curve, marks)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(marks.title)}">']
    parts += _frame(axes)
    parts += _level_lines(axes, marks)
    parts += _onset(axes, marks)
    parts += [f'<path class="curve" d="{_line(points)}"/>' for points in strokes(curve, axes)]
    parts += _crosses(curve, axes)
    parts += _fired(curve, axes, marks)
    return "".join((*parts, "</svg>"))


def _frame(axes: Axes) -> Iterator[str]:
    for value in ticks(axes):
        y = axes.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick end" x="{LEFT - 6}" y="{y + 4:.1f}">{value + 0.0:.4g}</text>'
    for step, side in axes.steps():
        yield f'<text class="tick {_SIDES[side]}" x="{axes.x(step):.1f}" y="{HEIGHT - 8}">{step}</text>'


def _level_lines(axes: Axes, marks: Marks) -> Iterator[str]:
    """Lines for baseline and limit, told of in a legend on the side where the onset isn't."""
    told = []
    for kind, level in levels(axes, marks):
        y = axes.y(level)
        yield f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        told.append(f'<tspan class="{kind}">{_DASHES[kind]} {escape(marks.words[kind])} {level:.4g}</tspan>')
    left = axes.x(marks.onset) > WIDTH / 2
    side, x = ("start", LEFT) if left else ("end", WIDTH - RIGHT)
    yield f'<text class="label {side}" x="{x}" y="{TOP - 8}">{"  ".join(told)}</text>'


def _onset(axes: Axes, marks: Marks) -> Iterator[str]:
    x, said = axes.x(marks.onset), axes.x(marks.fired)
    if said > x:
        yield f'<rect class="open" x="{x:.1f}" y="{TOP}" width="{said - x:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>'
    yield f'<line class="onset" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
    side = "end" if x > WIDTH / 2 else "start"  # beside the legend
    told = escape(f"{marks.words['onset']} {marks.onset}")
    yield f'<text class="label onset {side}" x="{x + (-4 if side == "end" else 4):.1f}" y="{TOP - 8}">{told}</text>'


def _fired(curve: Curve, axes: Axes, marks: Marks) -> Iterator[str]:
    value = curve.at(marks.fired)
    if value is not None and math.isfinite(value):
        told = escape(f"{marks.words['said']} {marks.fired}: {value:.4g}")
        x, y = axes.x(marks.fired), axes.y(value)
        yield f'<circle class="fired" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{told}</title></circle>'


def _crosses(curve: Curve, axes: Axes) -> Iterator[str]:
    """What is not finite, at the upper edge."""
    for x in broken(curve, axes):
        yield f'<path class="broken" d="M{x - 3} {TOP - 3}l6 6m0-6l-6 6"/>'


def _line(points: Sequence[tuple[float, float]]) -> str:
    told = [f"{x:.1f} {y:.1f}" for x, y in points]
    return "M" + "L".join(told if len(told) > 1 else told * 2)
