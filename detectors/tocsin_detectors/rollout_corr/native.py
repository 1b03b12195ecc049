"""The way to the compiled kernel, for float32 on a CPU, where numba is there; without it torch does the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.block import Plan
from tocsin_detectors.rollout_corr.thresholds import Rejection

__all__ = ["Layout", "fits", "kernel", "native_columns", "native_scan"]

_ESTIMATORS = {"k1": 1.0, "k2": 2.0, "k3": 3.0}


@cache
def kernel() -> ModuleType | None:
    """The module of the kernel; None: numba isn't installed. Loaded at first use, as it takes a second."""
    try:
        from tocsin_detectors.rollout_corr import kernel as module  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    return module


def fits(*tensors: Tensor) -> bool:
    """Whether the kernel can take these tensors as they lie."""
    return kernel() is not None and all(
        tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in tensors
    )


def native_scan(mask: Tensor) -> tuple[Tensor, Tensor] | None:
    """Valid tokens per row, and slots up to the last of them, ``[B]`` each; None: there is no kernel.

    Args:
        mask: ``[B, T]`` bool, contiguous, on the CPU.
    """
    module = kernel()
    if module is None:
        return None
    lengths = torch.zeros(mask.shape[0], dtype=torch.int64)
    widths = torch.zeros(mask.shape[0], dtype=torch.int64)
    module.scan_mask(mask.view(torch.uint8).numpy(), lengths.numpy(), widths.numpy())
    return lengths, widths


@dataclass(frozen=True, slots=True)
class Layout:
    """Where R rows with tokens are in flat tensors.

    Attributes:
        starts: ``[R]``, where a row begins.
        widths: ``[R]``, slots up to its last valid token.
        lengths: ``[R]``, its valid tokens.
    """

    starts: Tensor
    widths: Tensor
    lengths: Tensor


def native_columns(
    log_probs: tuple[Tensor, Tensor],
    mask: Tensor | None,
    layout: Layout,
    plan: Plan,
    weights: Tensor | None,
    kept: Tensor | None,
) -> dict[str, Tensor]:
    """The columns of ``block.Seen``, ``[R]`` float64 each, for R rows with tokens.

    Args:
        log_probs: of training and inference engine; token-level, ``fits`` said yes to them.
        mask: ``[B, T]`` bool; None: no row has holes.
        layout: the rows.
        plan: what is wanted.
        weights: token-level, to be filled; or None.
        kept: token-level bool, to be filled; or None.
    """
    module = kernel()
    assert module is not None  # noqa: S101 - ``fits`` has asked
    none, nothing = np.zeros(0, np.float32), np.zeros(0, np.uint8)
    table = np.empty((layout.starts.shape[0], len(module.COLUMNS) + len(module.OPTION_COLUMNS) * len(plan.rejections)))
    module.see_rows(
        *(tensor.view(-1).numpy() for tensor in log_probs),
        nothing if mask is None else mask.view(torch.uint8).view(-1).numpy(),
        layout.starts.numpy(),
        layout.widths.numpy(),
        layout.lengths.numpy(),
        _bounds(plan),
        _options(plan.rejections),
        table,
        none if weights is None else weights.view(-1).numpy(),
        nothing if kept is None else kept.view(torch.uint8).view(-1).numpy(),
    )
    names = [*module.COLUMNS]
    for option in plan.rejections:
        names += [f"{option.name}.{name}" for name in module.OPTION_COLUMNS]
    columns = dict(zip(names, torch.from_numpy(table).t().contiguous().unbind(), strict=True))
    columns["n"] = layout.lengths.to(torch.float64)
    return columns


def _bounds(plan: Plan) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Bounds of weights less 1: none, (lower, upper), or with a third number if weights outside become 0."""
    if plan.weights is None:
        return np.zeros(0, np.float32)
    upper, lower = plan.weights.upper, plan.weights.lower
    if lower is None:
        return np.array([1 / upper - 1, upper - 1], np.float32)
    return np.array([lower - 1, upper - 1, 0], np.float32)


def _options(rejections: tuple[Rejection, ...]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rows = [
        (_ESTIMATORS[option.estimator], -np.inf if option.lower is None else option.lower, option.upper)
        for option in rejections
    ]
    return np.array(rows, np.float32).reshape(-1, 3)
