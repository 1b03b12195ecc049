"""Advantages that are normalised within groups: what has to hold, and the groups in which it doesn't.

A group is the rollouts of one prompt, G of them with rewards r_i and advantages A_i = (r_i - mean) / (std + floor).

    mean        The A_i add up to 0, so their mean is 0: in each group, and over all responses (not over all tokens).
    bound       The deviation of one of G values is greatest, for a given spread, where the others are all equal. Then
                |r_i - mean| / std is (G - 1) / sqrt(G) with the sample std (G - 1 degrees of freedom), and sqrt(G - 1)
                with the population std. No |A_i| can be larger.
    degenerate  Where all r_i are equal every A_i is 0. In float32 it isn't if the mean of equal rewards such as 0.1 or
                1/3 is rounded: r_i - mean is about 1e-8, the std is as small, and A_i about 1 for the whole group.

A response's advantage is the mean over its tokens. Rewards count as equal if they differ by no more than float32's
rounding, and an advantage as 0 up to 0.005. A critic's advantages obey none of this: where ``values`` come along
nothing is said of groups. Source: notes on RL metrics, Advantages; appendix on a GRPO advantage mean that isn't 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finding, Finished
from tocsin_detectors.rollout_corr.groups import Groups
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.sequences import per_row, row_values, take_rows
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["FAMILY"]

EQUAL = 5e-7  # share of their size by which equal rewards may differ: some roundings of float32, 6e-8 each
SMALL = 1.0  # smaller rewards may be what is left of parts of this size
ZERO = 5e-3  # |advantage| that is as good as 0: what a floor of 1e-4 under the std leaves of the rounding is harmless
ROUNDING = 1.001  # times the bound: that is no violation
MOST_LISTED = 100  # groups in a finding; the metrics count all
NO_GROUP = -1


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    del options  # they matter in the end
    means, peaks = _by_row(tensors["advantages"], rows)
    answered = rows.lengths > 0
    totals = Totals()
    totals.add("sum", {"rows": answered.sum(), "means": means.sum()})
    if "group" not in tensors or "values" in tensors:
        return Accumulated(totals)
    table = {"group": tensors["group"], "answered": answered, "means": means, "peaks": peaks}
    # Advantages are made of rewards; with a KL penalty in them equal scores needn't be equal rewards.
    for name in ("rewards", "scores"):
        values = row_values(tensors, name, rows)
        if values is not None:
            table["rewards"] = values
            break
    return Accumulated(totals, outputs=per_row(table))


def _by_row(advantages: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """``[B]`` float64 each: mean and greatest absolute value over a row's tokens; 0 where it has none."""
    means = torch.zeros(rows.count, dtype=torch.float64, device=rows.device)
    peaks = torch.zeros_like(means)
    for block in rows.blocks(advantages):
        (value,) = block.values
        means[block.rows] = value.sum(1, dtype=torch.float64) / block.lengths.clamp(min=1)
        peaks[block.rows] = value.abs().amax(1).to(torch.float64)
    return means, peaks


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    table = take_rows(outputs)
    metrics = {"critic/advantages/seq_mean": totals["means"] / totals["rows"]} if totals["rows"] else {}
    if not table or not table["group"].shape[0]:
        return Finished(metrics)
    judged = _Judged(table, options)
    numbers = judged.totals().to_host()
    metrics |= {
        "critic/advantages/groups": numbers["groups"],
        "critic/advantages/group_mean_max": numbers["group_mean"],
        "critic/advantages/over_bound": numbers["over_bound"],
    }
    if judged.degenerate is not None:
        found = numbers["degenerate"]
        metrics |= {
            "critic/advantages/degenerate_groups": found,
            "critic/advantages/first_degenerate_group": numbers["first"] if found else NO_GROUP,
            "critic/rewards/zero_std_count": numbers["equal"],
        }
        if numbers["groups"]:
            metrics["critic/rewards/zero_std_ratio"] = numbers["equal"] / numbers["groups"]
    return Finished(metrics, judged.findings(numbers))


class _Judged:
    """What is true of each group. All tensors are ``[B]``; entry k is of group k."""

    def __init__(self, table: Mapping[str, Tensor], options: Options) -> None:
        self.table = table
        self.groups = groups = Groups(table["group"])
        self.several = groups.sizes > 1
        answered = groups.total(table["answered"])
        self.means = torch.where(answered > 0, groups.total(table["means"]) / answered, 0.0)
        self.peaks = groups.extreme(table["peaks"], "amax")
        self.over_bound = torch.where(self.several, self.peaks / _bound(groups.sizes, options), 0.0)
        self.equal = self.degenerate = None
        if "rewards" in table:
            most, least = (groups.extreme(table["rewards"], kind) for kind in ("amax", "amin"))
            size = torch.maximum(most.abs(), least.abs()).clamp(min=SMALL)
            self.equal = self.several & (most - least <= EQUAL * size)
            self.degenerate = self.equal & (self.peaks > ZERO)

    def totals(self) -> Totals:
        totals = Totals()
        totals.add("sum", {"groups": self.several.sum(), "over": (self.over_bound > ROUNDING).sum()})
        means = torch.where(self.several, self.means.abs(), 0.0)
        totals.add("max", {"group_mean": means.amax(), "over_bound": self.over_bound.amax()})
        if self.equal is not None and self.degenerate is not None:
            totals.add("sum", {"equal": self.equal.sum(), "degenerate": self.degenerate.sum()})
            ids = self.groups.id_of().to(torch.float64)
            totals.add("min", {"first": torch.where(self.degenerate, ids, torch.inf).amin()})
        return totals

    def findings(self, numbers: Mapping[str, float]) -> list[Finding]:
        found = []
        if numbers.get("degenerate") and self.degenerate is not None:
            text = (
                f"{numbers['degenerate']:.0f} of {numbers['groups']:.0f} groups have equal rewards and advantages that "
                "aren't 0: normalise in float64, or mask groups whose reward std is tiny"
            )
            found.append(Finding("degenerate_groups", text, {"groups": self._listed(self.degenerate)}))
        if numbers["over"]:
            text = (
                f"{numbers['over']:.0f} of {numbers['groups']:.0f} groups have an advantage beyond what division by "
                f"their std allows, up to {numbers['over_bound']:.4g} times as large: another std, or none, was used"
            )
            found.append(Finding("advantages_over_bound", text, {"groups": self._listed(self.over_bound > ROUNDING)}))
        return found

    def _listed(self, chosen: Tensor) -> list[dict[str, Any]]:
        """The first groups of a kind, by ascending id, with all that belongs to them."""
        numbers = chosen.nonzero().flatten()[:MOST_LISTED].tolist()
        return [self._described(number) for number in numbers]

    def _described(self, number: int) -> dict[str, Any]:
        places = (self.groups.index == number).nonzero().flatten()
        described = {"group": int(self.table["group"][places[0]]), "rows": places.tolist()}
        if "rewards" in self.table:
            described["rewards"] = self.table["rewards"][places].tolist()
        return described | {"advantages": self.table["means"][places].tolist()}


def _bound(sizes: Tensor, options: Options) -> Tensor:
    """The greatest |A| of a group of G; meaningless where G < 2."""
    degrees = (sizes - 1).clamp(min=1)
    return degrees / sizes.clamp(min=2).sqrt() if options.advantage_std == "sample" else degrees.sqrt()


FAMILY = Family(names=("advantages",), needs=(("advantages",),), accumulate=_accumulate, finish=_finish)
