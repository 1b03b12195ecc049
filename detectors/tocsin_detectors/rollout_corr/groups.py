"""Rows that belong together: the rollouts of one prompt.

Ids are any integers, in any order; a group's rows need not be neighbours. Everything is per row or per group and stays
on the device, in arrays of as many entries as there are rows: the number of groups is known only to the host.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.errors import TensorError

__all__ = ["Groups"]

_NEUTRAL = {"amax": -torch.inf, "amin": torch.inf}


class Groups:
    """Which rows form a group, numbered from 0 by ascending id.

    Args:
        ids: ``[B]`` integers, the group of each row.

    Attributes:
        index: ``[B]`` int64, the number of each row's group.
        sizes: ``[B]`` float64, rows of group k at ``[k]``; 0 past the last group.

    Raises:
        TensorError: the ids are no integers.
    """

    def __init__(self, ids: Tensor) -> None:
        if ids.dtype.is_floating_point or ids.dtype == torch.bool:
            raise TensorError(f"group is {ids.dtype}; send integers, the same number for the rollouts of one prompt")
        self.ids = ids.to(torch.int64)
        order = self.ids.argsort(stable=True)
        ordered = self.ids[order]
        begins = torch.zeros_like(ordered)
        begins[1:] = ordered[1:] != ordered[:-1]
        self.index = torch.empty_like(order).index_copy_(0, order, begins.cumsum(0))
        self.sizes = self.total(torch.ones_like(order))

    def total(self, values: Tensor) -> Tensor:
        """``[B]`` float64: the sum of ``values``, ``[B]``, over the rows of group k at ``[k]``."""
        sums = torch.zeros(self.index.shape[0], dtype=torch.float64, device=self.index.device)
        return sums.index_add_(0, self.index, values.to(torch.float64))

    def extreme(self, values: Tensor, kind: Literal["amax", "amin"]) -> Tensor:
        """``[B]`` float64: the greatest or least of ``values``, ``[B]``, of group k at ``[k]``; NaN if one is NaN."""
        start = torch.full(self.index.shape, _NEUTRAL[kind], dtype=torch.float64, device=self.index.device)
        return start.scatter_reduce_(0, self.index, values.to(torch.float64), kind)

    def id_of(self) -> Tensor:
        """``[B]`` int64: the id of group k at ``[k]``; 0 past the last group."""
        return torch.zeros_like(self.ids).index_copy_(0, self.index, self.ids)
