"""Probability differences: the probabilities themselves, p = exp(log-probability), of the two engines.

    training/rollout_probs_diff_mean, _max, _std    of |p_train - p_rollout| over valid tokens (std unbiased)
    training/rollout_probs_diff_valid               1 if there is a valid token, else 0
    training/rollout_actor_probs_pearson_corr       correlation of the two over valid tokens

Healthy: a mean below 0.01, a correlation above 0.99. Source: verl, ``calculate_debug_metrics``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.counts import ratio, spread
from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finished
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["FAMILY", "rollout_probs_diff"]

_NAMES = ("diff", "diff2", "train", "rollout", "train2", "rollout2", "product")


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    """Sums of probabilities are of float64 values: a correlation near 1 is a difference of nearly equal sums."""
    del options
    sums = torch.zeros(len(_NAMES), dtype=torch.float64, device=rows.device)
    most = torch.zeros((), dtype=torch.float64, device=rows.device)
    for block in rows.blocks(tensors["old_log_probs"], tensors["rollout_log_probs"]):
        train, rollout = (value.to(torch.float64).exp_() for value in block.values)
        if not block.full:
            valid = block.mask
            train, rollout = train.mul_(valid), rollout.mul_(valid)
        diff = (train - rollout).abs_()
        flat = [diff.view(-1), train.view(-1), rollout.view(-1)]
        squares = [flat[0].dot(flat[0]), flat[1].sum(), flat[2].sum(), flat[1].dot(flat[1]), flat[2].dot(flat[2])]
        sums += torch.stack([diff.sum(), *squares, flat[1].dot(flat[2])])
        most = torch.maximum(most, diff.max())
    totals = Totals()
    totals.add_stacked("sum", [*_NAMES, "tokens"], torch.cat([sums, rows.lengths.sum().to(torch.float64)[None]]))
    totals.add("max", {"most": most})
    return Accumulated(totals)


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    del outputs, options
    count = totals["tokens"]
    deviation = spread(totals["diff"], totals["diff2"], count, sample=True) if count > 1 else math.nan
    return Finished(
        {
            "training/rollout_probs_diff_valid": float(count > 0),
            "training/rollout_probs_diff_max": totals["most"] if count else math.nan,
            "training/rollout_probs_diff_mean": ratio(totals["diff"], count),
            "training/rollout_probs_diff_std": deviation,
            "training/rollout_actor_probs_pearson_corr": _correlation(totals, count),
        }
    )


def _correlation(totals: Mapping[str, float], count: float) -> float:
    """Pearson's; NaN for fewer than two tokens, or if one engine gives all of them the same probability."""
    if count < 2:
        return math.nan
    covariance = totals["product"] - totals["train"] * totals["rollout"] / count
    variances = [totals[f"{name}2"] - totals[name] ** 2 / count for name in ("train", "rollout")]
    if not all(variance > 0 for variance in variances):
        return math.nan
    return min(max(covariance / math.sqrt(variances[0] * variances[1]), -1.0), 1.0)


FAMILY = Family(
    names=("debug",),
    needs=(("old_log_probs", "rollout_log_probs"),),
    accumulate=_accumulate,
    finish=_finish,
)


def rollout_probs_diff(old_log_probs: Tensor, rollout_log_probs: Tensor, rows: Rows) -> dict[str, float]:
    """Probability differences of the two engines, and their correlation.

    Args:
        old_log_probs: log-probabilities of the training engine; ``[B, T]`` or flat ``[N]``, as ``rows`` says.
        rollout_log_probs: those of the inference engine.
        rows: the layout.

    Returns:
        The five metrics by canonical name.

    Raises:
        TensorError: shapes, types or devices that don't fit together.
    """
    tensors = {
        "old_log_probs": rows.check("old_log_probs", old_log_probs),
        "rollout_log_probs": rows.check("rollout_log_probs", rollout_log_probs),
    }
    options = Options()
    return _finish(_accumulate(tensors, rows, options).totals.to_host(), {}, options).metrics
