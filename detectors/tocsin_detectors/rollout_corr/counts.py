"""Counts of a batch that every family of the core divides by, and arithmetic on its totals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["Counts", "ratio", "spread"]


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is.

    Attributes:
        tokens: valid ones.
        live: rows that have some.
        empty: rows that have none and are to be counted as rows (0 in strict behaviour).
    """

    tokens: float
    live: float
    empty: float

    @property
    def rows(self) -> float:
        return self.live + self.empty

    @staticmethod
    def add(totals: Totals, rows: Rows) -> None:
        """Put the counts of this process among the totals."""
        totals.add(
            "sum",
            {
                "tokens": rows.lengths.sum(),
                "live": (rows.lengths > 0).sum(),
                "empty": (rows.lengths == 0).sum(),
            },
        )

    @classmethod
    def of(cls, totals: Mapping[str, float], *, strict: bool) -> Counts:
        return cls(totals["tokens"], totals["live"], 0.0 if strict else totals["empty"])


def ratio(total: float, count: float) -> float:
    """``total / count``; NaN if nothing was counted."""
    return total / count if count else math.nan


def spread(total: float, squares: float, count: float, *, sample: bool) -> float:
    """Standard deviation of ``count`` values with this sum and sum of squares; 0 for one value, NaN for none.

    Args:
        total: their sum. Both sums may be of differences from any constant; the nearer to the mean, the more exact.
        squares: the sum of their squares.
        count: how many they are.
        sample: divide by ``count - 1``, not by ``count``.
    """
    if count <= 1:
        return 0.0 if count == 1 else math.nan
    moment = squares - total * total / count
    if not moment > 0:  # rounding can make it negative; NaN stays NaN
        return moment if math.isnan(moment) else 0.0
    return math.sqrt(moment / (count - 1 if sample else count))
