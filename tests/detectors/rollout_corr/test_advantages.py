"""Advantages in groups: the float32 bug found in the very groups that have it, and every check against plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.detectors.rollout_corr.batches import Batch, Layout, by_group, filled, masks, run

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.advantages import FAMILY, MOST_LISTED, ROUNDING, ZERO
from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.options import Options

DEGENERATE = "critic/advantages/degenerate_groups"
FIRST = "critic/advantages/first_degenerate_group"


def group_normalised(rewards: list[float], ids: list[int], floor: float, dtype: torch.dtype) -> NDArray[Any]:
    """GRPO's advantages as trainers compute them: sample std, with a floor, in this precision."""
    given = torch.tensor(rewards, dtype=dtype)
    group = torch.tensor(ids)
    advantages = torch.empty_like(given)
    for number in group.unique():
        own = given[group == number]
        advantages[group == number] = (own - own.mean()) / (own.std() + floor)
    return advantages.numpy()


def batch_of(rewards: Any, ids: Any, advantages: NDArray[Any], width: int = 3, name: str = "rewards") -> Batch:
    mask = np.ones((len(rewards), width), bool)
    spread = np.broadcast_to(advantages[:, None], mask.shape).astype(np.float32)
    return Batch(mask, {"advantages": spread, "group": np.asarray(ids), name: np.asarray(rewards, np.float32)})


# ---- the float32 bug

EQUAL_THIRDS, EQUAL_TENTHS, MIXED, EQUAL_ONES = [1 / 3] * 8, [0.1] * 8, [1.0, 0.0] * 4, [1.0] * 8
REWARDS = [*EQUAL_THIRDS, *MIXED, *EQUAL_TENTHS, *EQUAL_ONES]
IDS = [40] * 8 + [7] * 8 + [11] * 8 + [3] * 8


def test_float32_makes_advantages_of_equal_rewards() -> None:
    """The premise: without it the tests below would show nothing."""
    advantages = group_normalised(REWARDS, IDS, 1e-8, torch.float32)
    assert advantages[:8] == pytest.approx(np.full(8, advantages[0]))
    assert 0.5 < abs(advantages[0]) < 1
    assert 0.3 < abs(advantages[16]) < 1
    assert not advantages[24:].any()


@pytest.mark.parametrize("floor", [1e-8, 1e-6])
def test_the_very_groups_are_shown(floor: float) -> None:
    advantages = group_normalised(REWARDS, IDS, floor, torch.float32)
    said = run(FAMILY, batch_of(REWARDS, IDS, advantages))
    assert said.metrics[DEGENERATE] == 2
    assert said.metrics[FIRST] == 11
    assert said.metrics["critic/advantages/groups"] == 4
    assert said.metrics["critic/rewards/zero_std_count"] == 3
    assert said.metrics["critic/rewards/zero_std_ratio"] == 0.75
    (finding,) = said.findings
    assert finding.kind == "degenerate_groups"
    assert finding.text.startswith("2 of 4 groups have equal rewards and advantages that aren't 0")
    tenths, thirds = finding.data["groups"]
    assert (tenths["group"], tenths["rows"]) == (11, list(range(16, 24)))
    assert (thirds["group"], thirds["rows"]) == (40, list(range(8)))
    assert thirds["rewards"] == [float(np.float32(1 / 3))] * 8
    assert thirds["advantages"] == pytest.approx(advantages[:8].tolist())


def test_float64_is_the_exact_fix() -> None:
    said = run(FAMILY, batch_of(REWARDS, IDS, group_normalised(REWARDS, IDS, 1e-8, torch.float64)))
    assert said.metrics[DEGENERATE] == 0
    assert said.metrics[FIRST] == -1
    assert said.findings == []


def test_a_large_floor_makes_it_harmless() -> None:
    rewards, ids = [0.7] * 12, [0] * 12
    advantages = group_normalised(rewards, ids, 1e-4, torch.float32)
    assert advantages.any()
    assert run(FAMILY, batch_of(rewards, ids, advantages)).metrics[DEGENERATE] == 0


def test_rewards_that_differ_in_their_last_digit_count_as_equal() -> None:
    rewards = np.full(8, 0.1, np.float32)
    rewards[3] = np.nextafter(rewards[3], np.float32(1))
    advantages = group_normalised(rewards.tolist(), [0] * 8, 1e-8, torch.float32)
    assert np.abs(advantages).max() > 0.3
    assert run(FAMILY, batch_of(rewards, [0] * 8, advantages)).metrics[DEGENERATE] == 1


