"""What one block says of its rows: the inner loop of the core, one exponential per token.

Summed are expm1(d) and expm1(d) - d, not exp(d): in float32 exp(d) - 1 - d is mostly rounding error once |d| is below
1e-3, which is where healthy engines are. Padding is 0, so that it adds f(0) to a sum of f: known, and taken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.thresholds import Interval, Rejection

__all__ = ["CLAMP", "FALLBACKS", "Plan", "Seen", "see_block"]

CLAMP = 20.0  # log-ratios are taken within it where they are exponentiated, as in verl
_LEAST, _MOST = math.expm1(-CLAMP), math.expm1(CLAMP)

# Columns that a block computes only if its log-ratios are beyond the clamp or not finite, and what they are otherwise.
FALLBACKS: Mapping[str, Callable[[Mapping[str, Tensor]], Tensor]] = {
    "rollout": lambda columns: columns["old"].to(torch.float64) - columns["d"],
    "e": lambda columns: columns["d"],
    "k3": lambda columns: columns["k3_free"],
    "c1": lambda columns: columns["k3_free"].to(torch.float64) + columns["d"],
    "saturated": lambda columns: torch.zeros_like(columns["d"]),
    "nan": lambda columns: torch.zeros_like(columns["d"]),
    "bad_old": lambda columns: torch.zeros_like(columns["d"]),
    "bad_rollout": lambda columns: torch.zeros_like(columns["d"]),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the pass has to see beyond the sums of the log-ratio.

    Attributes:
        weights: bounds of token-level importance weights; None: there are none.
        rejections: rejection options whose statistic is one of tokens.
        squares: whether a rejection option needs a row's sum of squared log-ratios.
        return_weights: give token-level weights.
        return_mask: give which tokens the token-level options keep.
    """

    weights: Interval | None = None
    rejections: tuple[Rejection, ...] = ()
    squares: bool = False
    return_weights: bool = False
    return_mask: bool = False


@dataclass(slots=True)
class Seen:
    """What came of a block.

    Attributes:
        columns: ``[b]`` each, by name:
            n, old, d (sums of the log-probabilities of training and of the log-ratio), hi, lo (its extremes),
            k3_free (sum of expm1(d) - d), c2 (sum of expm1(e)², e = d within the clamp), e2 (of e²), and FALLBACKS:
            rollout, e (sums), k3 (of expm1(e) - e), c1 (of expm1(e)), saturated (tokens beyond the clamp), nan (tokens
            whose log-ratio is NaN), bad_old, bad_rollout (tokens that are not finite); then those of the parts below.
        weights: ``[b, L]``, 0 in padding.
        kept: ``[b, L]`` bool, false in padding.
    """

    columns: dict[str, Tensor] = field(default_factory=dict)
    weights: Tensor | None = None
    kept: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where a block is padding."""

    lengths: Tensor
    mask: Tensor | None
    full: bool

    def valid(self, like: Tensor) -> Tensor:
        if self.mask is not None:
            return self.mask
        return torch.arange(like.shape[1], device=like.device) < self.lengths[:, None]

    def less_padding(self, total: Tensor, like: Tensor, at_zero: float) -> Tensor:
        """A row sum of f(values), ``[b]``, without the ``at_zero`` = f(0) that each slot of padding has added."""
        if self.full or at_zero == 0:
            return total
        return total.to(torch.float64) - at_zero * (like.shape[1] - self.lengths)

    def moments(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over valid tokens of the values and of their squares, by way of differences from a row's first.

        So equal values have no variance. Padding is masked, not subtracted afterwards: the rounding of much padding
        would outweigh what differs in a few tokens.
        """
        first = values[:, :1] if self.mask is None else values.gather(1, self.mask.byte().argmax(1, keepdim=True))
        off = values - first
        if not self.full:
            off = torch.where(self.valid(values), off, 0.0)
        total, squares = off.sum(1).to(torch.float64), _squares(off)
        first = first[:, 0].to(torch.float64)
        return total + self.lengths * first, squares + 2 * first * total + self.lengths * first.square()

    def extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Maximum and minimum of each row's valid tokens; NaN if one of them is."""
        if self.full:
            return values.amax(1), values.amin(1)
        valid = self.valid(values)
        return torch.where(valid, values, -torch.inf).amax(1), torch.where(valid, values, torch.inf).amin(1)


def see_block(
    old: Tensor, rollout: Tensor, lengths: Tensor, mask: Tensor | None, *, full: bool, plan: Plan, look: bool
) -> Seen:
    """Statistics, and if asked for weights and verdicts, of whole rows.

    Args:
        old: ``[b, L]`` log-probabilities of the training engine, 0 in padding.
        rollout: the same of the inference engine.
        lengths: ``[b]`` valid tokens per row.
        mask: ``[b, L]`` bool; None: the first ``lengths`` tokens of each row are the valid ones.
        full: there is no padding.
        plan: what is wanted.
        look: look at the extremes first, and leave out what they show to be needless. That changes no number, but it
            depends on the data, so it is for a CPU only.
    """
    shape = _Shape(lengths, mask, full)
    d = old - rollout
    hi, lo = d.amax(1), d.amin(1)
    wide, one_sided = _look(hi, lo) if look else (True, True)
    if one_sided and not full:
        hi, lo = shape.extremes(d)
    k = torch.expm1(d)
    k3 = k - d
    seen = Seen({"n": lengths, "old": old.sum(1), "d": d.sum(1), "hi": hi, "lo": lo, "k3_free": k3.sum(1)})
    columns = seen.columns
    e = d
    if wide:
        e, k = d.clamp(-CLAMP, CLAMP), k.clamp(_LEAST, _MOST)
        k3 = k - e
        columns.update(rollout=rollout.sum(1), e=e.sum(1), k3=k3.sum(1), c1=k.sum(1))
        columns.update(saturated=_count(torch.gt, d.abs(), CLAMP), nan=d.isnan().sum(1))
        columns.update(bad_old=old.isfinite().logical_not().sum(1), bad_rollout=rollout.isfinite().logical_not().sum(1))
    columns["c2"] = _squares(k)
    if plan.squares:
        columns["e2"] = _squares(e)
    if plan.weights is not None:
        _see_weights(seen, k, shape, plan.weights, wanted=plan.return_weights)
    if plan.rejections:
        _see_rejections(seen, e, k3, shape, plan)
    return seen


