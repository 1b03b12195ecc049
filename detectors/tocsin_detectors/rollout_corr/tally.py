"""What the kin of the correction metrics have in common: sums over blocks, extremes of valid tokens, moments.

Within a row sums have the values' own precision (float32, cascaded), over rows and blocks they are float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.rows import Block
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["Tally", "variance"]


class Tally:
    """Float64 sums, and the least and greatest values, of what is seen block by block. They stay on the device.

    Args:
        device: where the blocks are.
        sums: names of what is summed, in the order in which ``add`` gets it.
        ranges: names of what gets a maximum ``{name}/max`` and a minimum ``{name}/min``.
    """

    def __init__(self, device: torch.device, sums: Sequence[str], ranges: Sequence[str] = ()) -> None:
        self._sums, self._ranges = tuple(sums), tuple(ranges)
        self._total = torch.zeros(len(self._sums), dtype=torch.float64, device=device)
        self._most = torch.full((len(self._ranges),), -torch.inf, dtype=torch.float64, device=device)
        self._least = -self._most

    def add(self, *summands: Tensor) -> None:
        """Add up tensors of a block, one per sum: ``[b, L]``, 0 where no valid token is, or ``[b]``."""
        self._total += torch.stack([_sum(summand) for summand in summands])

    def see(self, block: Block, *values: Tensor) -> None:
        """Take in ``[b, L]`` values, one tensor per range; only valid tokens count. A NaN makes both ends NaN."""
        ends = [_ends(block, value) for value in values]
        self._least = torch.minimum(self._least, torch.stack([least for least, _ in ends]).to(torch.float64))
        self._most = torch.maximum(self._most, torch.stack([most for _, most in ends]).to(torch.float64))

    def totals(self) -> Totals:
        """All of it, to be combined over processes."""
        totals = Totals()
        totals.add_stacked("sum", self._sums, self._total)
        if self._ranges:
            totals.add_stacked("max", [f"{name}/max" for name in self._ranges], self._most)
            totals.add_stacked("min", [f"{name}/min" for name in self._ranges], self._least)
        return totals


def variance(total: float, squares: float, count: float, *, sample: bool = False) -> float:
    """Variance of ``count`` values with this sum and this sum of squares; NaN if there are too few.

    Args:
        total: their sum.
        squares: the sum of their squares.
        count: how many they are.
        sample: divide by ``count - 1`` (torch's default), not by ``count``.
    """
    degrees = count - 1 if sample else count
    if degrees <= 0:
        return math.nan
    spread = squares - total * total / count
    return max(spread, 0.0) / degrees  # in this order NaN stays NaN


def _sum(summand: Tensor) -> Tensor:
    if summand.dtype == torch.bool:
        return summand.count_nonzero().to(torch.float64)
    return (summand.sum(1) if summand.ndim == 2 else summand).sum(dtype=torch.float64)


def _ends(block: Block, value: Tensor) -> tuple[Tensor, Tensor]:
    if block.full:
        least, most = torch.aminmax(value)
        return least, most
    return value.masked_fill(~block.mask, torch.inf).amin(), value.masked_fill(~block.mask, -torch.inf).amax()
