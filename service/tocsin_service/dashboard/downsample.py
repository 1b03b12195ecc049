"""Fewer points of a curve, so that nothing anyone would look for is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST", "thin"]

FEWEST = 32  # points that can be asked for

Indices = NDArray[np.intp]


def thin(values: NDArray[np.float64], most: int) -> Indices:
    """The indices of the points to keep, in order: at most ``most``; all of them if they are no more.

    The curve is cut into stretches of equal numbers of points. Of each the least and the greatest finite value stay; of
    stretches six times as long, the first NaN and the first infinity of either sign; and the curve's first and last
    point. So the extremes stay as they are, and a spike or a NaN never disappears.

    Args:
        values: in the order of the steps; may hold NaN and infinities.
        most: at least ``FEWEST``.
    """
    if len(values) <= most:
        return np.arange(len(values))
    finite, budget = np.isfinite(values), most - 2
    kept = [np.array([0, len(values) - 1])]
    stretches = budget * 3 // 8  # two points of each, which leaves a quarter of the budget to what is no number
    for worst, better in ((-np.inf, np.argmax), (np.inf, np.argmin)):
        kept.append(_pick(np.where(finite, values, worst), finite, stretches, worst, better))
    kinds = (np.isnan(values), np.isposinf(values), np.isneginf(values))
    kept += [_pick(kind.astype(np.float64), kind, budget // 16, 0.0, np.argmax) for kind in kinds]
    return np.unique(np.concatenate(kept))


def _pick(keys: NDArray[np.float64], wanted: NDArray[np.bool_], stretches: int, worst: float, better: Any) -> Indices:
    """One of the wanted points of each stretch that has any, the one whose key is better than the others'."""
    width = -(-len(keys) // stretches)
    padded = np.full(stretches * width, worst)
    padded[: len(keys)] = keys
    best: Indices = better(padded.reshape(stretches, width), axis=1) + np.arange(stretches) * width
    best = best[best < len(keys)]
    return best[wanted[best]]
