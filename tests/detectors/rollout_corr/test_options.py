"""Options: what is valid, what is refused, and that a refusal names the option and lists what is valid."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")

from tocsin_detectors.rollout_corr import REJECTIONS, OptionError, Options
from tocsin_detectors.rollout_corr.thresholds import Interval


@pytest.mark.parametrize(
    ("threshold", "interval"),
    [
        (2, Interval(None, 2.0)),
        (2.5, Interval(None, 2.5)),
        (" 2.0 ", Interval(None, 2.0)),
        ("0.5_5.0", Interval(0.5, 5.0)),
        ("1e-1_1e1", Interval(0.1, 10.0)),
        ("inf", Interval(None, math.inf)),
        ("0.5_5_0", Interval(0.5, 50.0)),
    ],
)
def test_bounds_of_weights(threshold: Any, interval: Interval) -> None:
    assert Options(rollout_is="token", rollout_is_threshold=threshold).truncation == interval


@pytest.mark.parametrize("threshold", ["a", "", 0.0, -1, "2_1", "0_1", "1_000", True, [1.0], "0.5_x", "_", "1_", "_1"])
def test_invalid_bounds_of_weights(threshold: Any) -> None:
    with pytest.raises(OptionError, match=r"rollout_is_threshold is .*; valid: a number > 0, or 'lower_upper'"):
        Options(rollout_is="token", rollout_is_threshold=threshold)


@pytest.mark.parametrize("threshold", ["nan", "0.5_5_0", "nan_2", None])
def test_strict_refuses_what_verl_takes(threshold: Any) -> None:
    Options(rollout_is="token", rollout_is_threshold=threshold)
    with pytest.raises(OptionError, match="rollout_is_threshold"):
        Options(compat="strict", rollout_is="token", rollout_is_threshold=threshold)


def test_intervals_of_k1_are_inverted_by_verl_and_as_documented_in_strict() -> None:
    """ "0.6_1.4" keeps ratios in [1/1.4, 1/0.6] in verl, whose documents say [0.6, 1.4]."""
    (verl,) = Options(rollout_rs="token_k1", rollout_rs_threshold="0.6_1.4").rejections
    (strict,) = Options(compat="strict", rollout_rs="token_k1", rollout_rs_threshold="0.6_1.4").rejections
    assert (verl.lower, verl.upper) == (math.log(0.6), math.log(1.4))
    assert (strict.lower, strict.upper) == (-math.log(1.4), -math.log(0.6))


def test_one_number_for_k1_is_an_upper_bound_and_its_reciprocal() -> None:
    (option,) = Options(rollout_rs="seq_sum_k1", rollout_rs_threshold=3).rejections
    assert option.upper == pytest.approx(math.log(3))
    assert option.lower == pytest.approx(-math.log(3))


def test_thresholds_are_shared_or_one_for_each_different_option() -> None:
    shared = Options(rollout_rs="token_k2, token_k3 ,token_k2", rollout_rs_threshold=2.0).rejections
    assert [(option.name, option.upper) for option in shared] == [("token_k2", 2.0), ("token_k3", 2.0)]
    each = Options(rollout_rs="token_k2,token_k3,token_k2", rollout_rs_threshold="1, 2").rejections
    assert [(option.name, option.upper) for option in each] == [("token_k2", 1.0), ("token_k3", 2.0)]
    every = Options(rollout_rs=",".join(REJECTIONS), rollout_rs_threshold=2.0).rejections
    assert [option.name for option in every] == list(REJECTIONS)
    assert len(REJECTIONS) == 11


@pytest.mark.parametrize(
    ("options", "threshold"),
    [
        ("token", "0.5_2"),
        ("geometric", 1.001),
        ("seq_max_k1", "0.5_2.0"),
        ("TOKEN_K1", "0.5_2.0"),
        ("", 1.0),
        (" , ", 1.0),
        ("token_k1", None),
        ("token_k1", 0),
        ("token_k1", "abc"),
        ("token_k1", 0.5),
        ("token_k1", "2_0.5"),
        ("token_k1", "0.5_x"),
        ("token_k1", ","),
        ("token_k1", True),
        ("token_k1", [1]),
        ("token_k1", "inf"),
        ("token_k2", "0.5_2.0"),
        ("token_k2", -1),
        ("token_k2", ""),
        ("token_k1,token_k2,token_k3", "1,2"),
    ],
)
def test_invalid_rejections(options: str, threshold: Any) -> None:
    with pytest.raises(OptionError, match=r"rollout_rs.*(valid|send)"):
        Options(rollout_rs=options, rollout_rs_threshold=threshold)


@pytest.mark.parametrize(
    "values",
    [
        {"compat": "strange"},
        {"metrics": ["off_policy", "nonsense"]},
        {"metrics": "off_policy"},
        {"rollout_is": "geometric"},
        {"rollout_is": 1},
        {"kl_estimators": ["k9"]},
        {"entropy_aggregation": "mean"},
        {"clip_low": 1.0},
        {"clip_high": "wide"},
        {"limits": [8192, 4096]},
        {"limits": [0.5]},
        {"return_mask": "yes"},
        {"domains": "math"},
        {"unheard_of": 1},
    ],
)
def test_invalid_values_name_the_option(values: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=rf"{next(iter(values))}.*valid"):
        Options.parse(values)


def test_parsed_options_are_those_written_in_python() -> None:
    parsed = Options.parse({"metrics": ["is"], "rollout_is": "token", "limits": [10, 20], "compat": "strict"})
    assert parsed == Options(metrics=("is",), rollout_is="token", limits=(10, 20), compat="strict")
    assert Options.parse({}) == Options()
