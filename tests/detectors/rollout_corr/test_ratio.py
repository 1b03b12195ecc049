"""The ratio inside PPO, over all tokens and by gradient step, against naive float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detectors.rollout_corr.batches import Batch, Floats, Layout, filled, masks, run

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.ratio import FAMILY, MOST_STEPS


def moments(new: Floats, old: Floats) -> dict[str, float]:
    ratios = np.exp(np.clip(new - old, -20, 20))
    return {
        "ratio_mean": ratios.mean(),
        "ratio_var": ratios.var(),
        "probs_diff_var": (np.exp(new) - np.exp(old)).var(),
    }


def naive(batch: Batch, steps: Any | None, first: int) -> dict[str, float]:
    """All metrics by their formulas; ``first`` is how the trainer calls the first gradient step."""
    new, old = batch.tokens("log_probs"), batch.tokens("old_log_probs")
    if not new.size:
        return {}
    gaps = np.clip(new - old, -20, 20)
    said = moments(new, old) | {
        "ratio_max": np.exp(gaps).max(),
        "ratio_min": np.exp(gaps).min(),
        "ppo_kl": -gaps.mean(),
        "ppo_kl_k2": (gaps**2).mean() / 2,
    }
    if steps is not None:
        of_token = np.broadcast_to(steps[:, None], batch.mask.shape)[batch.mask]
        for step in sorted(set(of_token.tolist())):
            chosen = of_token == step
            number = step - first + 1
            said |= {f"{name}/{number}": value for name, value in moments(new[chosen], old[chosen]).items()}
            if number == 1:
                said["first_ratio_deviation"] = np.abs(np.exp(gaps[chosen]) - 1).mean()
            if number == 2:
                said["second_ratio_var"] = said["ratio_var/2"]
    return {f"actor/{name}": float(value) for name, value in said.items()}


def policies(mask: Any, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    old = -rng.exponential(1.0, mask.shape)
    new = np.minimum(old + rng.normal(0, rng.choice([1e-3, 0.1, 2.0]), mask.shape), 0)
    return Batch(mask, {"log_probs": filled(mask, new), "old_log_probs": filled(mask, old)})


@settings(deadline=None)
@given(masks(), st.integers(0, 2**32), st.sampled_from(["padded", "ragged"]), st.sampled_from([None, 0, 1]))
def test_metrics_are_those_of_the_formulas(mask: Any, seed: int, layout: Layout, first: int | None) -> None:
    batch = policies(mask, seed)
    if first is not None:
        steps = np.random.default_rng(seed).integers(first, first + 4, mask.shape[0])
        if mask.any():
            steps[np.flatnonzero(mask.any(1))[0]] = first  # some row with tokens belongs to the first
        batch = Batch(mask, {**batch.arrays, "gradient_step": steps})
    expected = naive(batch, batch.arrays.get("gradient_step"), first or 0)
    said = run(FAMILY, batch, layout=layout)
    assert said.metrics == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert said.findings == []
    assert all(lookup(name) is not None for name in said.metrics)


def test_equal_policies_have_ratio_one_exactly() -> None:
    mask = np.ones((4, 5), bool)
    old = -np.random.default_rng(1).exponential(1.0, mask.shape).astype(np.float32)
    arrays = {"log_probs": old, "old_log_probs": old, "gradient_step": np.array([0, 0, 1, 1])}
    metrics = run(FAMILY, Batch(mask, arrays)).metrics
    assert metrics["actor/first_ratio_deviation"] == metrics["actor/second_ratio_var"] == 0
    assert metrics["actor/ratio_mean"] == metrics["actor/ratio_max"] == metrics["actor/ratio_min"] == 1


def test_a_tiny_variance_survives_float32() -> None:
    mask = np.ones((64, 128), bool)
    rng = np.random.default_rng(2)
    old = -rng.exponential(1.0, mask.shape).astype(np.float32)
    new = (old + rng.normal(0, 1e-3, mask.shape)).astype(np.float32)
    said = run(FAMILY, Batch(mask, {"log_probs": new, "old_log_probs": old}))
    expected = np.exp(new.astype(np.float64) - old.astype(np.float64)).var()
    assert said.metrics["actor/ratio_var"] == pytest.approx(expected, rel=1e-5)


def test_a_ratio_that_explodes_is_cut_as_in_verl() -> None:
    batch = Batch(np.ones((1, 2), bool), {"log_probs": np.zeros((1, 2)), "old_log_probs": np.full((1, 2), -90.0)})
    metrics = run(FAMILY, batch).metrics
    assert metrics["actor/ratio_max"] == pytest.approx(math.exp(20))
    assert metrics["actor/ppo_kl"] == -20


@settings(deadline=None)
@given(masks(), st.integers(0, 2**32))
def test_clipped_shares_are_those_of_counting(mask: Any, seed: int) -> None:
    batch = policies(mask, seed)
    advantages = np.random.default_rng(seed + 1).choice([-1.0, 0.0, 2.0], mask.shape)
    batch = Batch(mask, {**batch.arrays, "advantages": filled(mask, advantages)})
    metrics = run(FAMILY, batch, Options(clip_low=0.2, clip_high=0.28)).metrics
    ratios = np.exp(np.clip(batch.tokens("log_probs") - batch.tokens("old_log_probs"), -20, 20))
    signs = batch.tokens("advantages")
    if not ratios.size:
        assert metrics == {}
        return
    assert metrics["actor/clipfrac_low"] == ((ratios < 0.8) & (signs < 0)).mean()
    assert metrics["actor/clipfrac_high"] == ((ratios > 1.28) & (signs > 0)).mean()


def test_late_gradient_steps_count_together() -> None:
    mask = np.ones((40, 3), bool)
    batch = Batch(mask, {**policies(mask, 3).arrays, "gradient_step": np.arange(40)})
    metrics = run(FAMILY, batch).metrics
    assert f"actor/ratio_var/{MOST_STEPS}" in metrics
    assert f"actor/ratio_var/{MOST_STEPS + 1}" not in metrics
    expected = moments(batch.tokens("log_probs"), batch.tokens("old_log_probs"))
    assert metrics["actor/ratio_var"] == pytest.approx(expected["ratio_var"])
    last = MOST_STEPS - 1
    alone = moments(batch.arrays["log_probs"][last], batch.arrays["old_log_probs"][last])
    assert metrics[f"actor/ratio_var/{MOST_STEPS}"] == pytest.approx(alone["ratio_var"])


def test_steps_counted_over_the_whole_run_are_told_of() -> None:
    mask = np.ones((4, 3), bool)
    said = run(FAMILY, Batch(mask, {**policies(mask, 3).arrays, "gradient_step": np.array([812, 813, 814, 815])}))
    assert [finding.kind for finding in said.findings] == ["gradient_steps"]
    assert "actor/first_ratio_deviation" not in said.metrics
    assert "actor/ratio_var" in said.metrics


@pytest.mark.parametrize("steps", [np.array([0.0, 1.0]), np.array([0, -1])])
def test_steps_that_are_no_numbers_of_steps_are_refused(steps: Any) -> None:
    mask = np.ones((2, 3), bool)
    with pytest.raises(TensorError, match="gradient_step has fractions or negative values; send whole numbers"):
        run(FAMILY, Batch(mask, {**policies(mask, 3).arrays, "gradient_step": steps}))
