"""The layout of a batch: which slots hold valid tokens, and how to walk over them in pieces that stay in the cache.

Token-level tensors come padded, ``[B, T]`` with a mask, or ragged, flat ``[N]`` with the length of each row. Metrics
don't see the difference: they go over ``Rows.blocks``, rectangles ``[b, L]`` of whole rows in which everything that is
no valid token is 0, whatever (even NaN) stood there. So a sum over a block needs no mask if the summand is 0 at 0.
On a CPU rows come sorted by length, so that little padding is read at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.native import native_scan

__all__ = ["Block", "Rows"]

CPU_BLOCK = 32_767  # slots: what is made of them stays in a core's cache, and torch starts no threads for so few
DEVICE_BLOCK = 1 << 28  # slots: one block as a rule; what runs on it is fused, so it materialises little
WASTE = 0.1  # share of a block that may be padding before rows of other lengths get a block of their own
LONG_ROW = 1024  # tokens: longer rows are copied one by one, shorter ones gathered together (ragged layout)
_INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


@dataclass(frozen=True, eq=False)
class Block:
    """Whole rows of a batch as rectangles.

    Attributes:
        values: a tensor ``[b, L]`` per tensor asked for, 0 outside the mask; float64 where the input was, else float32.
            They are copies: free to be overwritten.
        rows: ``[b]`` int64, which rows of the batch these are.
        lengths: ``[b]`` int64, valid tokens per row, never 0 on a CPU (empty rows come in no block).
        place: where these rows stand in ``Rows.order``, so that per-row results can be written side by side.
        full: whether every slot is known to hold a valid token.
    """

    values: tuple[Tensor, ...]
    rows: Tensor
    lengths: Tensor
    place: slice
    width: int
    full: bool
    given_mask: Tensor | None

    @cached_property
    def mask(self) -> Tensor:
        """``[b, L]`` bool, true where a token is valid."""
        if self.given_mask is not None:
            return self.given_mask
        return torch.arange(self.width, device=self.lengths.device) < self.lengths[:, None]

    @cached_property
    def pads(self) -> Tensor:
        """``[b]`` int64, slots per row that hold no valid token (and are 0)."""
        return self.width - self.lengths


@dataclass(frozen=True, eq=False)
class _Span:
    place: slice
    width: int  # slots up to the last valid token of the longest row
    shortest: int  # slots before this one are valid in every row, if the layout has no holes


class Rows:
    """The validated layout of one batch; made by ``Rows.padded`` or ``Rows.ragged``.

    Attributes:
        count: B, rows, empty ones included.
        width: T, slots per row (padded), or tokens of the longest row (ragged).
        tokens: N, valid tokens of all rows.
        lengths: ``[B]`` int64, valid tokens per row.
        order: ``[B]`` int64, row numbers in the order in which blocks bring them: a per-row result ``x`` written by
            ``Block.place`` belongs to row ``order[i]`` at ``x[i]``.
        mask: ``[B, T]`` bool (padded), or None (ragged).
        extents: ``[B]`` int64, slots of each row up to its last valid token.
        holes: whether some slot before that is not valid.
        device: where the layout is; all tensors have to be there.
        on_cpu: whether that is the CPU.
    """

    def __init__(self, mask: Tensor | None, lengths: Tensor, width: int, extents: Tensor) -> None:
        self.mask = mask
        self.lengths = lengths
        self.width = width
        self.count = lengths.shape[0]
        self.device = lengths.device
        self.extents = extents
        self.holes = mask is not None and not torch.equal(extents, lengths)
        self.on_cpu = self.device.type == "cpu"

    @classmethod
    def padded(cls, mask: Tensor, *, fractions: bool = False) -> Rows:
        """The layout of padded tensors.

        Args:
            mask: ``response_mask``, ``[B, T]``, bool or numbers that are 0 or 1; 1 where a token is valid. Valid
                tokens need not be the first ones of a row.
            fractions: take other values than 0 and 1, too, as valid.

        Raises:
            TensorError: wrong shape, or values other than 0 and 1.
        """
        if mask.ndim != 2:
            raise TensorError(f"response_mask has shape {list(mask.shape)}; send [B, T], one row per response")
        if mask.dtype != torch.bool:
            valid = mask != 0
            if not fractions and not bool((valid.to(mask.dtype) == mask).all()):
                raise TensorError("response_mask has values other than 0 and 1; send 0 or 1 (weights are not taken)")
            mask = valid
        mask = mask.detach().contiguous()
        scanned = native_scan(mask) if mask.device.type == "cpu" else None
        lengths, extents = scanned or (mask.view(torch.uint8).sum(1, dtype=torch.int32).to(torch.int64), _extents(mask))
        return cls(mask, lengths, mask.shape[1], extents)

    @classmethod
    def ragged(cls, lengths: Tensor) -> Rows:
        """The layout of flat tensors, one row after the other without padding.

        Args:
            lengths: ``response_lengths``, ``[B]`` integers >= 0, tokens per row. (Of ``cu_seqlens`` it is the
                difference: ``cu_seqlens.diff()``.)

        Raises:
            TensorError: wrong shape or type, or negative lengths.
        """
        if lengths.ndim != 1 or lengths.dtype not in _INTEGERS - {torch.bool}:
            raise TensorError(
                f"response_lengths is {lengths.dtype} of shape {list(lengths.shape)}; send integers of shape [B]"
            )
        lengths = lengths.detach().to(torch.int64)
        if lengths.numel() and int(lengths.min()) < 0:
            raise TensorError("response_lengths has negative values; send the number of tokens of each row, 0 or more")
        if lengths.numel() and int(lengths.max()) > 2**62 // lengths.numel():  # else their sum could wrap around
            raise TensorError("response_lengths has values that no batch has; send the number of tokens of each row")
        return cls(None, lengths, int(lengths.max()) if lengths.numel() else 0, lengths)

    @property
    def ragged_layout(self) -> bool:
        """Whether token-level tensors are flat ``[N]``."""
        return self.mask is None

    @cached_property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape that every token-level tensor must have."""
        return (self.tokens,) if self.mask is None else (self.count, self.width)

    def check(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor, detached, if it is a token-level tensor of this layout.

        Raises:
            TensorError: wrong shape, type or device.
        """
        if tuple(tensor.shape) != self.shape:
            kind = "the sum of response_lengths" if self.ragged_layout else "the shape of response_mask"
            raise TensorError(f"{name} has shape {list(tensor.shape)}; send {list(self.shape)}, {kind}")
        if tensor.dtype not in _FLOATS:
            raise TensorError(f"{name} is {tensor.dtype}; send float32, float64, bfloat16 or float16")
        if tensor.device != self.device:
            raise TensorError(
                f"{name} is on {tensor.device}, the layout on {self.device}; send all of them on one device"
            )
        return tensor.detach()

    def check_row_level(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor, detached, if it has one number per row, ``[B]``.

        Raises:
            TensorError: wrong shape or device.
        """
        if tuple(tensor.shape) != (self.count,):
            raise TensorError(f"{name} has shape {list(tensor.shape)}; send [{self.count}], one value per row")
        if tensor.device != self.device:
            raise TensorError(
                f"{name} is on {tensor.device}, the layout on {self.device}; send all of them on one device"
            )
        return tensor.detach()

    @cached_property
    def order(self) -> Tensor:
        if not self.on_cpu:
            return torch.arange(self.count, device=self.device)
        return self.extents.argsort(stable=True)

    @cached_property
    def ordered_lengths(self) -> Tensor:
        """``[B]`` int64, ``lengths[order]``."""
        return self.lengths.index_select(0, self.order)

    def blocks(self, *tensors: Tensor) -> Iterator[Block]:
        """Walk over all rows that have valid tokens.

        Args:
            tensors: token-level tensors that have passed ``check``.

        Yields:
            Blocks of whole rows. A row longer than a block's usual size is a block of its own.
        """
        for span in self._plan:
            yield self._block(span, tensors)

    def output(self, dtype: torch.dtype) -> Tensor:
        """A token-level tensor of zeros, to be filled by ``write``."""
        return torch.zeros(self.shape, dtype=dtype, device=self.device)

    def write(self, output: Tensor, block: Block, values: Tensor) -> None:
        """Put the values of a block, ``[b, L]`` and 0 outside the mask, where its tokens are in ``output``."""
        if self.mask is not None:
            output[:, : block.width].index_copy_(0, block.rows, values)
            return
        pieces = torch.split(output, self._row_lengths)
        for row, value in zip(block.rows.tolist(), values, strict=True):
            piece = pieces[row]
            piece.copy_(value[: piece.shape[0]])

    def by_row(self, ordered: Tensor) -> Tensor:
        """Per-row results in the order of the batch, ``[B]``, of results in the order of the blocks."""
        return torch.empty_like(ordered).index_copy_(0, self.order, ordered)

    @cached_property
    def _row_lengths(self) -> list[int]:
        return [int(length) for length in self.lengths.tolist()]

    @cached_property
    def starts(self) -> Tensor:
        """``[B]`` int64: where each row begins in a flat token-level tensor."""
        if self.mask is not None:
            return torch.arange(self.count, device=self.device) * self.width
        return self.lengths.cumsum(0) - self.lengths

    @cached_property
    def _plan(self) -> list[_Span]:
        if not self.count or not self.width:
            return []
        if not self.on_cpu:
            step = max(1, DEVICE_BLOCK // self.width)
            return [
                _Span(slice(start, min(start + step, self.count)), self.width, 0)
                for start in range(0, self.count, step)
            ]
        return _group(self.extents.index_select(0, self.order).tolist())

    def _block(self, span: _Span, tensors: tuple[Tensor, ...]) -> Block:
        rows = self.order[span.place]
        lengths = self.ordered_lengths[span.place]
        full = span.shortest == span.width and not self.holes
        mask = None
        if self.mask is None:
            values = self._gather_ragged(span, rows, lengths, tensors)
        elif self.holes or not self.on_cpu:
            mask = self.mask[:, : span.width].index_select(0, rows)
            values = [
                torch.where(mask, _wide(tensor[:, : span.width].index_select(0, rows)), 0.0) for tensor in tensors
            ]
        else:
            values = [_wide(tensor[:, : span.width].index_select(0, rows)) for tensor in tensors]
            if not full:
                tail = torch.arange(span.shortest, span.width) >= lengths[:, None]
                for value in values:
                    value[:, span.shortest :].masked_fill_(tail, 0.0)
        return Block(tuple(values), rows, lengths, span.place, span.width, full, mask)

    def _gather_ragged(self, span: _Span, rows: Tensor, lengths: Tensor, tensors: tuple[Tensor, ...]) -> list[Tensor]:
        if span.width > LONG_ROW and self.on_cpu:
            numbers = rows.tolist()
            whole = [torch.split(tensor, self._row_lengths) for tensor in tensors]
            return [_wide(pad_sequence([pieces[row] for row in numbers], batch_first=True)) for pieces in whole]
        slots = torch.arange(span.width, device=self.device)
        places = (self.starts.index_select(0, rows)[:, None] + slots).clamp_(max=self.tokens - 1)
        if span.shortest == span.width:
            return [_wide(tensor[places]) for tensor in tensors]
        valid = slots < lengths[:, None]
        return [torch.where(valid, _wide(tensor[places]), 0.0) for tensor in tensors]


def _wide(value: Tensor) -> Tensor:
    return value if value.dtype == torch.float64 else value.to(torch.float32)


def _extents(mask: Tensor) -> Tensor:
    """``[B]``: slots of each row up to and with its last valid one."""
    if not mask.numel():
        return torch.zeros(mask.shape[0], dtype=torch.int64, device=mask.device)
    slots = torch.arange(1, mask.shape[1] + 1, dtype=torch.int32, device=mask.device)
    return (mask * slots).amax(1).to(torch.int64)


def _group(extents: list[int]) -> list[_Span]:
    """Blocks of rows whose extents, in ascending order, are alike; rows without tokens belong to none."""
    spans = []
    start = next((place for place, extent in enumerate(extents) if extent), len(extents))
    used = 0
    for place in range(start, len(extents) + 1):
        if place < len(extents):
            slots = (place + 1 - start) * extents[place]
            used += extents[place]
            if place == start or (slots <= CPU_BLOCK and slots - used <= WASTE * slots + 1024):
                continue
        if place > start:
            spans.append(_Span(slice(start, place), extents[place - 1], extents[start]))
        start, used = place, extents[place] if place < len(extents) else 0
    return spans
