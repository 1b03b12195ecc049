"""Token-level tensors as one number per row, and rows of all processes in one place."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, distributed

from tocsin_detectors.rollout_corr.rows import Rows

__all__ = ["PER_ROW", "gather_rows", "per_row", "row_sums", "row_values", "take_rows"]

# Outputs of this prefix are no results: they are ``[B]`` tensors of which a family's ``finish`` needs the rows of all
# processes at once, since the rollouts of one prompt can be spread over them.
PER_ROW = "rows/"


def row_sums(tensor: Tensor, rows: Rows) -> Tensor:
    """``[B]`` float64: sums of the rows of a token-level tensor.

    Of a padded one the padding counts too: a reward may stand on a token that the mask leaves out (a tool's answer at
    the end), and is the row's reward all the same.
    """
    if not rows.ragged_layout:
        return tensor.sum(1, dtype=torch.float64)
    sums = torch.zeros(rows.count, dtype=torch.float64, device=rows.device)
    for block in rows.blocks(tensor):
        sums[block.rows] = block.values[0].sum(1, dtype=torch.float64)
    return sums


def row_values(tensors: Mapping[str, Tensor], name: str, rows: Rows) -> Tensor | None:
    """``[B]`` float64: ``scores`` or ``rewards`` as given, else the row sums of its token-level kin, else None."""
    if name in tensors:
        return tensors[name].to(torch.float64)
    by_token = tensors.get(f"token_level_{name}")
    return None if by_token is None else row_sums(by_token, rows)


def per_row(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under names that mark them as rows for ``finish``."""
    return {PER_ROW + name: tensor for name, tensor in tensors.items()}


def take_rows(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take what ``per_row`` has marked out of ``outputs``; under its own names again."""
    return {name.removeprefix(PER_ROW): outputs.pop(name) for name in list(outputs) if name.startswith(PER_ROW)}


def gather_rows(outputs: dict[str, Tensor], group: distributed.ProcessGroup | None = None) -> None:
    """Replace the rows that ``per_row`` has marked by those of all processes, in the order of their ranks.

    Args:
        outputs: outputs of a family; changed in place. Every process has to call with the same names.
        group: the processes; None: all of them.
    """
    names = [name for name in outputs if name.startswith(PER_ROW)]
    if not names:
        return
    world = distributed.get_world_size(group)
    own = torch.tensor([outputs[names[0]].shape[0]], device=outputs[names[0]].device)
    counts = [torch.empty_like(own) for _ in range(world)]
    distributed.all_gather(counts, own, group=group)
    sizes = [int(count) for count in counts]
    for name in names:
        tensor = outputs[name]
        padded = torch.zeros(max(sizes), dtype=tensor.dtype, device=tensor.device)
        padded[: tensor.shape[0]] = tensor
        parts = [torch.empty_like(padded) for _ in range(world)]
        distributed.all_gather(parts, padded, group=group)
        outputs[name] = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
