"""The core for trainers: one function per thing that one wants, on whatever device the tensors are.

Under ``torch.distributed`` each process calls with its own rows and ``reduce=True``; all of them get the metrics of the
whole batch. verl computes them per micro-batch in its bypass mode and averages those; that gives other numbers for
whatever isn't a plain mean (standard deviations, effective sample size, chi², perplexities), and these are the better
defined ones.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, distributed

from tocsin_detectors.rollout_corr import core
from tocsin_detectors.rollout_corr.options import Compat, Options
from tocsin_detectors.rollout_corr.rows import Rows

__all__ = ["importance_weights", "offpolicy_metrics", "rejection_mask"]

_Group = distributed.ProcessGroup | None


def offpolicy_metrics(
    old_log_probs: Tensor,
    rollout_log_probs: Tensor,
    rows: Rows,
    *,
    compat: Compat = "verl",
    group: _Group = None,
    reduce: bool = False,
) -> dict[str, float]:
    """How far the engine that trains has drifted from the one that generated.

    Args:
        old_log_probs: log-probabilities of the sampled tokens by the training engine, nats; ``[B, T]`` or flat ``[N]``,
            as ``rows`` says. Any float type; sums are float64.
        rollout_log_probs: those of the inference engine, of the same shape.
        rows: ``Rows.padded(response_mask)`` or ``Rows.ragged(response_lengths)``.
        compat: "verl" or "strict", see ``Options``.
        group: processes to combine with; None: all. Only read with ``reduce``.
        reduce: combine the totals of all processes of ``torch.distributed`` first.

    Returns:
        The 13 diagnostics (see ``offpolicy``) under their canonical names, ``rollout_corr/kl`` and so on; in strict
        behaviour also counts of saturated and non-finite tokens and of empty rows.

    Raises:
        TensorError: tensors that don't fit together; with "verl" also a batch without a valid token.
    """
    options = Options(compat=compat, metrics=("off_policy",))
    return _run(old_log_probs, rollout_log_probs, rows, options, group, reduce=reduce)[0]


def importance_weights(
    old_log_probs: Tensor,
    rollout_log_probs: Tensor,
    rows: Rows,
    *,
    level: Literal["token", "sequence"],
    threshold: float | str,
    batch_normalize: bool = False,
    compat: Compat = "verl",
    group: _Group = None,
    reduce: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """Importance weights π_train / π_rollout, truncated or cut out, and their statistics.

    Args:
        old_log_probs: as in ``offpolicy_metrics``.
        rollout_log_probs: likewise.
        rows: the layout.
        level: a weight per token, or one per row for all of its tokens.
        threshold: an upper bound > 0, to which larger weights are truncated (TIS); or "lower_upper", such as "0.5_5.0":
            weights outside become 0 (IcePop).
        batch_normalize: divide the weights by their mean (with ``reduce``, the mean over all processes).
        compat: "verl" or "strict".
        group: as in ``offpolicy_metrics``.
        reduce: likewise.

    Returns:
        Weights of the shape of ``old_log_probs``, without gradient, 0 where no valid token is; 14 to 16 statistics,
        ``rollout_corr/rollout_is_mean`` and so on, of the weights before normalisation.

    Raises:
        OptionError: an invalid level or threshold.
        TensorError: as in ``offpolicy_metrics``; with "verl" also if all weights are 0.
    """
    options = Options(
        compat=compat,
        metrics=("is",),
        rollout_is=level,
        rollout_is_threshold=threshold,
        rollout_is_batch_normalize=batch_normalize,
        return_weights=True,
    )
    metrics, outputs = _run(old_log_probs, rollout_log_probs, rows, options, group, reduce=reduce)
    return outputs[core.WEIGHTS], metrics


def rejection_mask(
    old_log_probs: Tensor,
    rollout_log_probs: Tensor,
    rows: Rows,
    *,
    rejections: str,
    thresholds: float | str,
    compat: Compat = "verl",
    group: _Group = None,
    reduce: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """The mask without the tokens and rows whose log-ratio is out of bounds, and what was rejected.

    Args:
        old_log_probs: as in ``offpolicy_metrics``.
        rollout_log_probs: likewise.
        rows: the layout.
        rejections: options separated by commas, out of ``REJECTIONS``; a token has to pass all of them.
        thresholds: one for all options, or one for each, separated by commas; see ``Options.rollout_rs_threshold``.
        compat: "verl" or "strict"; they differ in what an interval of k1 means.
        group: as in ``offpolicy_metrics``.
        reduce: likewise.

    Returns:
        bool, of the shape of ``old_log_probs``: valid and kept; 14 or 15 statistics per option and two of all,
        ``rollout_corr/rollout_rs_masked_fraction`` and so on.

    Raises:
        OptionError: an invalid option or threshold.
        TensorError: as in ``offpolicy_metrics``.
    """
    options = Options(
        compat=compat, metrics=("rs",), rollout_rs=rejections, rollout_rs_threshold=thresholds, return_mask=True
    )
    metrics, outputs = _run(old_log_probs, rollout_log_probs, rows, options, group, reduce=reduce)
    return outputs[core.MASK], metrics


def _run(
    old: Tensor, rollout: Tensor, rows: Rows, options: Options, group: _Group, *, reduce: bool
) -> tuple[dict[str, float], dict[str, Any]]:
    with torch.no_grad():
        tensors = dict(zip(core.NEEDED, (old, rollout), strict=True))
        for name, tensor in tensors.items():
            checked = rows.check(name, tensor)
            tensors[name] = checked.to(torch.float32) if reduce and checked.dtype in core.HALF else checked
        if rows.mask is not None:
            tensors[core.MASK] = rows.mask
        part = core.FAMILY.accumulate(tensors, rows, options)
        finished = core.FAMILY.finish(part.totals.to_host(group, reduce=reduce), part.outputs, options)
    return finished.metrics, part.outputs
