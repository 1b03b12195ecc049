"""Entropy in verl's four averages, against sums over rows by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detectors.rollout_corr.batches import Batch, Layout, filled, masks, run

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.entropy import FAMILY
from tocsin_detectors.rollout_corr.options import ENTROPY_AGGREGATIONS, Options


def naive(batch: Batch, limit: int) -> dict[str, float]:
    rows = [row for row in batch.by_row("entropys") if row.size]
    if not rows:
        return {}
    per_row = sum(float(row.sum()) for row in rows) / len(rows)
    return {
        "token-mean": sum(float(row.sum()) for row in rows) / sum(row.size for row in rows),
        "seq-mean-token-mean": sum(float(row.mean()) for row in rows) / len(rows),
        "seq-mean-token-sum": per_row,
        "seq-mean-token-sum-norm": per_row / limit,
    }


@settings(deadline=None)
@given(
    masks(),
    st.integers(0, 2**32),
    st.sampled_from(["padded", "ragged"]),
    st.sampled_from(ENTROPY_AGGREGATIONS),
    st.sampled_from([None, 64]),
)
def test_averages_are_those_of_hand(mask: Any, seed: int, layout: Layout, mode: str, limit: int | None) -> None:
    rng = np.random.default_rng(seed)
    batch = Batch(mask, {"entropys": filled(mask, rng.exponential(0.6, mask.shape).astype(np.float32))})
    width = mask.shape[1] if layout == "padded" else int(batch.lengths.max())
    said = run(FAMILY, batch, Options(entropy_aggregation=mode, response_limit=limit), layout)
    by_mode = naive(batch, limit or width)
    expected = {f"actor/entropy_{name.replace('-', '_')}": value for name, value in by_mode.items()}
    if by_mode:
        expected["actor/entropy"] = by_mode[mode]
    assert said.metrics == pytest.approx(expected, rel=1e-9)
    assert all(lookup(name) is not None for name in said.metrics)


def test_without_a_mode_it_is_the_mean_over_tokens() -> None:
    mask = np.array([[True, True, True], [True, False, False]])
    batch = Batch(mask, {"entropys": np.array([[1.0, 1.0, 1.0], [3.0, np.nan, np.nan]])})
    metrics = run(FAMILY, batch).metrics
    assert metrics["actor/entropy"] == metrics["actor/entropy_token_mean"] == 1.5
    assert metrics["actor/entropy_seq_mean_token_mean"] == 2
    assert metrics["actor/entropy_seq_mean_token_sum"] == 3
    assert metrics["actor/entropy_seq_mean_token_sum_norm"] == 1
