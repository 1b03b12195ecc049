"""verl's numbers in verl's own arithmetic: for tensors whose type decides the result, and masks that are weights.

With bfloat16 or float16 log-probabilities verl's sums are rounded to the mask's type or the values', whichever is
wider, so the type of the mask changes the numbers; a mask with fractions weights its tokens. Both are oddities that
``compat="verl"`` reproduces. It materialises whole tensors and is slow; float32 and float64 never come here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.block import CLAMP
from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.thresholds import Interval, Rejection

__all__ = ["Literal", "literal_off_policy", "literal_rejections", "literal_weights"]

_TINY = 1e-8


@dataclass(frozen=True, slots=True)
class Literal:
    """A padded batch, as it came.

    Attributes:
        old: ``[B, T]`` log-probabilities of the training engine.
        rollout: those of the inference engine.
        mask: ``[B, T]`` of any type.
    """

    old: Tensor
    rollout: Tensor
    mask: Tensor

    @property
    def d(self) -> Tensor:
        return self.old - self.rollout

    @property
    def live(self) -> Tensor:
        """``[B]`` bool."""
        return self.mask.sum(1) > 0

    def sum(self, values: Tensor, dim: int | None = None) -> Tensor:
        masked = torch.where(self.mask.bool(), values, torch.zeros_like(values)) * self.mask
        return masked.sum(dim)

    def mean(self, values: Tensor, dim: int | None = None) -> Tensor:
        return self.sum(values, dim) / (self.mask.sum(dim) + _TINY)

    def valid(self, values: Tensor) -> Tensor:
        """``[N]``: the values of valid tokens."""
        return values[self.mask.bool()]


def literal_off_policy(batch: Literal) -> dict[str, float]:
    """The 13 diagnostics, without prefix."""
    d = batch.d
    old, rollout = batch.mean(batch.old, 1), batch.mean(batch.rollout, 1)
    diff = rollout - old
    ratio = d.clamp(-CLAMP, CLAMP).exp()
    row_ratio = (2 * batch.sum(d, 1).clamp(-CLAMP, CLAMP)).exp()
    return _plain(
        {
            "training_ppl": (-old).exp().mean(),
            "training_log_ppl": (-old).mean(),
            "kl": batch.mean(batch.rollout - batch.old),
            "k3_kl": batch.mean(d.exp() - d - 1),
            "rollout_ppl": (-rollout).exp().mean(),
            "rollout_log_ppl": (-rollout).mean(),
            "log_ppl_diff": diff.mean(),
            "log_ppl_abs_diff": diff.abs().mean(),
            "log_ppl_diff_max": diff.max(),
            "log_ppl_diff_min": diff.min(),
            "ppl_ratio": diff.exp().mean(),
            "chi2_token": batch.mean(ratio.square()) - 1,
            "chi2_seq": row_ratio.mean() - 1,
        }
    )


def literal_weights(
    batch: Literal, interval: Interval, level: str, *, normalize: bool
) -> tuple[Tensor, dict[str, float]]:
    """``[B, T]`` weights, 0 in padding, and their statistics without prefix.

    Raises:
        TensorError: all weights are 0.
    """
    lower = 1 / interval.upper if interval.lower is None else interval.lower
    log_ratio = batch.d if level == "token" else batch.sum(batch.d, 1)[:, None]
    raw = log_ratio.clamp(-CLAMP, CLAMP).exp().expand_as(batch.old) * batch.mask
    raw = torch.where(batch.mask.bool(), raw, torch.zeros_like(raw))
    weights = raw.clamp(max=interval.upper)
    if interval.lower is not None:
        outside = (raw < interval.lower) | (raw > interval.upper)
        weights = torch.where(outside | raw.isnan(), torch.zeros_like(raw), raw)
    numbers: dict[str, Tensor | float] = {"mean": batch.mean(weights)}
    if level == "token":
        valid = batch.valid(weights)
        numbers |= {"max": valid.max(), "min": valid.min()}
        numbers["ratio_fraction_high"] = batch.mean((raw > interval.upper).float())
        numbers["ratio_fraction_low"] = batch.mean((raw < lower).float())
    else:
        sums = log_ratio[:, 0]
        numbers |= {"max": sums.max().clamp(max=CLAMP).exp(), "min": sums.min().exp()}
        numbers["ratio_fraction_high"] = (sums > math.log(interval.upper)).float().mean()
        numbers["ratio_fraction_low"] = (sums < math.log(lower)).float().mean()
    numbers |= _weights_spread(batch, weights, interval)
    numbers |= _weights_of_rows(batch, raw, weights, interval.upper, lower)
    if interval.lower is not None:
        numbers["oob_ratio"] = batch.mean(outside.float())
    if normalize:
        factor = numbers["mean"] if level == "token" else batch.mean(weights, 1)[batch.live].mean()
        factor = factor if float(factor) > _TINY else 1.0
        numbers["batch_norm_factor"] = factor
        weights = weights / factor
    return weights, _plain(numbers)


def _weights_spread(batch: Literal, weights: Tensor, interval: Interval) -> dict[str, Tensor | float]:
    bounded = weights.clamp(0.0, interval.upper)
    mean = batch.mean(bounded)
    squares = batch.mean(bounded.square())
    deviation = (squares - mean.square()).clamp(min=0).sqrt() if float(batch.mask.sum()) > 1 else 0.0
    relative = float(batch.mean((bounded / (mean + _TINY)).square()))
    if relative == 0:
        raise TensorError(
            "rollout_is_eff_sample_size is undefined: all importance weights are 0; widen rollout_is_threshold, or use "
            "compat='strict', which says 0"
        )
    return {"std": deviation, "eff_sample_size": 1 / relative}


def _weights_of_rows(
    batch: Literal, raw: Tensor, weights: Tensor, upper: float, lower: float
) -> dict[str, Tensor | float]:
    rows, raw_rows = batch.mean(weights, 1), batch.mean(raw, 1)
    return {
        "seq_mean": rows.mean(),
        "seq_std": rows.std() if rows.shape[0] > 1 else 0.0,
        "seq_max": rows.max(),
        "seq_min": rows.min(),
        "seq_max_deviation": (rows - 1).abs().max(),
        "seq_fraction_high": (raw_rows > upper).float().mean(),
        "seq_fraction_low": (raw_rows < lower).float().mean(),
    }


def literal_rejections(batch: Literal, options: Sequence[Rejection]) -> tuple[Tensor, dict[str, float]]:
    """``[B, T]`` bool, tokens that all options keep, and the statistics without prefix."""
    valid, live = batch.mask.bool(), batch.live
    kept_by_all = valid.clone()
    numbers: dict[str, Tensor | float] = {}
    for option in options:
        statistic = _statistic(batch, option)
        inside = statistic <= option.upper
        if option.lower is not None:
            inside &= statistic >= option.lower
        kept_by_all &= inside
        numbers |= {
            f"{option.name}_{name}": value for name, value in _rejection(batch, option, statistic, inside).items()
        }
    rejected = (valid & ~kept_by_all).float()
    numbers["masked_fraction"] = batch.mean(rejected)
    numbers["seq_masked_fraction"] = rejected.any(1).float().mean()
    del live
    return kept_by_all, _plain(numbers)


def _statistic(batch: Literal, option: Rejection) -> Tensor:
    """``[B, T]``: of each token, or that of its row."""
    e = batch.d.clamp(-CLAMP, CLAMP)
    k = -e if option.estimator == "k1" else e.square() / 2 if option.estimator == "k2" else e.exp() - 1 - e
    if option.level == "token":
        return k
    if option.level == "max":
        row = k.masked_fill(~batch.mask.bool(), -torch.inf).amax(1)
    else:
        row = batch.sum(k, 1) if option.level == "sum" else batch.mean(k, 1)
    return row[:, None].expand_as(k)


def _rejection(batch: Literal, option: Rejection, statistic: Tensor, inside: Tensor) -> dict[str, Tensor | float]:
    live = batch.live
    rows = batch.mean(statistic, 1)[live] if option.by_token else statistic[live, 0]
    judged = batch.valid(statistic) if option.by_token else rows
    bounded = statistic.clamp(option.lower, option.upper)
    mean = batch.mean(bounded)
    variance = batch.mean(bounded.square()) - mean.square()
    rejected = torch.where(batch.mask.bool(), ~inside, False).float()
    numbers: dict[str, Tensor | float] = {
        "mean": batch.mean(statistic),
        "max": batch.valid(statistic).max(),
        "min": batch.valid(statistic).min(),
        "fraction_high": (judged > option.upper).float().mean(),
        "fraction_low": 0.0 if option.lower is None else (judged < option.lower).float().mean(),
        "std": variance.clamp(min=0).sqrt(),
        "seq_mean": rows.mean(),
        "seq_std": rows.std() if rows.shape[0] > 1 else 0.0,
        "seq_max": rows.max(),
        "seq_min": rows.min(),
        "seq_max_deviation": rows.abs().max(),
        "seq_fraction_high": (rows > option.upper).float().mean(),
        "masked_fraction": batch.mean(rejected),
        "seq_masked_fraction": rejected[live].any(1).float().mean(),
    }
    if option.lower is not None:
        numbers["seq_fraction_low"] = (rows < option.lower).float().mean()
    return numbers


def _plain(numbers: dict[str, Tensor | float]) -> dict[str, float]:
    """All of them as Python numbers, in one transfer."""
    tensors = [value.to(torch.float64) for value in numbers.values() if isinstance(value, Tensor)]
    host = iter(torch.stack(tensors).tolist())
    return {name: next(host) if isinstance(value, Tensor) else value for name, value in numbers.items()}
