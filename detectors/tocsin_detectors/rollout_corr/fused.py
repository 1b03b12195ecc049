"""The block function as one graph for CUDA: inputs are read once, and nothing between them and the sums is stored.

PyTorch compiles at the first batch, again when a second one has other sizes (from then on sizes are symbols), and for
every other set of options; that takes some seconds each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.block import Plan, Seen, see_block

__all__ = ["fused_see_block"]


class _Compiled:
    """Compiles until that fails: where there is no compiler, torch computes operation by operation."""

    def __init__(self) -> None:
        self._see: Callable[..., Seen] | None = torch.compile(see_block, fullgraph=True)

    def __call__(
        self, old: Tensor, rollout: Tensor, lengths: Tensor, mask: Tensor | None, *, full: bool, plan: Plan, look: bool
    ) -> Seen:
        if self._see is not None:
            try:
                return self._see(old, rollout, lengths, mask, full=full, plan=plan, look=look)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # the compiler's, in many forms; a fault of the data would be met again below
                self._see = None
        return see_block(old, rollout, lengths, mask, full=full, plan=plan, look=look)


@cache
def _compiled() -> _Compiled:
    return _Compiled()


def fused_see_block(
    old: Tensor, rollout: Tensor, lengths: Tensor, mask: Tensor | None, *, full: bool, plan: Plan, look: bool
) -> Seen:
    """:func:`tocsin_detectors.rollout_corr.block.see_block`, compiled if that is possible."""
    return _compiled()(old, rollout, lengths, mask, full=full, plan=plan, look=look)
