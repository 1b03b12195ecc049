"""What a batch is made of: scores, rewards, advantages, returns, values, lengths. The numbers of verl's batch metrics.

    aborted                      a row without valid tokens
    score, rewards               one number per row, over rows that aren't aborted
    advantages, returns, values  over valid tokens
    vf_explained_var             1 - var(returns - values) / (var(returns) + 1e-5), sample variances
    clip_ratio                   share of rows at the length limit

With "verl" a statistic of nothing is NaN, as there; with "strict" it is left out. Source: verl
``metric_utils.compute_data_metrics``; notes on RL metrics, response length (truncation at 8K, 16K and 32K).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finished
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.sequences import row_values
from tocsin_detectors.rollout_corr.tally import Tally, variance
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["FAMILY"]

_OF_ROWS = {"critic/score": "scores", "critic/rewards": "rewards"}
_OF_TOKENS = ("advantages", "returns", "values")
_WITH_STD = ("critic/rewards", "critic/advantages")
_LENGTH, _PRESENT, _PROMPT = "response_length", "response_length_non_aborted", "prompt_length"
_GAP = "returns - values"
_VARIANCE_FLOOR = 1e-5  # verl's, under the variance of the returns


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    lengths = rows.lengths
    present, every = lengths > 0, lengths >= 0
    limit = options.response_limit or (None if rows.ragged_layout else rows.width)
    totals = Totals()
    for name, chosen in ((_LENGTH, every), (_PRESENT, present)):
        _add_rows(totals, name, lengths, chosen)
        if limit is not None:
            totals.add("sum", {f"{name}/clipped": (chosen & (lengths >= limit)).sum()})
    totals.add("sum", {f"{_LENGTH}/{at}": (lengths >= at).sum() for at in options.limits})
    if "prompt_lengths" in tensors:
        prompts = tensors["prompt_lengths"]
        _add_rows(totals, _PROMPT, prompts, every)
        if options.prompt_limit is not None:
            totals.add("sum", {f"{_PROMPT}/clipped": (prompts >= options.prompt_limit).sum()})
    for name, source in _OF_ROWS.items():
        values = row_values(tensors, source, rows)
        if values is not None:
            _add_rows(totals, name, values, present)
    totals.merge(_of_tokens(tensors, rows))
    return Accumulated(totals)


def _add_rows(totals: Totals, name: str, values: Tensor, chosen: Tensor) -> None:
    """Moments and extremes of ``values``, ``[B]``, over the chosen rows."""
    values = values.to(torch.float64)
    kept = torch.where(chosen, values, 0.0)
    sums = {"count": chosen.sum(), "sum": kept.sum(), "squares": kept.square().sum()}
    totals.add("sum", {f"{name}/{part}": value for part, value in sums.items()})
    infinity = values.new_full((1,), torch.inf)  # a process may have no row at all
    totals.add("max", {f"{name}/max": torch.cat([torch.where(chosen, values, -torch.inf), -infinity]).amax()})
    totals.add("min", {f"{name}/min": torch.cat([torch.where(chosen, values, torch.inf), infinity]).amin()})


def _of_tokens(tensors: Mapping[str, Tensor], rows: Rows) -> Totals:
    given = [name for name in _OF_TOKENS if name in tensors]
    if not given:
        return Totals()
    names = [f"critic/{name}" for name in given]
    critic = {"returns", "values"}.issubset(given)
    summed = [*names, _GAP] if critic else names
    tally = Tally(rows.device, [f"{name}/{part}" for name in summed for part in ("count", "sum", "squares")], names)
    for block in rows.blocks(*(tensors[name] for name in given)):
        # Squared in float64: in float32 values far from 0 leave nothing of a small variance.
        values = [value.to(torch.float64) for value in block.values]
        if critic:
            values.append(values[given.index("returns")] - values[given.index("values")])
        tally.add(*(part for value in values for part in (block.lengths, value, value.square())))
        tally.see(block, *block.values)
    return tally.totals()


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    del outputs  # it has none
    told: dict[str, float | None] = {}
    for name in _described(totals):
        told |= _statistics(totals, name)
    rows, present = totals[f"{_LENGTH}/count"], totals[f"{_PRESENT}/count"]
    for name in (_LENGTH, _PRESENT, _PROMPT):
        if f"{name}/clipped" in totals:
            told[f"{name}/clip_ratio"] = _ratio(totals[f"{name}/clipped"], totals[f"{name}/count"])
    told |= {f"{_LENGTH}/clip_ratio/{at}": _ratio(totals[f"{_LENGTH}/{at}"], rows) for at in options.limits}
    told["response/aborted_ratio"] = _ratio(rows - present, rows)
    if f"{_GAP}/count" in totals:
        told["critic/vf_explained_var"] = _explained(totals)
    return Finished(_without_nothing(told, options))


def _described(totals: Mapping[str, float]) -> list[str]:
    names = (_LENGTH, _PRESENT, _PROMPT, *_OF_ROWS, *(f"critic/{name}" for name in _OF_TOKENS))
    return [name for name in names if f"{name}/count" in totals]


def _statistics(totals: Mapping[str, float], name: str) -> dict[str, float | None]:
    """Mean, extremes and, where one is wanted and exists, std under the metrics' names; None where there is nothing."""
    count = totals[f"{name}/count"]
    told: dict[str, float | None] = {f"{name}/mean": _ratio(totals[f"{name}/sum"], count)}
    told |= {f"{name}/{end}": totals[f"{name}/{end}"] if count else None for end in ("max", "min")}
    if name in _WITH_STD and (spread := _variance(totals, name)) is not None:
        told[f"{name}/std"] = math.sqrt(spread)  # verl has none, so there is no NaN of its to repeat
    return told


def _explained(totals: Mapping[str, float]) -> float | None:
    left, spread = _variance(totals, _GAP), _variance(totals, "critic/returns")
    return None if left is None or spread is None else 1 - left / (spread + _VARIANCE_FLOOR)


def _variance(totals: Mapping[str, float], name: str) -> float | None:
    count = totals[f"{name}/count"]
    return variance(totals[f"{name}/sum"], totals[f"{name}/squares"], count, sample=True) if count > 1 else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _without_nothing(told: Mapping[str, float | None], options: Options) -> dict[str, float]:
    """A statistic of nothing is NaN in verl; strictly there is none."""
    if options.strict:
        return {name: value for name, value in told.items() if value is not None}
    return {name: math.nan if value is None else value for name, value in told.items()}


FAMILY = Family(names=("data",), needs=((),), accumulate=_accumulate, finish=_finish)
