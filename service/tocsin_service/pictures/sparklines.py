"""Curves of one line of text."""

from __future__ import annotations

import math

from tocsin_service.pictures.curves import Curve

__all__ = ["ONSET", "sparkline"]

ONSET = "\N{BOX DRAWINGS LIGHT VERTICAL}"
_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_NOT_A_NUMBER = "\N{MULTIPLICATION SIGN}"


def sparkline(curve: Curve, onset: int) -> str:
    """One block for each value, a cross for NaN and infinities, and a bar before the onset step."""
    blocks = _blocks(curve)
    begin = sum(1 for step in curve.steps if step < onset)
    return "".join((*blocks[:begin], ONSET, *blocks[begin:]))


def _blocks(curve: Curve) -> list[str]:
    values, finite = curve.values, curve.finite
    if not finite:
        return [_NOT_A_NUMBER] * len(values)
    scale = math.log if curve.is_steep else float
    bottom, top = scale(min(finite)), scale(max(finite))
    blocks = []
    for value in values:
        if not math.isfinite(value):
            blocks.append(_NOT_A_NUMBER)
            continue
        # Halves keep differences of huge values within the range of floats.
        height = (scale(value) / 2 - bottom / 2) / (top / 2 - bottom / 2) if top / 2 > bottom / 2 else 0.0
        blocks.append(_BLOCKS[min(len(_BLOCKS) - 1, int(height * len(_BLOCKS)))])
    return blocks
