"""Batch statistics against a plain version of verl's, and truncation at any length."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.detectors.rollout_corr.batches import Batch, Layout, filled, masks, run

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.data import FAMILY
from tocsin_detectors.rollout_corr.options import Options

STRICT = Options(compat="strict")


def three(name: str, values: NDArray[Any]) -> dict[str, float]:
    values = values.astype(np.float64)
    if not values.size:
        return dict.fromkeys((f"{name}/mean", f"{name}/max", f"{name}/min"), math.nan)
    return {f"{name}/mean": values.mean(), f"{name}/max": values.max(), f"{name}/min": values.min()}


def std(name: str, values: NDArray[Any]) -> dict[str, float]:
    return {f"{name}/std": values.astype(np.float64).std(ddof=1)} if values.size > 1 else {}


def naive(batch: Batch, width: int | None, options: Options) -> dict[str, float]:
    lengths, present = batch.lengths, batch.lengths > 0
    limit = options.response_limit or width  # None: unknown
    said = three("response_length", lengths) | three("response_length_non_aborted", lengths[present])
    if limit is not None:
        said["response_length/clip_ratio"] = (lengths >= limit).mean()
        said["response_length_non_aborted/clip_ratio"] = (
            (lengths[present] >= limit).mean() if present.any() else math.nan
        )
    said["response/aborted_ratio"] = (~present).mean()
    said |= {f"response_length/clip_ratio/{at}": (lengths >= at).mean() for at in options.limits}
    if "prompt_lengths" in batch.arrays:
        prompts = batch.arrays["prompt_lengths"]
        said |= three("prompt_length", prompts)
        if options.prompt_limit is not None:
            said["prompt_length/clip_ratio"] = (prompts >= options.prompt_limit).mean()
    for name, source in (("critic/score", "scores"), ("critic/rewards", "rewards")):
        if source in batch.arrays:
            said |= three(name, batch.arrays[source][present])
    if "rewards" in batch.arrays:
        said |= std("critic/rewards", batch.arrays["rewards"][present])
    for name in ("advantages", "returns", "values"):
        if name in batch.arrays:
            said |= three(f"critic/{name}", batch.tokens(name))
    if "advantages" in batch.arrays:
        said |= std("critic/advantages", batch.tokens("advantages"))
    if {"returns", "values"} <= set(batch.arrays):
        returns, gap = batch.tokens("returns"), batch.tokens("returns") - batch.tokens("values")
        said["critic/vf_explained_var"] = (
            1 - gap.var(ddof=1) / (returns.var(ddof=1) + 1e-5) if returns.size > 1 else math.nan
        )
    return {name: float(value) for name, value in said.items()}


def full_batch(mask: Any, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    rows = mask.shape[0]
    arrays: dict[str, Any] = {
        name: filled(mask, rng.normal(rng.choice([-3, 3]), 1, mask.shape).astype(np.float32))
        for name in ("advantages", "returns", "values")
    }
    arrays |= {name: rng.normal(0, 1, rows).astype(np.float32) for name in ("scores", "rewards")}
    return Batch(mask, arrays | {"prompt_lengths": rng.integers(1, 20, rows)})


@settings(deadline=None)
@given(
    masks(),
    st.integers(0, 2**32),
    st.sampled_from(["padded", "ragged"]),
    st.sets(st.sampled_from(["advantages", "returns", "values", "scores", "rewards", "prompt_lengths"])),
    st.booleans(),
    st.sampled_from([{}, {"response_limit": 7, "prompt_limit": 15, "limits": (2, 5)}]),
)
def test_statistics_are_those_of_plain_numpy(
    mask: Any, seed: int, layout: Layout, names: set[str], strict: bool, given_options: Any
) -> None:
    batch = full_batch(mask, seed)
    batch = Batch(mask, {name: array for name, array in batch.arrays.items() if name in names})
    options = Options(compat="strict" if strict else "verl", **given_options)
    said = run(FAMILY, batch, options, layout)
    expected = naive(batch, mask.shape[1] if layout == "padded" else None, options)
    if strict:
        expected = {name: value for name, value in expected.items() if not math.isnan(value)}
    assert said.metrics == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)
    assert all(lookup(name) is not None for name in said.metrics)
    for name, value in said.metrics.items():
        metric = lookup(name)
        assert metric is not None
        assert math.isnan(value) or metric.allows(value), name


def test_nothing_valid_is_nan_in_verl_and_left_out_strictly() -> None:
    batch = full_batch(np.zeros((3, 4), bool), 1)
    verl, strict = run(FAMILY, batch).metrics, run(FAMILY, batch, STRICT).metrics
    assert verl["response/aborted_ratio"] == strict["response/aborted_ratio"] == 1
    assert verl["response_length/max"] == strict["response_length/max"] == 0
    for name in ("critic/score/mean", "critic/rewards/min", "critic/advantages/max", "critic/vf_explained_var"):
        assert math.isnan(verl[name])
        assert name not in strict
    assert not any(name.endswith("/std") for name in verl)  # no number of verl's


def test_truncation_is_told_at_8k_16k_and_32k() -> None:
    lengths = np.array([100, 8191, 8192, 20_000, 32_768])
    mask = np.arange(32_768) < lengths[:, None]
    metrics = run(FAMILY, Batch(mask, {})).metrics
    assert metrics["response_length/clip_ratio/8192"] == 0.6
    assert metrics["response_length/clip_ratio/16384"] == 0.4
    assert metrics["response_length/clip_ratio/32768"] == metrics["response_length/clip_ratio"] == 0.2


@pytest.mark.parametrize("layout", ["padded", "ragged"])
def test_row_sums_may_come_by_token(layout: Layout) -> None:
    mask = np.array([[True, True, True], [True, False, False], [False, False, False]])
    by_token = np.array([[0.0, 0, 2], [5, 0, 0], [0, 0, 0]])
    batch = Batch(mask, {"token_level_scores": by_token, "token_level_rewards": by_token - 1.0 * mask})
    metrics = run(FAMILY, batch, layout=layout).metrics
    assert (metrics["critic/score/mean"], metrics["critic/score/min"]) == (3.5, 2)
    assert (metrics["critic/rewards/mean"], metrics["critic/rewards/max"]) == (1.5, 4)


def test_a_reward_on_a_token_that_the_mask_leaves_out_counts() -> None:
    """As in verl: the last token of a response may be a tool's, and carries the reward all the same."""
    mask = np.array([[True, True, False]])
    assert run(FAMILY, Batch(mask, {"token_level_scores": np.array([[0.0, 0, 1]])})).metrics["critic/score/mean"] == 1


