"""Accuracy by domain and by prompt, against counting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detectors.rollout_corr.batches import Batch, Layout, by_group, masks, run

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.accuracy import FAMILY, MOST_LISTED
from tocsin_detectors.rollout_corr.errors import OptionError, TensorError
from tocsin_detectors.rollout_corr.options import Options

DOMAINS = ("math", "code", "logic")


def naive(batch: Batch, options: Options, ids: str | None) -> tuple[dict[str, float], dict[int, float]]:
    """The metrics, and the accuracy of each prompt."""
    present = batch.lengths > 0
    scores = batch.arrays["scores"].astype(np.float64)
    right = scores >= options.success_threshold
    said = {"critic/accuracy/mean": right[present].mean()} if present.any() else {}
    for place, name in enumerate(options.domains):
        chosen = present & (batch.arrays["domain"] == place)
        if chosen.any():
            said[f"critic/accuracy/{name}/mean"] = right[chosen].mean()
            said[f"critic/score/{name}/mean"] = scores[chosen].mean()
    prompts = {}
    if ids is not None:
        for number, members in by_group(batch.arrays[ids]):
            answered = members[present[members]]
            if answered.size:
                prompts[number] = float(right[answered].mean())
    if prompts:
        by_prompt = np.array(list(prompts.values()))
        said |= {
            "critic/accuracy/prompt_mean": by_prompt.mean(),
            "critic/accuracy/prompt_std": by_prompt.std(),
            "critic/rewards/all_failed_ratio": (by_prompt == 0).mean(),
            "critic/rewards/all_solved_ratio": (by_prompt == 1).mean(),
        }
    return {name: float(value) for name, value in said.items()}, prompts


@settings(deadline=None)
@given(
    masks(most_rows=24),
    st.integers(0, 2**32),
    st.sampled_from(["padded", "ragged"]),
    st.booleans(),
    st.sampled_from([None, "prompt", "group"]),
    st.booleans(),
)
def test_shares_are_those_of_counting(
    mask: Any, seed: int, layout: Layout, by_domain: bool, ids: str | None, binary: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = mask.shape[0]
    scores = rng.integers(0, 2, rows).astype(np.float32) if binary else rng.normal(0, 1, rows).astype(np.float32)
    arrays: dict[str, Any] = {"scores": scores}
    if by_domain:
        arrays["domain"] = rng.integers(0, len(DOMAINS), rows)
    if ids is not None:
        arrays[ids] = rng.integers(-3, 4, rows)
    batch, options = Batch(mask, arrays), Options(domains=DOMAINS if by_domain else ())
    said = run(FAMILY, batch, options, layout)
    expected, prompts = naive(batch, options, ids)
    assert said.metrics == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert all(lookup(name) is not None for name in said.metrics)
    assert said.outputs == {}
    if not prompts:
        assert said.findings == []
    else:
        (finding,) = said.findings
        assert finding.kind == "prompt_accuracy"
        assert dict(zip(finding.data["prompts"], finding.data["accuracy"], strict=True)) == pytest.approx(prompts)
    if binary and by_domain:
        for name in DOMAINS:
            assert said.metrics.get(f"critic/accuracy/{name}/mean") == said.metrics.get(f"critic/score/{name}/mean")


def test_scores_of_another_kind_have_a_threshold_of_their_own() -> None:
    batch = Batch(np.ones((3, 1), bool), {"scores": np.array([-1.0, 1.0, 5.0])})
    assert run(FAMILY, batch, Options(success_threshold=2)).metrics == {"critic/accuracy/mean": pytest.approx(1 / 3)}
    assert run(FAMILY, batch, Options(success_threshold=1)).metrics == {"critic/accuracy/mean": pytest.approx(2 / 3)}


@pytest.mark.parametrize("name", ["rewards", "token_level_scores", "token_level_rewards"])
def test_scores_may_come_under_their_other_names(name: str) -> None:
    values = np.array([[1.0], [0.0]]) if name.startswith("token") else np.array([1.0, 0.0])
    assert run(FAMILY, Batch(np.ones((2, 1), bool), {name: values})).metrics == {"critic/accuracy/mean": 0.5}


@pytest.mark.parametrize("domain", [np.array([0, 3]), np.array([-1, 0]), np.array([0.0, 1.0])])
def test_domains_have_to_be_places_in_the_list_of_names(domain: Any) -> None:
    batch = Batch(np.ones((2, 1), bool), {"scores": np.ones(2), "domain": domain})
    with pytest.raises(TensorError, match="domain has values that aren't among 0 to 2"):
        run(FAMILY, batch, Options(domains=DOMAINS))


def test_domains_need_their_names() -> None:
    batch = Batch(np.ones((2, 1), bool), {"scores": np.ones(2), "domain": np.zeros(2, int)})
    with pytest.raises(OptionError, match="domain is given, domains are not"):
        run(FAMILY, batch)


@pytest.mark.parametrize("names", [("a", "a"), ("",), ("a/b", "a-b")])
def test_names_of_domains_have_to_differ(names: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match=r"domains are .* valid: different names, not empty"):
        Options(domains=names)


def test_a_data_set_called_like_a_repository_is_one_part_of_the_name() -> None:
    batch = Batch(np.ones((2, 1), bool), {"scores": np.array([1.0, 0.0]), "domain": np.zeros(2, int)})
    said = run(FAMILY, batch, Options(domains=("openai/gsm8k",)))
    assert said.metrics["critic/accuracy/openai-gsm8k/mean"] == said.metrics["critic/score/openai-gsm8k/mean"] == 0.5
    assert all(lookup(name) is not None for name in said.metrics)


def test_a_long_list_of_prompts_is_cut() -> None:
    rows = MOST_LISTED + 10
    batch = Batch(np.ones((rows, 1), bool), {"scores": np.ones(rows), "prompt": np.arange(rows)})
    (finding,) = run(FAMILY, batch).findings
    assert finding.text == f"{rows} prompts: 0 without a right answer, {rows} without a wrong one"
    assert len(finding.data["prompts"]) == len(finding.data["accuracy"]) == MOST_LISTED
