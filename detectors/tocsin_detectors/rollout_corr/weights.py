"""Importance weights π_train / π_rollout per token or per sequence: truncated (TIS), or 0 outside of bounds (IcePop).

Weights are handled less 1 throughout (a = weight - 1): sums of squares then lose nothing near 1, where weights are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.block import CLAMP
from tocsin_detectors.rollout_corr.counts import Counts, ratio, spread
from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.log_ratio import RowTable
from tocsin_detectors.rollout_corr.thresholds import Interval
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["accumulate_weights", "batch_norm_factor", "finish_weights", "sequence_weights"]

# Sums over tokens of applied weights less 1 (t1) and their squares (t2), of tokens outside of the bounds (high, low)
# and inside; over rows of the row's mean applied weight less 1 (r1, r2), and of rows whose mean raw weight is outside.
_SUMS = ("t1", "t2", "high", "low", "inside", "r1", "r2", "r_high", "r_low")
_LARGEST_EXPONENT = 88.7  # of float32
_NO_WEIGHT = 1e-13  # mean square of weights that are all 0 as far as float32 can tell them from it
_TINY = 1e-8  # of verl: means no larger divide nothing


def accumulate_weights(table: RowTable, interval: Interval, level: str) -> Totals:
    """Totals of the weights' statistics, over the rows of this process.

    Args:
        table: row statistics; for level "token" made with ``interval`` in its plan.
        interval: the bounds.
        level: "token" or "sequence".
    """
    return _of_tokens(table, interval) if level == "token" else _of_sequences(table, interval)


def sequence_weights(table: RowTable, interval: Interval) -> Tensor:
    """``[R]`` float64: the weight of each row of the table, applied to all of its tokens."""
    return _apply(table["d"].clamp(-CLAMP, CLAMP).expm1(), interval) + 1


def _apply(raw: Tensor, interval: Interval) -> Tensor:
    """Applied weights less 1 of raw ones less 1."""
    if interval.lower is None:
        return raw.clamp(max=interval.upper - 1)
    return torch.where((raw >= interval.lower - 1) & (raw <= interval.upper - 1), raw, -1.0)


def _lower(interval: Interval) -> float:
    """The bound under which a weight counts as low."""
    return 1 / interval.upper if interval.lower is None else interval.lower


def _of_tokens(table: RowTable, interval: Interval) -> Totals:
    n, upper = table.n, interval.upper - 1
    mean, raw = table.mean("a1"), table.mean("c1")
    inside = table["inside"] if interval.lower is not None else n
    if interval.lower is None:
        most = table["hi"].clamp(-CLAMP, CLAMP).expm1().clamp(max=upper)
        least = table["lo"].clamp(-CLAMP, CLAMP).expm1().clamp(max=upper)
    else:
        most, least = table["a_hi"], table["a_lo"]
    sums = [table["a1"], table["a2"], table["high"], table["low"], inside]
    sums += [mean, mean.square(), raw > upper, raw < _lower(interval) - 1]
    return _totals(table, sums, most, least, mean)


def _of_sequences(table: RowTable, interval: Interval) -> Totals:
    n, total = table.n, table["d"]
    raw = total.clamp(-CLAMP, CLAMP).expm1()
    applied = _apply(raw, interval)
    upper, lower = interval.upper, _lower(interval)
    inside = n if interval.lower is None else n * (applied > -1)
    sums = [n * applied, n * applied.square(), total > math.log(upper), total < math.log(lower), inside]
    sums += [applied, applied.square(), raw > upper - 1, raw < lower - 1]
    return _totals(table, sums, total, total, applied)


def _totals(table: RowTable, sums: list[Tensor], most: Tensor, least: Tensor, mean: Tensor) -> Totals:
    totals = Totals()
    totals.add_stacked("sum", _SUMS, table.sums(sums))
    totals.add_stacked("max", ["max", "r_max", "r_deviation"], table.maxima([most, mean, mean.abs()]))
    totals.add_stacked("min", ["min", "r_min"], table.minima([least, mean]))
    return totals


def batch_norm_factor(totals: Mapping[str, float], counts: Counts, level: str) -> float:
    """What returned weights are divided by: their mean over tokens or, for sequences, over rows with tokens; 1 if
    that is 0 or no number.
    """
    mean = ratio(totals["t1"], counts.tokens) if level == "token" else ratio(totals["r1"], counts.live)
    return mean + 1 if mean + 1 > _TINY else 1.0


def finish_weights(
    totals: Mapping[str, float], counts: Counts, interval: Interval, level: str, *, strict: bool, normalize: bool
) -> dict[str, float]:
    """The 14 to 16 statistics, all of them of weights before normalisation.

    Returns:
        Metrics by name, without prefix.

    Raises:
        TensorError: not ``strict``, and all weights are 0.
    """
    mean = ratio(totals["t1"], counts.tokens) + 1
    metrics = {"mean": mean}
    if level == "token":
        metrics |= {
            "max": totals["max"] + 1,
            "min": totals["min"] + 1,
            "ratio_fraction_high": ratio(totals["high"], counts.tokens),
            "ratio_fraction_low": ratio(totals["low"], counts.tokens),
        }
    else:
        metrics |= _of_ratios(totals, counts, interval)
    metrics["std"] = spread(totals["t1"], totals["t2"], counts.tokens, sample=False)
    metrics["eff_sample_size"] = _effective_share(totals, counts, mean, strict=strict)
    metrics |= _of_rows(totals, counts, interval)
    if interval.lower is not None:
        metrics["oob_ratio"] = ratio(counts.tokens - totals["inside"], counts.tokens)
    if normalize:
        metrics["batch_norm_factor"] = batch_norm_factor(totals, counts, level)
    if not counts.tokens:
        metrics |= {"max": math.nan, "min": math.nan}
    return metrics


def _of_ratios(totals: Mapping[str, float], counts: Counts, interval: Interval) -> dict[str, float]:
    """Sequence level: extremes and fractions over rows of the ratio itself; a row without tokens has ratio 1."""
    high, low, most, least = totals["high"], totals["low"], totals["max"], totals["min"]
    if counts.empty:
        high += counts.empty * (math.log(interval.upper) < 0)
        low += counts.empty * (math.log(_lower(interval)) > 0)
        most, least = (most if not most < 0 else 0.0), (least if not least > 0 else 0.0)
    return {
        "max": math.exp(min(most, CLAMP)) if not math.isnan(most) else math.nan,
        "min": math.exp(least) if not least > _LARGEST_EXPONENT else math.inf,
        "ratio_fraction_high": ratio(high, counts.rows),
        "ratio_fraction_low": ratio(low, counts.rows),
    }


def _effective_share(totals: Mapping[str, float], counts: Counts, mean: float, *, strict: bool) -> float:
    """Effective sample size as a share of the tokens, in (0, 1]; 0 if all weights are 0."""
    if counts.tokens and totals["inside"] == 0:
        if strict:
            return 0.0
        raise TensorError(
            "rollout_is_eff_sample_size is undefined: all importance weights are 0, as no ratio lies within the "
            "bounds; widen rollout_is_threshold, or use compat='strict', which says 0"
        )
    squares = ratio(totals["t2"] + 2 * totals["t1"], counts.tokens) + 1
    shifted = mean if strict else mean + _TINY
    return shifted * shifted / squares if not squares <= _NO_WEIGHT else 1.0


def _of_rows(totals: Mapping[str, float], counts: Counts, interval: Interval) -> dict[str, float]:
    """Mean weights of rows; a row without tokens has weight 0."""
    empty = counts.empty
    most, least, deviation = totals["r_max"], totals["r_min"], totals["r_deviation"]
    if empty:
        most, least = (most if not most < -1 else -1.0), (least if not least > -1 else -1.0)
        deviation = deviation if not deviation < 1 else 1.0
    low, high = totals["r_low"], totals["r_high"]
    low += empty * (_lower(interval) > 0)
    total = totals["r1"] - empty
    metrics = {
        "seq_mean": ratio(total, counts.rows) + 1,
        "seq_std": spread(total, totals["r2"] + empty, counts.rows, sample=True),
        "seq_max": most + 1,
        "seq_min": least + 1,
        "seq_max_deviation": deviation,
        "seq_fraction_high": ratio(high, counts.rows),
        "seq_fraction_low": ratio(low, counts.rows),
    }
    if not counts.rows:
        metrics |= dict.fromkeys(("seq_max", "seq_min", "seq_max_deviation"), math.nan)
    return metrics
