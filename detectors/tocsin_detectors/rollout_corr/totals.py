"""Totals: what a metric needs of all tokens and rows, as numbers that can be added, and so be summed over processes.

Every family of metrics is ``accumulate`` (tensors to totals, on any device), then ``finish`` (totals to metrics, plain
arithmetic on the host). Between the two all totals of a call cross from the device to the host at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, distributed

__all__ = ["Kind", "Totals"]

Kind: TypeAlias = Literal["sum", "max", "min"]
_KINDS: tuple[Kind, ...] = ("sum", "max", "min")
_NEUTRAL: Mapping[Kind, float] = {"sum": 0.0, "max": -torch.inf, "min": torch.inf}


class Totals:
    """Named float64 numbers, each a sum, a maximum or a minimum over what was seen.

    A maximum or minimum over nothing is -inf or +inf. NaN in what is summed or compared makes the total NaN, also
    across processes.
    """

    def __init__(self) -> None:
        self._names: dict[Kind, list[str]] = {kind: [] for kind in _KINDS}
        self._parts: dict[Kind, list[Tensor]] = {kind: [] for kind in _KINDS}

    def add(self, kind: Kind, values: Mapping[str, Tensor]) -> None:
        """Take in scalars (0-dimensional tensors of any number type) under new names.

        Raises:
            ValueError: a name is taken already.
        """
        if values:
            self.add_stacked(kind, list(values), torch.stack([value.to(torch.float64) for value in values.values()]))

    def add_stacked(self, kind: Kind, names: Sequence[str], values: Tensor) -> None:
        """Take in ``values``, ``[K]``, under K new names.

        Raises:
            ValueError: a name is taken already, or there are not as many names as values.
        """
        if len(names) != values.shape[0]:
            raise ValueError(f"{len(names)} names for {values.shape[0]} values")
        taken = {name for known in self._names.values() for name in known}.intersection(names)
        if taken or len(set(names)) != len(names):
            raise ValueError(f"totals of these names exist already: {', '.join(sorted(taken)) or names}")
        self._names[kind].extend(names)
        self._parts[kind].append(values.to(torch.float64))

    def merge(self, other: Totals, prefix: str = "") -> None:
        """Take in all totals of another family, under names that begin with ``prefix``."""
        for kind in _KINDS:
            for values, names in _with_names(other._parts[kind], other._names[kind]):
                self.add_stacked(kind, [prefix + name for name in names], values)

    def to_host(self, group: distributed.ProcessGroup | None = None, *, reduce: bool = False) -> dict[str, float]:
        """All totals as Python numbers, in one transfer.

        Args:
            group: the processes to combine with (None: all of them); only read with ``reduce``.
            reduce: combine the totals of all processes first (``torch.distributed``). Every process has to call with
                the same names in the same order. Five small collectives at most.
        """
        names: list[str] = []
        tensors: list[Tensor] = []
        for kind in _KINDS:
            if self._parts[kind]:
                names.extend(self._names[kind])
                stacked = torch.cat(self._parts[kind])
                tensors.append(_reduce(stacked, kind, group) if reduce else stacked)
        if not tensors:
            return {}
        return dict(zip(names, torch.cat(tensors).tolist(), strict=True))


def _with_names(parts: Sequence[Tensor], names: Sequence[str]) -> list[tuple[Tensor, Sequence[str]]]:
    pairs = []
    start = 0
    for part in parts:
        pairs.append((part, names[start : start + part.shape[0]]))
        start += part.shape[0]
    return pairs


def _reduce(values: Tensor, kind: Kind, group: distributed.ProcessGroup | None) -> Tensor:
    """Combined over the processes. MAX and MIN of a backend may lose NaN, so NaN travels as a mark of its own."""
    values = values.clone()
    if kind == "sum":
        distributed.all_reduce(values, op=distributed.ReduceOp.SUM, group=group)
        return values
    bad = values.isnan()
    marks = bad.to(torch.float64)
    values.masked_fill_(bad, _NEUTRAL[kind])
    operation = distributed.ReduceOp.MAX if kind == "max" else distributed.ReduceOp.MIN
    distributed.all_reduce(values, op=operation, group=group)
    distributed.all_reduce(marks, op=distributed.ReduceOp.MAX, group=group)
    return values.masked_fill(marks > 0, torch.nan)
