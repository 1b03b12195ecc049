"""Metrics of a step's texts and scores: what each says, when it is left out, and that it is in the catalogue."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollouts import Numbers, Rollouts, measure, repetition
from tocsin_detectors.rollouts.measure import EDGES
from tocsin_detectors.rollouts.repetition import GRAM, LONGEST


def rollouts(**columns: Any) -> Rollouts:
    """Lists become columns of numbers; responses are made up if none are given."""
    count = len(next(iter(columns.values())))
    for name in columns.keys() & {"rewards", "lengths", "advantages"}:
        columns[name] = Numbers.of(columns[name])
    if "scores" in columns:
        count = len(next(iter(columns["scores"].values())))
        columns["scores"] = {name: Numbers.of(column) for name, column in columns["scores"].items()}
    columns.setdefault("responses", [f"answer {row}" for row in range(count)])
    return Rollouts(**columns)


def test_accuracy_of_right_and_wrong() -> None:
    found = measure(
        rollouts(
            rewards=[1, 1, 0, 0, 1, 0, 0, 0],
            groups=["a", "a", "b", "b", "c", "c", "c", "c"],
            domains=["m", "m", "m", "m", "x/y", "x/y", None, None],
        )
    )
    assert found["critic/accuracy/mean"] == 3 / 8
    assert found["critic/accuracy/prompt_mean"] == pytest.approx((1 + 0 + 0.25) / 3)
    assert found["critic/accuracy/prompt_std"] == pytest.approx(np.std([1, 0, 0.25]))
    assert (found["critic/rewards/all_solved_ratio"], found["critic/rewards/all_failed_ratio"]) == (1 / 3, 1 / 3)
    assert (found["critic/rewards/zero_std_ratio"], found["critic/rewards/zero_std_count"]) == (2 / 3, 2)
    assert (found["critic/accuracy/m/mean"], found["critic/score/x-y/mean"]) == (0.5, 0.5)
    assert not any("zero_std_low" in name for name in found)


def test_rewards_that_are_not_0_or_1_have_no_accuracy() -> None:
    found = measure(rollouts(rewards=[0.1, 0.1, 0.9, 0.9, 0.2, 0.5], groups=[1, 1, 2, 2, 3, 3]))
    assert not any("accuracy" in name or "solved" in name for name in found)
    assert found["critic/rewards/zero_std_ratio"] == 2 / 3
    assert found["critic/rewards/zero_std_low_ratio"] == found["critic/rewards/zero_std_high_ratio"] == 1 / 3


def test_the_true_score_is_not_the_penalised_reward() -> None:
    found = measure(rollouts(rewards=[0.7, -0.2], scores={"score": [1, 0], "format": [0.5, 0.5]}))
    assert found["critic/accuracy/mean"] == found["critic/score/mean"] == 0.5
    assert found["critic/rewards/mean"] == pytest.approx(0.25)
    assert (found["gdpo/format/mean"], found["gdpo/format/std"], found["gdpo/score/max"]) == (0.5, 0.0, 1.0)
    alone = measure(rollouts(rewards=[0.7, -0.2], scores={"verifier": [1, 0]}))
    assert alone["critic/accuracy/mean"] == 0.5
    several = measure(rollouts(rewards=[0.7, -0.2], scores={"a": [1, 0], "b": [1, 0]}))
    assert several["critic/score/mean"] == pytest.approx(0.25)
    assert "critic/accuracy/mean" not in several


def test_distribution_of_rewards() -> None:
    rewards = [-3, -1, -0.1, 0, 0.25, 0.6, 1, 1, 7]
    found = measure(rollouts(rewards=rewards))
    bins = {name.rpartition("/")[2]: share for name, share in found.items() if "/histogram/" in name}
    expected = {"-inf": 1, "-1": 1, "-0.5": 1, "0": 1, "0.25": 1, "0.5": 1, "0.75": 0, "1": 2, "2": 1}
    assert bins == {name: count / 9 for name, count in expected.items()}
    assert found["critic/rewards/quantile/50"] == 0.25
    assert found["critic/rewards/quantile/5"] == pytest.approx(np.quantile(rewards, 0.05))


def test_a_reward_that_is_no_number_is_heard_of() -> None:
    found = measure(rollouts(rewards=[1.0, math.nan, 1.0, None], groups=["a", "a", "b", "b"]))
    assert math.isnan(found["critic/rewards/mean"])
    assert math.isnan(found["critic/score/mean"])
    assert found["critic/rewards/quantile/50"] == 1.0  # of those that are numbers
    assert found["critic/rewards/zero_std_ratio"] == 0.0
    infinite = measure(rollouts(rewards=[1e308, math.inf, -math.inf, -1e308], groups=["a"] * 4))
    assert math.isnan(infinite["critic/rewards/mean"])
    assert infinite["critic/rewards/max"] == math.inf


def test_missing_rewards_do_not_count() -> None:
    found = measure(rollouts(rewards=[1.0, None, 0.0], groups=["a", "a", "a"]))
    assert found["critic/rewards/mean"] == found["critic/accuracy/prompt_mean"] == 0.5
    assert not any("reward" in name for name in measure(rollouts(rewards=[None, None])))


def test_truncation_by_reason_or_by_length() -> None:
    lengths = [8192, 8191, 40_000, 0, None]
    found = measure(rollouts(lengths=lengths, finish_reasons=["LENGTH", "stop", "length", None, None]))
    assert found["response_length/clip_ratio"] == 2 / 3
    shares = [found[f"response_length/clip_ratio/{limit}"] for limit in (8192, 16_384, 32_768)]
    assert shares == [0.5, 0.25, 0.25]
    assert (found["response_length/max"], found["response_length/min"]) == (40_000, 0)
    assert found["response/aborted_ratio"] == 0.25
    assert measure(rollouts(lengths=lengths), response_limit=8192)["response_length/clip_ratio"] == 0.5
    assert "response_length/clip_ratio" not in measure(rollouts(lengths=lengths))
    assert not any(name.startswith("response_length") for name in measure(rollouts(rewards=[1.0])))


def test_empty_and_identical_responses() -> None:
    responses = ["same", "same", "other", " \n", "same", ""]
    groups = ["a", "a", "a", "b", "b", "b"]
    found = measure(rollouts(responses=responses, groups=groups))
    assert found["response/empty_ratio"] == pytest.approx(2 / 6)
    assert found["response/identical_ratio"] == pytest.approx(2 / 6)  # "same" of b is another prompt's
    assert measure(rollouts(responses=responses))["response/identical_ratio"] == pytest.approx(3 / 6)
    assert (found["rollouts/rows"], found["response_chars/max"]) == (6, 5)


def test_the_advantages_mean() -> None:
    assert measure(rollouts(advantages=[1.0, -0.5, None]))["critic/advantages/seq_mean"] == 0.25
    assert "critic/advantages/seq_mean" not in measure(rollouts(rewards=[1.0]))


def test_nothing_of_no_rows() -> None:
    assert measure(Rollouts(responses=[])) == {}


def test_loops_repeat_themselves_and_prose_does_not() -> None:
    prose = "It is a truth universally acknowledged, that a single man in possession of a good fortune must want one."
    chinese = "".join(chr(0x4E00 + place * 7 % 5000) for place in range(400))
    loops = ["the cat sat on the mat. " * 60, "哈" * 500, "\N{PILE OF POO}" * 300, "\0\ud800" * 400]
    shares = repetition([prose, chinese, *loops])
    assert (shares[:2] < 0.05).all()
    assert (shares[2:] > 0.9).all()
    assert (repetition(["", "short", "x" * GRAM]) == 0).all()


def test_the_share_is_that_of_a_set_of_grams() -> None:
    random = np.random.default_rng(3)
    for size in (17, 100, 5000):
        text = "".join(map(chr, random.integers(97, 99, size)))
        grams = [text[place : place + GRAM] for place in range(size - GRAM + 1)]
        assert repetition([text])[0] == pytest.approx(1 - len(set(grams)) / len(grams))


def test_of_a_huge_text_both_ends_count() -> None:
    half = "".join(map(chr, np.random.default_rng(0).integers(0x4E00, 0x9000, LONGEST // 2)))
    assert repetition([half + "x" * 10_000_000 + half])[0] == pytest.approx(0.5, abs=0.01)


NUMBERS = st.one_of(st.none(), st.floats(width=64), st.sampled_from([0.0, 1.0]))
ROW = st.tuples(
    st.text(max_size=40),
    st.sampled_from(["p", "q", None]),
    NUMBERS,
    NUMBERS,
    st.one_of(st.none(), st.text(max_size=3)),
    st.one_of(st.none(), st.integers(0, 10**6)),
    st.sampled_from(["stop", "length", None]),
)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_whatever_comes_every_metric_is_known_and_possible(rows: list[tuple[Any, ...]]) -> None:
    texts, groups, rewards, scores, domains, lengths, reasons = (list(column) for column in zip(*rows, strict=True))
    found = measure(
        rollouts(
            responses=texts,
            groups=groups,
            rewards=rewards,
            scores={"a/b": scores, "": rewards},
            domains=domains,
            lengths=lengths,
            advantages=scores,
            finish_reasons=reasons,
            repetition=repetition(texts),
        )
    )
    for name, value in found.items():
        metric = lookup(name)
        assert metric is not None, name
        assert math.isnan(value) or metric.allows(value), (name, value)
        assert name.isprintable()


def test_the_edges_in_the_catalogue_are_those_of_the_code() -> None:
    metric = lookup("critic/rewards/histogram/0")
    assert metric is not None
    assert ", ".join(f"{edge:g}" for edge in EDGES) in metric.formula
