"""Every shipped rule, on a scenario that it has to find and on one that it has to be silent about.

The changes are big and obvious, the harmless ones plainly harmless: the scenarios say what a rule is for, and leave its
thresholds free.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from tocsin_detectors.alerts import Alert, AlertEvent, Severity, Transition
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_detectors.rules import shipped_rules

Curve: TypeAlias = Callable[[int], float]


def noise(seed: object, step: int) -> float:
    """Standard normal noise, the same for the same metric and step every time."""
    return random.Random(f"{seed}:{step}").gauss(0, 1)  # noqa: S311 - noise that has to be the same every time


def level(value: float, share: float = 0.04) -> Curve:
    """Noise of a share of the value around it."""
    return lambda step: value * (1 + share * noise(value, step))


def exactly(value: float) -> Curve:
    return lambda _: value


def zero_mean(size: float) -> Curve:
    return lambda step: size * noise(size, step)


def jump(before: float, after: float, at: int = 60) -> Curve:
    return lambda step: (level(before) if step < at else level(after))(step)


def switch(before: Curve, after: Curve, at: int = 60) -> Curve:
    return lambda step: (before if step < at else after)(step)


def growth(start: float, end: float, begin: int = 0, stop: int = 200) -> Curve:
    """From one value to another by equal factors, with noise."""

    def curve(step: int) -> float:
        part = min(max((step - begin) / (stop - begin), 0), 1)
        return start * (end / start) ** part * (1 + 0.04 * noise(start, step))

    return curve


def spikes(base: float, peak: float, at: tuple[int, ...]) -> Curve:
    return lambda step: peak if step in at else level(base)(step)


def lengths(most: Curve) -> dict[str, Curve]:
    rest = {"global_seqlen/balanced_min": level(1000, 0.001), "global_seqlen/mean": level(1010, 0.001)}
    return {"global_seqlen/balanced_max": most, **rest}


@dataclass(frozen=True)
class Fires:
    """Curves by metric. ``metric`` must be alerted upon by the rule, in the steps from ``at`` to ``at + within``."""

    metric: str
    curves: Mapping[str, Curve]
    at: int = 60
    within: int = 6
    config: RunConfig = field(default_factory=RunConfig)


@dataclass(frozen=True)
class Quiet:
    """Curves by metric on which no rule may say anything, but those in ``others``."""

    curves: Mapping[str, Curve]
    steps: int = 200
    config: RunConfig = field(default_factory=RunConfig)
    others: tuple[str, ...] = ()


GRPO = RunConfig(algorithm="grpo", group_size=8, temperature=1.0)
PPO = RunConfig(algorithm="ppo", whitened_advantages=True)
RAW_PPO = RunConfig(algorithm="ppo", whitened_advantages=False)
KL = "actor/kl_loss"
PENALTY = "actor/reward_kl_penalty"
REWARD = "critic/score/mean"
ENTROPY = "actor/entropy"
GRADIENT = "actor/grad_norm"
LENGTH = "response_length/mean"
LOSS = "actor/pg_loss"
CLIPPED = "actor/pg_clipfrac"
CRITIC = "critic/vf_loss"
ADVANTAGE = "critic/advantages"
GAP = "rollout_corr/kl"
K3 = "rollout_corr/k3_kl"
VALIDATION = "val-core/gsm8k/reward/mean@8"
RISING = growth(0.2, 0.9, 0, 120)
# A critic only reports these; with the actor's loss beside it, both train.
JOINT: dict[str, Curve] = {LOSS: zero_mean(0.01)}


def bounded(metric: str, normal: float, abnormal: float, **more: Any) -> tuple[Fires, Quiet]:
    """A metric that is plainly within what is normal, and one that leaves it for good."""
    return Fires(metric, {metric: jump(normal, abnormal)}, **more), Quiet({metric: level(normal)})


# What each rule is for.
SCENARIOS: dict[str, tuple[Fires, Quiet]] = {
    # KL against the reference
    "kl_collapse": (Fires(KL, {KL: jump(0.02, 1.0)}), Quiet({KL: growth(0.001, 0.05)})),
    "kl_runaway": (
        Fires(KL, {KL: growth(0.05, 3.0, 20, 160), REWARD: level(0.5)}, at=60, within=140),
        Quiet({KL: growth(0.05, 0.4, 20, 140), REWARD: RISING}),
    ),
    "kl_high_from_start": (Fires(KL, {KL: level(4.0)}, at=0), Quiet({KL: level(0.002)})),
    "kl_spikes": (
        Fires(KL, {KL: spikes(0.02, 2.0, (60, 66, 73, 79, 85, 92, 97))}, at=66, within=40),
        Quiet({KL: spikes(0.02, 2.0, (60,))}),
    ),
    "kl_off_target": (
        Fires("kl_over_target", {PENALTY: growth(0.1, 0.9, 60, 100)}, within=80, config=RunConfig(target_kl=0.1)),
        Quiet({PENALTY: level(0.1)}, config=RunConfig(target_kl=0.1)),
    ),
    "kl_frozen": (Fires(KL, {KL: switch(level(0.02), exactly(0.0))}, within=30), Quiet({KL: level(0.02)})),
    "kl_estimators_disagree": (
        Fires("kl_estimators_ratio", {KL: level(0.02), PENALTY: level(0.4)}, at=50, within=30),
        Quiet({KL: level(0.02), PENALTY: level(0.021)}),
    ),
    # Rewards
    "reward_collapse": (Fires(REWARD, {REWARD: jump(0.7, 0.0)}), Quiet({REWARD: growth(0.2, 0.8)})),
    "reward_decline": (
        Fires(REWARD, {REWARD: lambda s: (1.0 if s < 60 else 0.58) + 0.2 * noise("r", s)}, within=40),
        Quiet({REWARD: lambda s: 1.0 + 0.2 * noise("r", s)}),
    ),
    "reward_collapse_by_domain": (
        Fires("critic/score/math/mean", {REWARD: level(0.6), "critic/score/math/mean": jump(0.7, 0.05)}, within=8),
        Quiet({REWARD: level(0.6), "critic/score/math/mean": level(0.7)}),
    ),
    "reward_saturated": bounded("critic/rewards/zero_std_ratio", 0.3, 0.99, within=20),
    "reward_floor": (
        Fires(REWARD, {REWARD: switch(level(0.5), exactly(0.0)), "critic/rewards/std": jump(0.3, 0.0)}, within=20),
        Quiet({REWARD: level(0.5), "critic/rewards/std": level(0.3)}),
    ),
    "reward_std_cliff": bounded("critic/rewards/std", 0.4, 0.005, within=15),
    "likelihood_falls": (
        Fires(
            "actor/nll_loss",
            {"actor/nll_loss": growth(0.5, 6, 30, 140), REWARD: growth(0.1, 0.9, 0, 160)},
            at=45,
            within=90,
        ),
        Quiet({"actor/nll_loss": growth(2.0, 0.5), REWARD: RISING}),
    ),
    "reward_hacking": (
        Fires(VALIDATION, {VALIDATION: growth(0.6, 0.1, 60, 120), REWARD: growth(0.2, 0.9, 0, 160)}, within=60),
        Quiet({VALIDATION: growth(0.3, 0.6), REWARD: RISING}),
    ),
    "validation_drop": (
        Fires(VALIDATION, {VALIDATION: jump(0.6, 0.2)}, within=6),
        Quiet({VALIDATION: growth(0.3, 0.6)}),
    ),
    # Entropy and length
    "entropy_collapse": (Fires(ENTROPY, {ENTROPY: jump(0.9, 0.05)}), Quiet({ENTROPY: growth(1.0, 0.3)})),
    "entropy_explosion": (Fires(ENTROPY, {ENTROPY: jump(0.5, 6.0)}), Quiet({ENTROPY: growth(0.4, 0.6)})),
    "length_shift": (Fires(LENGTH, {LENGTH: jump(300, 1800)}), Quiet({LENGTH: growth(300, 700)})),
    "truncation_high": bounded("response_length/clip_ratio", 0.05, 0.9),
    "aborted_high": bounded("response/aborted_ratio", 0.001, 0.3),
    "prompt_truncated": (
        Fires("prompt_length/clip_ratio", {"prompt_length/clip_ratio": switch(exactly(0.0), level(0.1))}, within=16),
        Quiet({"prompt_length/clip_ratio": exactly(0.0)}),
    ),
    # Training engine against inference engine
    "mismatch_kl_rising": (Fires(K3, {K3: jump(0.001, 0.02)}), Quiet({K3: growth(0.0012, 0.0021)})),
    "mismatch_kl_gross": (Fires(GAP, {GAP: level(0.5)}, at=0), Quiet({GAP: level(0.001)})),
    "mismatch_kl_spike": (
        Fires(K3, {K3: spikes(0.001, 0.5, (60, 64, 69, 75, 80, 86, 91))}, at=66, within=40),
        Quiet({K3: spikes(0.001, 0.5, (60,))}),
    ),
    "probs_diff_high": bounded("training/rollout_probs_diff_mean", 0.003, 0.04),
    "logprob_diff_high": bounded("rollout_corr/logprob_abs_diff_mean", 0.01, 0.6),
    "mult_prob_error_high": (
        Fires(
            "rollout_corr/mult_prob_error",
            {"rollout_corr/mult_prob_error": lambda s: (1.01 if s < 60 else 1.4) + 0.002 * noise("e", s)},
        ),
        Quiet({"rollout_corr/mult_prob_error": lambda s: 1.01 + 0.002 * noise("e", s)}),
    ),
    "logit_error_rising": (
        Fires(
            "logit_error_std",
            {GAP: growth(2e-4, 0.02, 30, 140), K3: level(1e-4)},
            at=40,
            within=90,
            config=RunConfig(temperature=1.0),
        ),
        Quiet({GAP: level(2e-4)}, config=RunConfig(temperature=1.0)),
    ),
    "mismatch_selfcheck": (
        Fires("k1_against_k3", {GAP: level(0.03), K3: level(0.001)}, at=5, within=20),
        Quiet({GAP: level(0.001), K3: level(0.00102)}),
    ),
    "mismatch_ppl_identity": (
        Fires("ppl_gap_against_kl", {GAP: level(0.002), "rollout_corr/log_ppl_diff": level(0.05)}, at=5, within=20),
        Quiet({GAP: level(0.002), "rollout_corr/log_ppl_diff": level(0.00201)}),
    ),
    "is_weight_off_one": bounded("rollout_corr/rollout_is_mean", 1.0, 3.0),
    "ess_low": bounded("rollout_corr/rollout_is_eff_sample_size", 0.9, 0.1),
    "is_out_of_bounds": bounded("rollout_corr/rollout_is_oob_ratio", 0.01, 0.4),
    "rejection_high": bounded("rollout_corr/rollout_rs_masked_fraction", 0.02, 0.9),
    "chi2_explosion": bounded("rollout_corr/chi2_token", 0.02, 5.0),
    "extreme_tokens_rising": bounded("rollout_corr/extreme_token_fraction_training", 0.001, 0.2),
    "probs_correlation_low": (
        Fires(
            "training/rollout_actor_probs_pearson_corr",
            {"training/rollout_actor_probs_pearson_corr": lambda s: (0.995 if s < 60 else 0.6) + 0.001 * noise("c", s)},
        ),
        Quiet({"training/rollout_actor_probs_pearson_corr": lambda s: 0.995 + 0.001 * noise("c", s)}),
    ),
    # The actor's update
    "actor_loss_jump": (
        Fires(LOSS, {LOSS: lambda s: (0.0 if s < 60 else 1.5) + 0.01 * noise("l", s)}, within=8),
        Quiet({LOSS: zero_mean(0.01)}),
    ),
    "actor_loss_rising": (
        Fires(LOSS, {LOSS: lambda s: 0.003 * max(s - 40, 0) + 0.01 * noise("l", s)}, at=60, within=120),
        Quiet({LOSS: zero_mean(0.01)}),
    ),
    "actor_loss_sign": (
        Fires("loss_times_advantage", {LOSS: level(0.3), f"{ADVANTAGE}/mean": level(0.3)}, at=0, within=30),
        Quiet({LOSS: level(-0.3), f"{ADVANTAGE}/mean": level(0.3)}),
    ),
    "loss_spike": (Fires("actor/nll_loss", {"actor/nll_loss": jump(0.8, 9.0)}), Quiet({"actor/nll_loss": level(0.8)})),
    "grad_norm_spike": (
        Fires(GRADIENT, {GRADIENT: jump(0.3, 30.0)}),
        Quiet({GRADIENT: lambda s: 0.3 * math.exp(0.3 * noise("g", s))}),
    ),
    "grad_norm_rising": (
        Fires(GRADIENT, {GRADIENT: growth(0.2, 6, 40, 160)}, at=60, within=100),
        Quiet({GRADIENT: growth(0.6, 0.2)}),
    ),
    "grad_norm_drop": (Fires(GRADIENT, {GRADIENT: jump(0.3, 0.02)}, within=12), Quiet({GRADIENT: level(0.3)})),
    "grad_norm_zero": (
        Fires(GRADIENT, {GRADIENT: switch(level(0.3), exactly(0.0))}, within=24),
        Quiet({GRADIENT: lambda s: 0.0 if s % 5 == 2 else level(0.3)(s)}),
    ),
    "ratio_variance_growing": (
        Fires("actor/ratio_var", {"actor/ratio_var": growth(0.001, 1.0, 20, 120)}, at=40, within=100),
        Quiet({"actor/ratio_var": level(0.001)}),
    ),
    "clip_fraction_high": bounded(CLIPPED, 0.01, 0.4),
    "first_minibatch_ratio_not_one": (
        Fires("actor/first_ratio_deviation", {"actor/first_ratio_deviation": switch(exactly(0.0), level(0.2))}),
        Quiet({"actor/first_ratio_deviation": zero_mean(1e-5)}),
    ),
    # The critic
    "critic_loss_above_plateau": (
        Fires(CRITIC, {CRITIC: switch(growth(8.0, 0.3, 0, 40), level(3.0), 80), **JOINT}, at=80, within=10),
        Quiet({CRITIC: growth(8.0, 0.3, 0, 40), **JOINT}),
    ),
    "critic_loss_rising": (
        Fires(CRITIC, {CRITIC: growth(0.3, 0.58, 50, 160), **JOINT}, at=60, within=100),
        Quiet({CRITIC: growth(8.0, 0.3, 0, 40), **JOINT}),
    ),
    "critic_explained_variance_low": (
        Fires("critic/vf_explained_var", {"critic/vf_explained_var": jump(0.7, -0.5)}, within=16),
        Quiet({"critic/vf_explained_var": level(0.7)}),
    ),
    "critic_clip_high": bounded("critic/vf_clipfrac", 0.05, 0.8, within=16),
    # Advantages
    "grpo_advantage_mean_nonzero": (
        Fires(
            f"{ADVANTAGE}/mean", {f"{ADVANTAGE}/mean": level(0.01)}, at=0, config=RunConfig("grpo", framework="slime")
        ),
        Quiet({f"{ADVANTAGE}/mean": zero_mean(1e-7)}, config=RunConfig("grpo", framework="slime")),
    ),
    "advantage_degenerate_group": (
        Fires(
            f"{ADVANTAGE}/degenerate_groups",
            {f"{ADVANTAGE}/degenerate_groups": switch(exactly(0.0), exactly(3.0))},
            config=GRPO,
        ),
        Quiet({f"{ADVANTAGE}/degenerate_groups": exactly(0.0)}, config=GRPO),
    ),
    "ppo_advantage_mean_nonzero": (
        Fires(
            f"{ADVANTAGE}/mean",
            {CRITIC: level(0.3), f"{ADVANTAGE}/mean": level(0.3), **JOINT},
            at=0,
            within=20,
            config=PPO,
        ),
        Quiet({CRITIC: level(0.3), f"{ADVANTAGE}/mean": zero_mean(1e-4), **JOINT}, config=PPO),
    ),
    "advantage_out_of_bounds": (
        Fires(
            "advantage_over_bound", {f"{ADVANTAGE}/max": jump(2.0, 9.0), f"{ADVANTAGE}/min": level(-2.0)}, config=GRPO
        ),
        Quiet({f"{ADVANTAGE}/max": level(2.0), f"{ADVANTAGE}/min": level(-2.0)}, config=GRPO),
    ),
    "advantage_equals_reward": (
        Fires(
            "advantage_minus_score",
            {
                f"{kind}/{part}": level(value)
                for kind in (ADVANTAGE, "critic/score")
                for part, value in (("max", 1.0), ("min", -1.0), ("mean", 0.2))
            },
            at=0,
            within=12,
        ),
        Quiet(
            {
                f"{ADVANTAGE}/max": level(1.8),
                f"{ADVANTAGE}/min": level(-1.7),
                f"{ADVANTAGE}/mean": zero_mean(0.01),
                "critic/score/max": exactly(1.0),
                "critic/score/min": exactly(0.0),
                REWARD: level(0.4),
            }
        ),
    ),
    "advantage_variance_growing": (
        Fires(
            "advantage_range",
            {f"{ADVANTAGE}/max": growth(1, 20, 20, 120), f"{ADVANTAGE}/min": growth(-1, -20, 20, 120)},
            at=40,
            within=90,
            config=RAW_PPO,
        ),
        Quiet({f"{ADVANTAGE}/max": level(2.0), f"{ADVANTAGE}/min": level(-2.0)}, config=RAW_PPO),
    ),
    # Throughput
    "throughput_drop": bounded("perf/throughput", 5000, 1000, within=16),
    "step_time_up": bounded("timing_s/step", 40, 200, within=16),
    "mfu_drop": bounded("perf/mfu/actor", 0.4, 0.1, within=16),
    "memory_creep": (
        Fires(
            "perf/max_memory_allocated_gb",
            {"perf/max_memory_allocated_gb": growth(30, 140, 30, 180)},
            at=60,
            within=150,
        ),
        Quiet({"perf/max_memory_allocated_gb": level(60)}),
    ),
    "load_imbalance": (
        Fires("seqlen_imbalance", lengths(jump(1020, 2000)), within=20),
        Quiet(lengths(level(1020, 0.001))),
    ),
}


def alerts_of(curves: Mapping[str, Curve], steps: int, config: RunConfig | None = None) -> Iterator[Alert]:
    """The alerts as they fire on these curves."""
    engine = Engine("run")
    entries = [
        *([config] if config else []),
        *(StepVector(s, {n: c(s) for n, c in curves.items()}) for s in range(steps)),
    ]
    for entry in entries:
        for event in engine.feed(entry):
            if isinstance(event, AlertEvent) and event.transition is Transition.FIRED:
                yield event.alert


def test_every_shipped_rule_has_its_scenarios():
    testable = {rule.name for rule in shipped_rules() if rule.tests}
    assert testable == set(SCENARIOS), "give each rule a scenario in which it fires and one in which it doesn't"


@pytest.mark.parametrize("rule", SCENARIOS)
def test_fires_on_the_right_metric_in_time_and_not_before(rule: str):
    case, _ = SCENARIOS[rule]
    alerts = [alert for alert in alerts_of(case.curves, case.at + case.within + 1, case.config) if alert.rule == rule]
    assert alerts, f"{rule} doesn't fire"
    assert {alert.metric for alert in alerts} == {case.metric}
    assert alerts[0].fired_step >= case.at
    assert alerts[0].family == shipped_rules()[rule].family
    assert alerts[0].evidence.detail


@pytest.mark.parametrize("rule", SCENARIOS)
def test_stays_quiet_on_what_is_harmless(rule: str):
    _, case = SCENARIOS[rule]
    alerts = [alert for alert in alerts_of(case.curves, case.steps, case.config) if alert.rule not in case.others]
    assert [alert.summary for alert in alerts] == []


@pytest.mark.parametrize("rule", [rule for rule in shipped_rules() if rule.tests], ids=lambda rule: rule.name)
def test_a_lone_outlier_of_any_watched_metric_pages_nobody(rule: Any):
    """One value a hundred times too large, in the middle of a run that is otherwise still."""
    case = SCENARIOS[rule.name][1]
    for name in case.curves:
        curve = case.curves[name]
        curves = {**case.curves, name: lambda step, curve=curve: 100 * curve(step) if step == 120 else curve(step)}
        alerts = list(alerts_of(curves, 200, case.config))
        assert [alert.summary for alert in alerts if alert.severity is Severity.CRITICAL] == []