def test_a_small_variance_far_from_zero_survives() -> None:
    rng = np.random.default_rng(4)
    mask = np.ones((64, 64), bool)
    returns = (1000 + rng.normal(0, 0.1, mask.shape)).astype(np.float32)
    values = (returns + rng.normal(0, 0.03, mask.shape)).astype(np.float32)
    batch = Batch(mask, {"returns": returns, "values": values})
    assert run(FAMILY, batch).metrics == pytest.approx(naive(batch, 64, Options()), rel=1e-6)


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, 2.3, 5.9, 7.7])
@pytest.mark.parametrize("rows", [3, 6, 7, 11, 24])
def test_equal_rewards_have_a_std_of_zero(value: float, rows: int) -> None:
    """Sums and squares of equal numbers may round to a variance below 0."""
    metrics = run(FAMILY, Batch(np.ones((rows, 1), bool), {"rewards": np.full(rows, value)})).metrics
    assert 0 <= metrics["critic/rewards/std"] < 1e-6


def test_nan_in_a_valid_place_is_not_hidden() -> None:
    batch = full_batch(np.ones((3, 4), bool), 1)
    batch.arrays["advantages"][1, 1] = math.nan
    batch.arrays["scores"][0] = math.nan
    metrics = run(FAMILY, batch, STRICT).metrics
    for name in ("critic/advantages", "critic/score"):
        assert all(math.isnan(metrics[f"{name}/{part}"]) for part in ("mean", "max", "min"))
