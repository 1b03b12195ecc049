"""From tensors to row statistics: the one pass over a batch, and the table from which all of the core follows.

Within a row, or a piece of it, sums are float32, of terms that cancel no further than the inputs' own rounding; beyond
that they are float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.block import FALLBACKS, Plan, see_block
from tocsin_detectors.rollout_corr.fused import fused_see_block
from tocsin_detectors.rollout_corr.native import Layout, fits, native_columns
from tocsin_detectors.rollout_corr.rows import Rows

__all__ = ["RowTable", "row_table"]


class RowTable:
    """Statistics of R rows, each ``[R]`` float64: on a CPU of those with tokens, elsewhere of all.

    Attributes:
        columns: statistics by name.
        n: valid tokens per row.
        live: ``[R]`` bool, rows with tokens; None: all of them (always so on a CPU).
        rows: the layout.
        places: ``[R]`` int64, the rows' numbers in the batch.
        dtype: float64 if both inputs were, else float32: what exponentials overflow in.
        weights: ``[B, T]`` or ``[N]`` token-level weights, 0 in padding, or None.
        kept: the same shape, bool, or None.
    """

    def __init__(
        self,
        rows: Rows,
        places: Tensor,
        columns: Mapping[str, Tensor],
        dtype: torch.dtype,
        weights: Tensor | None,
        kept: Tensor | None,
    ) -> None:
        self.rows = rows
        self.places = places
        self.dtype = dtype
        self.columns = columns
        self.n = columns["n"]
        self.live = None if rows.on_cpu else self.n > 0
        self.weights = weights
        self.kept = kept

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def mean(self, name: str) -> Tensor:
        """``[R]``, a column divided by the row's tokens."""
        return self.columns[name] / (self.n if self.live is None else self.n.clamp(min=1))

    def exp(self, x: Tensor) -> Tensor:
        """Exp in the inputs' own type, so that it is infinite where theirs is."""
        return x.to(self.dtype).exp().to(torch.float64)

    def sums(self, values: Sequence[Tensor]) -> Tensor:
        """``[K]`` sums over rows with tokens."""
        return self._over(values, 0.0).sum(1)

    def maxima(self, values: Sequence[Tensor]) -> Tensor:
        """``[K]`` maxima over rows with tokens; -inf if there is none."""
        stacked = self._over(values, -torch.inf)
        return stacked.amax(1) if stacked.shape[1] else stacked.new_full((len(values),), -torch.inf)

    def minima(self, values: Sequence[Tensor]) -> Tensor:
        """``[K]`` minima over rows with tokens; inf if there is none."""
        stacked = self._over(values, torch.inf)
        return stacked.amin(1) if stacked.shape[1] else stacked.new_full((len(values),), torch.inf)

    def spread(self, values: Tensor) -> Tensor:
        """Token-level: the value of each token's row, 0 in padding.

        Args:
            values: ``[R]``, of any type.
        """
        rows = self.rows
        by_row = torch.zeros(rows.count, dtype=values.dtype, device=rows.device).index_copy_(0, self.places, values)
        if rows.mask is None:
            return by_row.repeat_interleave(rows.lengths)
        return torch.where(rows.mask, by_row[:, None], 0).to(values.dtype)

    def clear(self, tokens: Tensor, rejected: Tensor) -> Tensor:
        """The token-level bool tensor, changed in place: false in all rows for which ``rejected``, ``[R]``, is true."""
        rows = self.rows
        if not rows.on_cpu:
            return tokens.logical_and_(self.spread(~rejected))
        if rows.mask is not None:
            return tokens.index_fill_(0, self.places[rejected], value=False)
        for start, length in zip(
            rows.starts[self.places[rejected]].tolist(), rows.lengths[self.places[rejected]].tolist(), strict=True
        ):
            tokens[start : start + length].zero_()
        return tokens

    def _over(self, values: Sequence[Tensor], neutral: float) -> Tensor:
        stacked = torch.stack([value.to(torch.float64) for value in values])
        return stacked if self.live is None else torch.where(self.live, stacked, neutral)


def row_table(
    old: Tensor, rollout: Tensor, rows: Rows, plan: Plan, *, native: bool | None = None, look: bool | None = None
) -> RowTable:
    """Go over a batch once.

    Args:
        old: log-probabilities of the training engine; token-level, checked by ``rows``.
        rollout: those of the inference engine.
        rows: the layout.
        plan: what is wanted beyond row statistics of the log-ratio.
        native: take what is compiled, on a CPU a kernel, on CUDA one fused graph; False: take torch operation by
            operation, which gives the same numbers. Default: if it can be had.
        look: (torch only) look at each block's extremes and leave out what they show to be needless; the numbers
            don't depend on it. Default: on a CPU, where looking costs no synchronisation.
    """
    dtype = torch.float64 if torch.float64 in {old.dtype, rollout.dtype} else torch.float32
    weights = rows.output(dtype) if plan.return_weights and plan.weights is not None else None
    kept = rows.output(torch.bool) if plan.return_mask and plan.rejections else None
    see = fused_see_block if old.is_cuda and native is not False else see_block
    if native is None:
        native = fits(old, rollout)
    if native and rows.on_cpu:
        places = rows.lengths.nonzero().view(-1)
        mask = rows.mask if rows.holes else None
        layout = Layout(rows.starts[places], rows.extents[places], rows.lengths[places])
        columns = native_columns((old, rollout), mask, layout, plan, weights, kept)
        return RowTable(rows, places, columns, dtype, weights, kept)
    look = rows.on_cpu if look is None else look
    pieces: list[Mapping[str, Tensor]] = []
    for block in rows.blocks(old, rollout):
        training, inference = block.values
        seen = see(training, inference, block.lengths, block.given_mask, full=block.full, plan=plan, look=look)
        pieces.append(seen.columns)
        if weights is not None and seen.weights is not None:
            rows.write(weights, block, seen.weights)
        if kept is not None and seen.kept is not None:
            rows.write(kept, block, seen.kept)
    columns = _join(pieces or [_of_nothing(plan, rows.device)])
    return RowTable(rows, rows.order[rows.count - columns["n"].shape[0] :], columns, dtype, weights, kept)


def _join(pieces: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The columns of all blocks, one after the other; what only some blocks had to compute follows from the rest."""
    table: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for piece in pieces for name in piece):
        parts = [piece[name] if name in piece else FALLBACKS[name](piece) for piece in pieces]
        table[name] = torch.cat(parts).to(torch.float64)
    for name, fallback in FALLBACKS.items():
        if name not in table:
            table[name] = fallback(table)
    return table


def _of_nothing(plan: Plan, device: torch.device) -> Mapping[str, Tensor]:
    """All columns, without rows."""
    none = torch.zeros(0, 1, device=device)
    lengths = torch.zeros(0, dtype=torch.int64, device=device)
    return see_block(none, none, lengths, None, full=True, plan=plan, look=False).columns
