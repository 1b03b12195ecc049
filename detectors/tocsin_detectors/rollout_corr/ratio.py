"""The importance ratio inside PPO: the policy during the update against the one at its beginning.

    d = logp - logp_old, within 20     r = exp(d)     q = exp(logp) - exp(logp_old)

Over the tokens of all rows, and over those of each gradient step, where ``gradient_step`` tells which one consumed the
row. At the first the policies are equal, so r is 1; at the second the variance of r, or of q, says how unevenly one
update moves the policy. Source: notes on RL metrics, appendix on the growing difference between current and old policy;
ratio and its clamp as in verl ``core_algos.compute_policy_loss_vanilla``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finding, Finished
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Block, Rows
from tocsin_detectors.rollout_corr.tally import Tally, variance

__all__ = ["FAMILY"]

LARGEST_LOG_RATIO = 20.0
# Gradient steps that are told apart; later ones count together. More would say little: what matters happens at the
# second.
MOST_STEPS = 16
_CLIPPED = ("clipped_low", "clipped_high")
_BY_ROW = ("tokens", "excess", "excess_squares", "deviation", "change", "change_squares")


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    advantages = tensors.get("advantages")
    clipped = () if advantages is None else _CLIPPED
    tally = Tally(rows.device, (*clipped, "log_ratio", "log_ratio_squares"), ("log_ratio",))
    steps = _slots(tensors.get("gradient_step"), rows)
    sums = torch.zeros(MOST_STEPS + 1, len(_BY_ROW), dtype=torch.float64, device=rows.device)
    given = [tensors["log_probs"], tensors["old_log_probs"]]
    for block in rows.blocks(*given, *([] if advantages is None else [advantages])):
        log_prob, old, *more = block.values
        log_ratio = (log_prob - old).clamp_(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        sums.index_add_(0, steps[block.rows], _of_rows(block, log_ratio, log_prob, old))
        held = _held_back(log_ratio, more[0], options) if more else ()
        tally.add(*held, log_ratio, log_ratio.square())
        tally.see(block, log_ratio)
    totals = tally.totals()
    used = sums if "gradient_step" in tensors else sums[:1]
    totals.add_stacked("sum", [f"{name}/{slot}" for slot in range(len(used)) for name in _BY_ROW], used.flatten())
    return Accumulated(totals)


def _slots(gradient_step: Tensor | None, rows: Rows) -> Tensor:
    """``[B]``: which line of the sums each row belongs to."""
    if gradient_step is None:
        return torch.zeros(rows.count, dtype=torch.int64, device=rows.device)
    if gradient_step.dtype.is_floating_point or (rows.count and bool((gradient_step < 0).any())):
        raise TensorError("gradient_step has fractions or negative values; send whole numbers, 0 for the first step")
    return gradient_step.to(torch.int64).clamp(max=MOST_STEPS)


def _of_rows(block: Block, log_ratio: Tensor, log_prob: Tensor, old: Tensor) -> Tensor:
    """``[b, len(_BY_ROW)]`` float64. Where no token is valid both log-probs are 0, and so is every summand.

    Summed is r - 1, not r: that keeps the digits of a variance near 0.
    """
    excess = log_ratio.expm1()
    change = log_prob.exp() - old.exp()
    summands = (excess, excess.square(), excess.abs(), change, change.square())
    return torch.stack([block.lengths, *(summand.sum(1) for summand in summands)], dim=1).to(torch.float64)


def _held_back(log_ratio: Tensor, advantages: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """Tokens whose ratio has left the clip range on the side to which their advantage pushes it."""
    low = log_ratio < math.log1p(-options.clip_low)
    high = log_ratio > math.log1p(options.clip_high)
    return low & (advantages < 0), high & (advantages > 0)


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    del outputs, options  # it has none; they have done their part
    slots = [
        {name: totals[f"{name}/{slot}"] for name in _BY_ROW}
        for slot in range(MOST_STEPS + 1)
        if f"tokens/{slot}" in totals
    ]
    every = {name: sum(slot[name] for slot in slots) for name in _BY_ROW}
    tokens = every["tokens"]
    if not tokens:
        return Finished({})
    metrics = {f"actor/{name}": value for name, value in _moments(every).items()}
    metrics |= {
        "actor/ratio_max": math.exp(totals["log_ratio/max"]),
        "actor/ratio_min": math.exp(totals["log_ratio/min"]),
        "actor/ppo_kl": -totals["log_ratio"] / tokens,
        "actor/ppo_kl_k2": 0.5 * totals["log_ratio_squares"] / tokens,
    }
    if "clipped_low" in totals:
        metrics["actor/clipfrac_low"] = totals["clipped_low"] / tokens
        metrics["actor/clipfrac_high"] = totals["clipped_high"] / tokens
    if len(slots) == 1:
        return Finished(metrics)
    return _with_steps(metrics, slots[:MOST_STEPS])


def _with_steps(metrics: dict[str, float], slots: list[dict[str, float]]) -> Finished:
    """With what tells gradient steps apart. Trainers count them from 0 or from 1."""
    first = 0 if slots[0]["tokens"] else 1
    if not slots[first]["tokens"]:
        text = "gradient_step has neither 0 nor 1: it has to count the gradient steps of this rollout, beginning there"
        return Finished(metrics, [Finding("gradient_steps", text)])
    for number, slot in enumerate(slots[first:], start=1):
        if slot["tokens"]:
            metrics |= {f"actor/{name}/{number}": value for name, value in _moments(slot).items()}
    metrics["actor/first_ratio_deviation"] = slots[first]["deviation"] / slots[first]["tokens"]
    if "actor/ratio_var/2" in metrics:
        metrics["actor/second_ratio_var"] = metrics["actor/ratio_var/2"]
    return Finished(metrics)


def _moments(sums: Mapping[str, float]) -> dict[str, float]:
    tokens = sums["tokens"]
    return {
        "ratio_mean": 1 + sums["excess"] / tokens,
        "ratio_var": variance(sums["excess"], sums["excess_squares"], tokens),
        "probs_diff_var": variance(sums["change"], sums["change_squares"], tokens),
    }


FAMILY = Family(names=("ratio",), needs=(("log_probs", "old_log_probs"),), accumulate=_accumulate, finish=_finish)