def _look(hi: Tensor, lo: Tensor) -> tuple[bool, bool]:
    """Whether some log-ratio is beyond the clamp or NaN; whether a row's may be of one sign (then 0s of padding, which
    were among the values so far, could pass for its extreme).
    """
    least_hi, most_hi = torch.aminmax(hi)
    least_lo, most_lo = torch.aminmax(lo)
    wide = not (float(most_hi) <= CLAMP and float(least_lo) >= -CLAMP)
    return wide, not (float(least_hi) > 0 > float(most_lo))


def _see_weights(seen: Seen, k: Tensor, shape: _Shape, interval: Interval, *, wanted: bool) -> None:
    """Importance weights less 1. Columns: a1, a2 (sums of them and of their squares, as applied), high, low (tokens
    beyond the bounds before), a_hi, a_lo (extremes as applied, if weights outside become 0), inside.
    """
    upper = interval.upper - 1
    lower = (1 / interval.upper if interval.lower is None else interval.lower) - 1
    columns = seen.columns
    columns["high"] = shape.less_padding(_count(torch.gt, k, upper), k, float(upper < 0))
    columns["low"] = shape.less_padding(_count(torch.lt, k, lower), k, float(lower > 0))
    if interval.lower is None:
        applied = k.clamp(max=upper)
    else:
        inside = _indicator(torch.eq, k.clamp(lower, upper), k)
        columns["inside"] = shape.less_padding(inside.sum(1), k, float(lower <= 0 <= upper))
        applied = torch.where(inside > 0, k, -1.0)
        columns["a_hi"], columns["a_lo"] = shape.extremes(applied)
    columns["a1"], columns["a2"] = shape.moments(applied)
    if wanted:
        weights = applied.add_(1.0)
        seen.weights = weights if shape.full else torch.where(shape.valid(weights), weights, 0.0)


def _see_rejections(seen: Seen, e: Tensor, k3: Tensor, shape: _Shape, plan: Plan) -> None:
    """Token-level options. Columns per option (its name, a dot): b1, b2 (sums of the statistic within the bounds and of
    its square), high, low, kept (tokens), s (its sum), s_hi, s_lo (extremes); and kept_all (tokens that all keep).
    """
    columns = seen.columns
    together: Tensor | None = None
    for option in plan.rejections:
        name = option.name
        stat = -e if option.estimator == "k1" else k3 if option.estimator == "k3" else e.square().mul_(0.5)
        lower = -math.inf if option.lower is None else option.lower
        bounded = stat.clamp(option.lower, option.upper)
        kept = _indicator(torch.eq, bounded, stat)
        columns[f"{name}.b1"], columns[f"{name}.b2"] = shape.moments(bounded)
        columns[f"{name}.kept"] = shape.less_padding(kept.sum(1), stat, float(lower <= 0 <= option.upper))
        columns[f"{name}.high"] = shape.less_padding(
            _count(torch.gt, stat, option.upper), stat, float(option.upper < 0)
        )
        if option.lower is not None:
            columns[f"{name}.low"] = shape.less_padding(_count(torch.lt, stat, lower), stat, float(lower > 0))
        if option.estimator != "k1":
            columns[f"{name}.s"] = stat.sum(1)
            columns[f"{name}.s_hi"], columns[f"{name}.s_lo"] = shape.extremes(stat)
        together = kept if together is None else together.mul_(kept)
    if together is None:
        return
    at_zero = float(all((option.lower or 0.0) <= 0 <= option.upper for option in plan.rejections))
    columns["kept_all"] = shape.less_padding(together.sum(1), e, at_zero)
    if plan.return_mask:
        verdict = together > 0
        seen.kept = verdict if shape.full else verdict.logical_and_(shape.valid(verdict))


def _squares(values: Tensor) -> Tensor:
    """``[b]``: sums of squares."""
    norm: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norm.to(torch.float64).square()


def _count(compare: Callable[..., Tensor], values: Tensor, bound: float) -> Tensor:
    """``[b]``: how many values of a row compare so. NaN never does."""
    return _indicator(compare, values, bound).sum(1)


def _indicator(compare: Callable[..., Tensor], left: Tensor, right: Tensor | float) -> Tensor:
    """1 where the comparison holds, else 0, as floats: three times as fast as booleans and their sum on a CPU."""
    if left.device.type == "cpu" and not torch.compiler.is_compiling():
        result: Tensor = compare(left, right, out=torch.empty_like(left))
        return result
    return compare(left, right).to(left.dtype)
