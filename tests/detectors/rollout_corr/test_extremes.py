"""Shares of extreme tokens and of extreme ratios, against counting them one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detectors.rollout_corr.batches import Batch, Layout, filled, masks, run

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.extremes import FAMILY

SIDES = {"old_log_probs": "training", "rollout_log_probs": "rollout"}


@settings(deadline=None)
@given(
    masks(),
    st.integers(0, 2**32),
    st.sampled_from(["padded", "ragged"]),
    st.sampled_from([("old_log_probs",), ("rollout_log_probs",), ("old_log_probs", "rollout_log_probs")]),
)
def test_shares_are_those_of_counting(mask: Any, seed: int, layout: Layout, given_names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(seed)
    batch = Batch(mask, {name: filled(mask, -rng.exponential(4, mask.shape)) for name in given_names})
    tokens = {name: batch.tokens(name) for name in given_names}
    expected: dict[str, float] = {}
    if mask.any():
        for name, values in tokens.items():
            rare = sum(math.exp(value) < 1e-3 for value in values)
            expected[f"rollout_corr/extreme_token_fraction_{SIDES[name]}"] = rare / len(values)
        if len(tokens) == 2:
            ratios = [math.exp(old - new) for old, new in zip(*tokens.values(), strict=True)]
            beyond = sum(ratio > 2 or ratio < 0.5 for ratio in ratios)
            expected["rollout_corr/extreme_ratio_fraction"] = beyond / len(ratios)
    said = run(FAMILY, batch, layout=layout)
    assert said.metrics == pytest.approx(expected)
    assert all(lookup(name) is not None for name in said.metrics)


def test_a_token_that_an_engine_rules_out_is_extreme() -> None:
    old = np.array([[-math.inf, -0.1, -0.1, -0.1]])
    batch = Batch(np.ones((1, 4), bool), {"old_log_probs": old, "rollout_log_probs": np.full((1, 4), -0.1)})
    assert run(FAMILY, batch).metrics == {
        "rollout_corr/extreme_token_fraction_training": 0.25,
        "rollout_corr/extreme_token_fraction_rollout": 0.0,
        "rollout_corr/extreme_ratio_fraction": 0.25,
    }