def test_what_is_left_of_parts_counts_as_zero() -> None:
    rewards = np.zeros(8, np.float32)
    rewards[::2] = np.float32(1.0) - np.float32(0.9) - np.float32(0.1)
    assert 0 < rewards.max() < 1e-7
    advantages = group_normalised(rewards.tolist(), [0] * 8, 1e-8, torch.float32)
    assert run(FAMILY, batch_of(rewards, [0] * 8, advantages)).metrics[DEGENERATE] == 1


def test_small_differences_that_are_meant_are_no_bug() -> None:
    rewards = [0.1, 0.1001] * 4
    advantages = group_normalised(rewards, [0] * 8, 1e-8, torch.float32)
    assert run(FAMILY, batch_of(rewards, [0] * 8, advantages)).metrics[DEGENERATE] == 0


def test_rewards_count_before_scores() -> None:
    """With a KL penalty in the rewards equal scores have different rewards, and advantages by right."""
    rewards = [1.0, 0.9] * 4
    batch = batch_of(rewards, [0] * 8, group_normalised(rewards, [0] * 8, 1e-8, torch.float32))
    arrays = {**batch.arrays, "scores": np.ones(8, np.float32)}
    assert run(FAMILY, Batch(batch.mask, arrays)).metrics[DEGENERATE] == 0
    del arrays["rewards"]
    assert run(FAMILY, Batch(batch.mask, arrays)).metrics[DEGENERATE] == 1


@pytest.mark.parametrize("layout", ["padded", "ragged"])
def test_rewards_may_come_by_token(layout: Layout) -> None:
    advantages = group_normalised(REWARDS, IDS, 1e-8, torch.float32)
    batch = batch_of(REWARDS, IDS, advantages)
    by_token = np.zeros(batch.mask.shape, np.float32)
    by_token[:, -1] = REWARDS
    arrays = {"advantages": batch.arrays["advantages"], "group": np.asarray(IDS), "token_level_rewards": by_token}
    assert run(FAMILY, Batch(batch.mask, arrays), layout=layout).metrics[DEGENERATE] == 2


def test_a_long_list_is_cut_and_the_count_is_not() -> None:
    ids = np.repeat(np.arange(MOST_LISTED + 20), 2)
    rewards = np.full(ids.size, 0.1)
    said = run(FAMILY, batch_of(rewards, ids, np.ones(ids.size)))
    assert said.metrics[DEGENERATE] == MOST_LISTED + 20
    assert len(said.findings[0].data["groups"]) == MOST_LISTED


# ---- the other checks


def naive(batch: Batch, options: Options) -> dict[str, float]:
    rows = batch.by_row("advantages")
    means = np.array([row.mean() if row.size else 0.0 for row in rows])
    answered = batch.lengths > 0
    said = {"critic/advantages/seq_mean": float(means[answered].mean())} if answered.any() else {}
    if "group" not in batch.arrays or "values" in batch.arrays:
        return said
    count, most_mean, most_excess, equal, degenerate = 0, 0.0, 0.0, 0, []
    for number, members in by_group(batch.arrays["group"]):
        size = len(members)
        if size < 2:
            continue
        count += 1
        peak = max((float(np.abs(rows[row]).max()) for row in members if rows[row].size), default=0.0)
        if answered[members].any():
            most_mean = max(most_mean, abs(means[members][answered[members]].mean()))
        bound = (size - 1) / math.sqrt(size) if options.advantage_std == "sample" else math.sqrt(size - 1)
        most_excess = max(most_excess, peak / bound)
        rewards = batch.arrays["rewards"][members].astype(np.float64)
        if np.ptp(rewards) <= 5e-7 * max(np.abs(rewards).max(), 1.0):
            equal += 1
            if peak > ZERO:
                degenerate.append(number)
    return said | {
        "critic/advantages/groups": count,
        "critic/advantages/group_mean_max": most_mean,
        "critic/advantages/over_bound": most_excess,
        DEGENERATE: len(degenerate),
        FIRST: degenerate[0] if degenerate else -1,
        "critic/rewards/zero_std_count": equal,
        **({"critic/rewards/zero_std_ratio": equal / count} if count else {}),
    }


