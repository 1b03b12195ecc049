"""Rejection: tokens, or whole sequences, whose log-ratio statistic lies outside an interval are taken out of the mask.

Statistics per token, with e = log π_train / π_rollout within 20: k1 = -e, k2 = e²/2, k3 = exp(e) - 1 - e; per sequence
their sum, mean or maximum over valid tokens. Bounds are inclusive; a statistic that is NaN is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.block import CLAMP
from tocsin_detectors.rollout_corr.counts import Counts, ratio, spread
from tocsin_detectors.rollout_corr.log_ratio import RowTable
from tocsin_detectors.rollout_corr.thresholds import Rejection
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["accumulate_rejections", "finish_rejections", "row_verdicts"]

# Per option. Over tokens: the statistic (t1), bounded (b1) and squared (b2), rejected tokens (out). Over what it
# judges, tokens or rows: high, low. Over rows: the row's statistic (r1, r2), r_high, r_low, rows with a rejected token.
_SUMS = ("t1", "b1", "b2", "out", "high", "low", "r1", "r2", "r_high", "r_low", "r_out")
_MAXIMA = ("max", "r_max", "r_deviation")
_MINIMA = ("min", "r_min")


@dataclass(frozen=True, slots=True)
class _Columns:
    """One option's numbers per row, in the order of the names above."""

    sums: list[Tensor]
    maxima: list[Tensor]
    minima: list[Tensor]


def row_verdicts(table: RowTable, options: Sequence[Rejection]) -> Tensor:
    """``[R]`` bool: rows that all sequence-level options keep."""
    verdict = torch.ones_like(table.n, dtype=torch.bool)
    for option in options:
        if not option.by_token:
            verdict &= _within(_statistic(table, option), option)
    return verdict


def accumulate_rejections(table: RowTable, options: Sequence[Rejection], verdict: Tensor) -> Totals:
    """Totals of all options, over the rows of this process.

    Args:
        table: row statistics, made with the token-level ones of these options in its plan.
        options: what to judge by.
        verdict: ``row_verdicts`` of them.
    """
    columns = [_of_tokens(table, option) if option.by_token else _of_rows(table, option) for option in options]
    names = [option.name for option in options]
    kept = table["kept_all"] if any(option.by_token for option in options) else table.n
    out = table.n - torch.where(verdict, kept, 0.0)
    totals = Totals()
    sums = [column for option in columns for column in option.sums]
    totals.add_stacked("sum", [*_labels(names, _SUMS), "out", "r_out"], table.sums([*sums, out, out > 0]))
    maxima, minima = [c for o in columns for c in o.maxima], [c for o in columns for c in o.minima]
    totals.add_stacked("max", _labels(names, _MAXIMA), table.maxima(maxima))
    totals.add_stacked("min", _labels(names, _MINIMA), table.minima(minima))
    return totals


def _labels(options: Sequence[str], names: Sequence[str]) -> list[str]:
    return [f"{option}.{name}" for option in options for name in names]


def _within(statistic: Tensor, option: Rejection) -> Tensor:
    below = statistic <= option.upper
    return below if option.lower is None else below & (statistic >= option.lower)


def _above_below(statistic: Tensor, option: Rejection) -> tuple[Tensor, Tensor]:
    low = torch.zeros_like(statistic) if option.lower is None else statistic < option.lower
    return statistic > option.upper, low


def _statistic(table: RowTable, option: Rejection) -> Tensor:
    """``[R]``: what a sequence-level option compares."""
    if option.level == "max":
        hi, lo = table["hi"].clamp(-CLAMP, CLAMP), table["lo"].clamp(-CLAMP, CLAMP)
        return torch.maximum(_of_log_ratio(hi, option), _of_log_ratio(lo, option))  # both are convex, with minimum at 0
    total = -table["e"] if option.estimator == "k1" else table["k3"] if option.estimator == "k3" else table["e2"] / 2
    return total / table.n.clamp(min=1) if option.level == "mean" else total


def _of_log_ratio(e: Tensor, option: Rejection) -> Tensor:
    return e.square() / 2 if option.estimator == "k2" else e.expm1() - e


def _of_rows(table: RowTable, option: Rejection) -> _Columns:
    n, s = table.n, _statistic(table, option)
    bounded = s.clamp(option.lower, option.upper)
    high, low = _above_below(s, option)
    out = ~_within(s, option)
    return _Columns(
        [n * s, n * bounded, n * bounded.square(), n * out, high, low, s, s.square(), high, low, out],
        [s, s, s.abs()],
        [s, s],
    )


def _of_tokens(table: RowTable, option: Rejection) -> _Columns:
    name, n = option.name, table.n
    if option.estimator == "k1":
        total, most, least = -table["e"], -table["lo"].clamp(-CLAMP, CLAMP), -table["hi"].clamp(-CLAMP, CLAMP)
        token_low = table[f"{name}.low"]
    else:
        total, most, least = table[f"{name}.s"], table[f"{name}.s_hi"], table[f"{name}.s_lo"]
        token_low = torch.zeros_like(n)
    s = total / n.clamp(min=1)
    high, low = _above_below(s, option)
    out = n - table[f"{name}.kept"]
    sums = [total, table[f"{name}.b1"], table[f"{name}.b2"], out, table[f"{name}.high"], token_low]
    return _Columns([*sums, s, s.square(), high, low, out > 0], [most, s, s.abs()], [least, s])


def finish_rejections(totals: Mapping[str, float], counts: Counts, options: Sequence[Rejection]) -> dict[str, float]:
    """14 statistics per option (15 for k1), and two of all together.

    Returns:
        Metrics by name, without prefix.
    """
    metrics: dict[str, float] = {}
    for option in options:
        mine = {name: totals[f"{option.name}.{name}"] for name in (*_SUMS, *_MAXIMA, *_MINIMA)}
        metrics |= {f"{option.name}_{name}": value for name, value in _finish(mine, counts, option).items()}
    metrics["masked_fraction"] = ratio(totals["out"], counts.tokens)
    metrics["seq_masked_fraction"] = ratio(totals["r_out"], counts.rows)
    return metrics


def _finish(mine: Mapping[str, float], counts: Counts, option: Rejection) -> dict[str, float]:
    tokens, live = counts.tokens, counts.live
    judged = tokens if option.by_token else live
    metrics = {
        "mean": ratio(mine["t1"], tokens),
        "max": mine["max"],
        "min": mine["min"],
        "fraction_high": ratio(mine["high"], judged),
        "fraction_low": ratio(mine["low"], judged),
        "std": spread(mine["b1"], mine["b2"], tokens, sample=False),
        "seq_mean": ratio(mine["r1"], live),
        "seq_std": spread(mine["r1"], mine["r2"], live, sample=True),
        "seq_max": mine["r_max"],
        "seq_min": mine["r_min"],
        "seq_max_deviation": mine["r_deviation"],
        "seq_fraction_high": ratio(mine["r_high"], live),
    }
    if option.lower is not None:
        metrics["seq_fraction_low"] = ratio(mine["r_low"], live)
    metrics["masked_fraction"] = ratio(mine["out"], tokens)
    metrics["seq_masked_fraction"] = ratio(mine["r_out"], live)
    if not tokens:
        metrics |= dict.fromkeys(("max", "min", "seq_max", "seq_min", "seq_max_deviation"), math.nan)
    return metrics
