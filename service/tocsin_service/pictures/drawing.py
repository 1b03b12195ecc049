"""An incident as a picture: the curves of its metrics, drawn as PNG. Needs matplotlib."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from matplotlib import font_manager, rc_context
from matplotlib.axes import Axes as Canvas
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font

from tocsin_detectors.texts import Language
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
from tocsin_service.pictures.marks import Marks, marks_of
from tocsin_service.terminal import columns
from tocsin_service.words import Words

__all__ = ["draw", "spoken"]

DPI = 100
PICTURE_WIDTH, HEADER, PANEL, CAPTION, FOOTER = 1200, 92, 310, 44, 12  # pixels
MOST_PANELS = 4
TITLE_COLUMNS, LINE_COLUMNS, NAME_COLUMNS = 70, 104, 52  # what fits in their sizes
# A font that has no Chinese can't show it. The first of these that is installed helps out.
_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
)
_COLOURS = {
    "front": "#1c2128",
    "soft": "#5c6672",
    "line": "#d9dee4",
    "curve": "#1f6feb",
    "baseline": "#2a7f4f",
    "limit": "#b26a00",
    "critical": "#c62828",
    "warning": "#b26a00",
    "info": "#1f6feb",
}

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it tells of its font cache


def draw(
    incident: Mapping[str, Any],
    alerts: Sequence[Mapping[str, Any]],
    curves: Mapping[str, Curve],
    lang: Language = "en",
) -> bytes:
    """The picture as PNG, 1200 pixels wide: up to four curves with baseline, limit and onset.

    Args:
        incident: as JSON in this language.
        alerts: its members as JSON in this language, in order of onset.
        curves: of the alerts' metrics by the alerts' ids; without any the picture says the numbers in words.
        lang: of the words; one that a font can show, see :func:`spoken`.
    """
    say = Words(lang)
    shown = _most_telling(alerts, curves)
    height = HEADER + PANEL * max(1, len(shown)) + FOOTER
    with rc_context({"font.family": list(_fonts()), "text.usetex": False, "text.parse_math": False}):
        figure = Figure(figsize=(PICTURE_WIDTH / DPI, height / DPI), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        _header(figure, incident, say, height)
        for number, alert in enumerate(shown):
            bottom = height - HEADER - PANEL * (number + 1)
            _panel(figure, alert, curves[alert["id"]], say, bottom / height, PANEL / height)
        if not shown:
            _words(figure, alerts, say, height)
        output = io.BytesIO()
        figure.savefig(output, format="png", dpi=DPI, metadata={"Software": None})
    return output.getvalue()


def spoken(lang: Language) -> Language:
    """The language in which a picture can be: English where no font has the characters of the one that is asked for."""
    return lang if lang == "en" or _chinese_font() is not None else "en"


def _most_telling(alerts: Sequence[Mapping[str, Any]], curves: Mapping[str, Curve]) -> list[Mapping[str, Any]]:
    """The critical ones first, then the earliest; each metric once; drawn in order of onset."""
    known: dict[str, Mapping[str, Any]] = {}
    for alert in sorted(alerts, key=lambda one: one["severity"] != "critical"):
        if alert["id"] in curves and curves[alert["id"]].steps:
            known.setdefault(alert["source"], alert)
    return sorted(list(known.values())[:MOST_PANELS], key=lambda one: int(one["onset_step"]))


def _header(figure: Figure, incident: Mapping[str, Any], say: Words, height: int) -> None:
    severity = incident["severity"]
    title = f"{say(severity).upper()}{say(': ')}{incident['title']}"
    facts = [incident["run"], say("attempt {number}", number=incident["attempt"])]
    facts.append(say("since step {step}", step=incident["onset_step"]))
    if incident["last_good_step"] is not None:
        facts.append(say("last good step: {step}", step=incident["last_good_step"]))
    left = LEFT / WIDTH
    figure.text(
        left,
        1 - 36 / height,
        _shown(title, TITLE_COLUMNS),
        size=17,
        weight="bold",
        color=_COLOURS[severity],
        va="center",
    )
    figure.text(
        left, 1 - 68 / height, _shown(" · ".join(facts), LINE_COLUMNS), size=12, color=_COLOURS["soft"], va="center"
    )


def _words(figure: Figure, alerts: Sequence[Mapping[str, Any]], say: Words, height: int) -> None:
    for number, alert in enumerate(alerts[:MOST_PANELS]):
        line = _shown(f"{alert['rule']}{say(': ')}{alert['evidence']['detail']}", LINE_COLUMNS)
        figure.text(LEFT / WIDTH, 1 - (HEADER + 40 + 32 * number) / height, line, size=12, color=_COLOURS["front"])


def _panel(figure: Figure, alert: Mapping[str, Any], curve: Curve, say: Words, bottom: float, height: float) -> None:
    """One curve, in the units of :mod:`~tocsin_service.pictures.axes`: a page draws the same as a picture."""
    marks, scale = marks_of(alert, say), CAPTION / PANEL
    canvas = figure.add_axes((0, bottom, 1, height * (1 - scale)), xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    canvas.set_axis_off()
    axes = axes_of(curve, marks)
    colour = _COLOURS[alert["severity"]]
    top = bottom + height * (1 - scale * 0.55)
    figure.text(
        LEFT / WIDTH, top, _shown(alert["source"], NAME_COLUMNS), size=13, weight="bold", color=_COLOURS["front"]
    )
    figure.text(1 - RIGHT / WIDTH, top, _shown(alert["rule"], 34), size=12, color=colour, ha="right")
    _frame(canvas, axes)
    _levels(canvas, axes, marks)
    _onset(canvas, axes, marks)
    for points in strokes(curve, axes):
        xs, ys = zip(*(points if len(points) > 1 else points * 2), strict=True)
        canvas.plot(xs, ys, color=_COLOURS["curve"], linewidth=1.8, solid_capstyle="round", solid_joinstyle="round")
    if places := broken(curve, axes):
        canvas.plot(places, [TOP] * len(places), "x", color=_COLOURS["critical"], markersize=6, clip_on=False)
    _fired(canvas, curve, axes, marks)


def _frame(canvas: Canvas, axes: Axes) -> None:
    small: dict[str, Any] = {"size": 10.5, "color": _COLOURS["soft"]}
    for value in ticks(axes):
        y = axes.y(value)
        canvas.plot([LEFT, WIDTH - RIGHT], [y, y], color=_COLOURS["line"], linewidth=0.8)
        canvas.text(LEFT - 6, y, f"{value + 0.0:.4g}", ha="right", va="center", **small)
    for step, side in axes.steps():
        canvas.text(axes.x(step), HEIGHT - BOTTOM + 6, str(step), ha=side, va="top", **small)


def _levels(canvas: Canvas, axes: Axes, marks: Marks) -> None:
    left = axes.x(marks.onset) > WIDTH / 2  # the legend stands where the onset isn't
    place = LEFT if left else WIDTH - RIGHT
    told = list(levels(axes, marks))
    for number, (kind, level) in enumerate(told if left else reversed(told)):
        y, dashes = axes.y(level), (0, (6, 4)) if kind == "baseline" else (0, (1.5, 2.5))
        canvas.plot([LEFT, WIDTH - RIGHT], [y, y], color=_COLOURS[kind], linewidth=1.3, linestyle=dashes)
        sign = "- -" if kind == "baseline" else "···"
        text = f"{sign} {marks.words[kind]} {level:.4g}"
        x = place + (1 if left else -1) * 130 * number
        canvas.text(x, TOP - 8, _shown(text, 40), ha="left" if left else "right", size=11, color=_COLOURS[kind])


def _onset(canvas: Canvas, axes: Axes, marks: Marks) -> None:
    x, said = axes.x(marks.onset), axes.x(marks.fired)
    if said > x:
        canvas.fill_between([x, said], TOP, HEIGHT - BOTTOM, color=_COLOURS["critical"], alpha=0.10, linewidth=0)
    canvas.plot([x, x], [TOP, HEIGHT - BOTTOM], color=_COLOURS["critical"], linewidth=1.2)
    late = x > WIDTH / 2
    text = f"{marks.words['onset']} {marks.onset}"
    canvas.text(x, TOP - 8, text, ha="right" if late else "left", size=11, color=_COLOURS["critical"])


def _fired(canvas: Canvas, curve: Curve, axes: Axes, marks: Marks) -> None:
    value = curve.at(marks.fired)
    if value is not None and math.isfinite(value):
        x, y = axes.x(marks.fired), axes.y(value)
        canvas.plot([x], [y], "o", color=_COLOURS["critical"], markersize=7, markeredgecolor="white")


def _shown(text: str, longest: int) -> str:
    """The text as a font can show it, on one line of so many columns; nothing in it turns the others around."""
    known = _characters()
    clean = "".join(char if ord(char) in known and char.isprintable() else "?" for char in " ".join(text.split()))
    if columns(clean) <= longest:
        return clean
    while columns(clean) >= longest:
        clean = clean[: min(len(clean) - 1, longest)]
    return f"{clean}…"


@cache
def _chinese_font() -> str | None:
    known = {font.name for font in font_manager.fontManager.ttflist}
    return next((name for name in _CHINESE_FONTS if name in known), None)


@cache
def _fonts() -> tuple[str, ...]:
    return tuple(filter(None, ("DejaVu Sans", _chinese_font())))


@cache
def _characters() -> frozenset[int]:
    """What the fonts have; a character without a glyph would be a box, and a warning."""
    paths = [font_manager.findfont(font_manager.FontProperties(family=[name])) for name in _fonts()]
    return frozenset(char for path in paths for char in FT2Font(path).get_charmap())
