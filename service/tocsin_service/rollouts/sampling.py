"""Which rows of a step are kept: all, some, and always the extreme ones, because they are what an alert asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Columns", "Indices", "Sampling"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_EACH = 2  # rows of each kind of extreme


@dataclass(frozen=True, slots=True)
class Columns:
    """What says how extreme a row is, ``[N]`` each; NaN where it isn't known.

    Attributes:
        wrong: rows whose reward is given, and is no finite number.
    """

    rewards: Floats
    lengths: Floats
    repetition: Floats
    advantages: Floats
    wrong: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sampling:
    """The policy.

    Attributes:
        every: only steps that this number divides are kept as a whole; of the others, the extreme rows.
        rows: most rows kept of a step; 0: all. Never fewer than the extreme ones.
    """

    every: int = 1
    rows: int = 0

    def choose(self, step: int, columns: Columns) -> Indices:
        """Indices of the rows to keep, ascending. The same for every repetition of a request."""
        count = len(columns.rewards)
        most = count if self.rows == 0 else self.rows
        if step % self.every:
            return _extremes(columns)
        if most >= count:
            return np.arange(count)
        kept = _extremes(columns)
        others = np.setdiff1d(np.arange(count), kept)
        wanted = max(0, most - kept.size)
        # Evenly over the batch: neighbours are mostly the rollouts of one prompt.
        places = np.linspace(0, others.size - 1, wanted).round().astype(np.int64) if wanted else np.empty(0, np.int64)
        return np.sort(np.concatenate([kept, others[places]]))


def _extremes(columns: Columns) -> Indices:
    chosen = [np.flatnonzero(columns.wrong)[:_EACH]]
    for values in (columns.rewards, columns.lengths, columns.repetition, columns.advantages):
        known = np.flatnonzero(np.isfinite(values))
        order = known[np.argsort(values[known], kind="stable")]
        chosen += [order[:_EACH], order[-_EACH:]]
    return np.unique(np.concatenate(chosen))