@settings(deadline=None)
@given(
    masks(most_rows=16),
    st.integers(0, 2**32),
    st.sampled_from(["padded", "ragged"]),
    st.sampled_from(["sample", "population"]),
    st.booleans(),
)
def test_metrics_are_those_of_plain_loops(mask: Any, seed: int, layout: Layout, std: Any, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = mask.shape[0]
    advantages = rng.normal(0, 1, mask.shape) * rng.integers(0, 2, (rows, 1))
    arrays: dict[str, Any] = {"advantages": filled(mask, advantages.astype(np.float32))}
    if grouped:
        ids = rng.choice(rng.integers(-(2**40), 2**40, 4), rows)
        arrays |= {"group": ids, "rewards": rng.choice(np.array([0.1, 1 / 3, 1.0], np.float32), rows)}
    batch, options = Batch(mask, arrays), Options(advantage_std=std)
    said = run(FAMILY, batch, options, layout)
    expected = naive(batch, options)
    assert said.metrics == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert all(lookup(name) is not None for name in said.metrics)
    listed = {finding.kind: finding.data["groups"] for finding in said.findings}
    assert len(listed.get("degenerate_groups", [])) == expected.get(DEGENERATE, 0)
    assert ("advantages_over_bound" in listed) == (expected.get("critic/advantages/over_bound", 0) > ROUNDING)


@pytest.mark.parametrize(("std", "degrees"), [("sample", 1), ("population", 0)])
@pytest.mark.parametrize("size", [2, 3, 8, 64])
def test_the_bound_is_reached_and_never_crossed(std: Any, degrees: int, size: int) -> None:
    rng = np.random.default_rng(size)
    extreme = np.zeros(size)
    extreme[0] = 1.0
    for rewards in (extreme, *rng.exponential(1, (20, size))):
        advantages = (rewards - rewards.mean()) / rewards.std(ddof=degrees)
        said = run(FAMILY, batch_of(rewards, [5] * size, advantages), Options(advantage_std=std))
        assert said.metrics["critic/advantages/over_bound"] <= 1 + 1e-6
        assert said.findings == []
        if rewards is extreme:
            assert said.metrics["critic/advantages/over_bound"] == pytest.approx(1, rel=1e-6)


def test_an_advantage_over_the_bound_is_shown() -> None:
    rewards = [0.0, 0.0, 0.0, 9.0]
    advantages = np.array(rewards) - np.mean(rewards)  # not divided by any std
    said = run(FAMILY, batch_of(rewards, [5] * 4, advantages))
    (finding,) = said.findings
    assert finding.kind == "advantages_over_bound"
    assert finding.data["groups"] == [
        {"group": 5, "rows": [0, 1, 2, 3], "rewards": rewards, "advantages": advantages.tolist()}
    ]
    assert said.metrics["critic/advantages/over_bound"] == pytest.approx(6.75 / 1.5)


def test_a_mean_over_sequences_is_zero_where_one_over_tokens_is_not() -> None:
    """Long wrong answers: no bug, and the sequence mean says so."""
    mask = np.arange(8) < np.array([8, 8, 1, 1])[:, None]
    advantages = np.where(mask, np.array([-1.0, -1.0, 1.0, 1.0])[:, None], np.nan)
    batch = Batch(mask, {"advantages": advantages, "group": np.zeros(4, int), "rewards": np.array([0.0, 0, 1, 1])})
    metrics = run(FAMILY, batch).metrics
    assert metrics["critic/advantages/seq_mean"] == metrics["critic/advantages/group_mean_max"] == 0


def test_a_critics_advantages_are_not_judged_by_groups() -> None:
    batch = batch_of([0.1] * 4, [1] * 4, np.array([0.5, -0.2, 1.0, 0.1]))
    said = run(FAMILY, Batch(batch.mask, {**batch.arrays, "values": np.zeros(batch.mask.shape)}))
    assert set(said.metrics) == {"critic/advantages/seq_mean"}
    assert said.findings == []


def test_a_group_of_one_is_no_group() -> None:
    said = run(FAMILY, batch_of([0.1, 0.2], [1, 2], np.array([0.1, 0.2])))
    assert said.metrics["critic/advantages/groups"] == said.metrics[DEGENERATE] == 0


@pytest.mark.parametrize("part", ["advantages", "rewards"])
def test_nan_is_neither_equal_nor_hidden(part: str) -> None:
    batch = batch_of([0.1] * 4, [1] * 4, np.array([0.5, 0.5, 0.5, np.nan if part == "advantages" else 0.5]))
    if part == "rewards":
        batch.arrays["rewards"][2] = np.nan
    metrics = run(FAMILY, batch).metrics
    assert metrics[DEGENERATE] == 0
    assert math.isnan(metrics["critic/advantages/group_mean_max"]) == (part == "advantages")


def test_group_ids_have_to_be_integers() -> None:
    batch = batch_of([0.1] * 4, np.array([1.0] * 4), np.zeros(4))
    with pytest.raises(TensorError, match=r"group is torch\.float64; send integers"):
        run(FAMILY, batch)
