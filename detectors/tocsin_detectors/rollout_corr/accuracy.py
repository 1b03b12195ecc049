"""How often the answers are right: over all, by domain, by prompt. For rewards that say right or wrong (0 or 1).

    right           the row's score is at least ``success_threshold``
    by domain       share of right rows; also the mean score, which for 0-1 scores is the same number
    by prompt       share of right rows of each prompt; its mean and standard deviation over prompts, and the shares of
                    prompts of which none, or every one, is right: those teach a group-normalised policy nothing
                    (the finding "prompt_accuracy" has the share of each prompt)

Aborted rows (without valid tokens) count nowhere, nor does a prompt all of whose rows are aborted. Source: notes on RL
metrics, true rewards/score (report by domain; accuracy of each prompt for 0-1 rewards).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.errors import OptionError, TensorError
from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finding, Finished
from tocsin_detectors.rollout_corr.groups import Groups
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.sequences import per_row, row_values, take_rows
from tocsin_detectors.rollout_corr.tally import variance
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["FAMILY"]

MOST_LISTED = 4096  # prompts in the finding; the metrics count all


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    scores = row_values(tensors, "scores", rows)
    if scores is None:
        scores = row_values(tensors, "rewards", rows)
    assert scores is not None  # noqa: S101 - the family's needs
    present = rows.lengths > 0
    right = present & (scores >= options.success_threshold)
    totals = Totals()
    totals.add("sum", {"rows": present.sum(), "right": right.sum()})
    if "domain" in tensors:
        _add_domains(totals, tensors["domain"], present, right, scores, options)
    prompts = tensors.get("prompt", tensors.get("group"))
    table = {} if prompts is None else {"prompt": prompts, "present": present, "right": right}
    return Accumulated(totals, outputs=per_row(table))


def _add_domains(
    totals: Totals, domain: Tensor, present: Tensor, right: Tensor, scores: Tensor, options: Options
) -> None:
    """Sums by domain, of all domains that the options name, so that every process has the same totals."""
    count = len(options.domains)
    if not count:
        raise OptionError("domain is given, domains are not; valid: the names of the domains that it counts from 0")
    if domain.dtype.is_floating_point or (domain.numel() and not 0 <= int(domain.min()) <= int(domain.max()) < count):
        raise TensorError(f"domain has values that aren't among 0 to {count - 1}; send each row's place in domains")
    by_row = torch.stack([present, right, torch.where(present, scores, 0.0)], dim=1).to(torch.float64)
    sums = by_row.new_zeros(count, 3).index_add_(0, domain.to(torch.int64), by_row)
    for part, column in zip(("rows", "right", "score"), sums.unbind(1), strict=True):
        totals.add_stacked("sum", [f"{part}/{name}" for name in options.domains], column)


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    metrics = {"critic/accuracy/mean": totals["right"] / totals["rows"]} if totals["rows"] else {}
    for name in options.domains:
        count = totals.get(f"rows/{name}", 0.0)
        if count:
            metrics[f"critic/accuracy/{_metric_name(name)}/mean"] = totals[f"right/{name}"] / count
            metrics[f"critic/score/{_metric_name(name)}/mean"] = totals[f"score/{name}"] / count
    table = take_rows(outputs)
    if not table or not table["prompt"].shape[0]:
        return Finished(metrics)
    by_prompt = _of_prompts(table)
    return Finished(metrics | by_prompt.metrics, by_prompt.findings)


def _metric_name(domain: str) -> str:
    """A domain as one part of a metric's name: data sets are called like repositories, "openai/gsm8k"."""
    return domain.replace("/", "-")


def _of_prompts(table: Mapping[str, Tensor]) -> Finished:
    groups = Groups(table["prompt"])
    counts, right = groups.total(table["present"]), groups.total(table["right"])
    known = counts > 0
    accuracy = torch.where(known, right / counts, 0.0)
    totals = Totals()
    sums = {"prompts": known, "sum": accuracy, "squares": accuracy.square()}
    ends = {"failed": known & (right == 0), "solved": known & (right == counts)}
    totals.add("sum", {name: values.sum() for name, values in (sums | ends).items()})
    numbers = totals.to_host()
    prompts = numbers["prompts"]
    if not prompts:
        return Finished({})
    metrics = {
        "critic/accuracy/prompt_mean": numbers["sum"] / prompts,
        "critic/accuracy/prompt_std": math.sqrt(variance(numbers["sum"], numbers["squares"], prompts)),
        "critic/rewards/all_failed_ratio": numbers["failed"] / prompts,
        "critic/rewards/all_solved_ratio": numbers["solved"] / prompts,
    }
    listed = known.nonzero().flatten()[:MOST_LISTED]
    data = {"prompts": groups.id_of()[listed].tolist(), "accuracy": accuracy[listed].tolist()}
    failed, solved = numbers["failed"], numbers["solved"]
    text = f"{prompts:.0f} prompts: {failed:.0f} without a right answer, {solved:.0f} without a wrong one"
    return Finished(metrics, [Finding("prompt_accuracy", text, data)])


FAMILY = Family(
    names=("accuracy",),
    needs=(("scores",), ("token_level_scores",), ("rewards",), ("token_level_rewards",)),
    accumulate=_accumulate,
    finish=_finish,
)
