"""What practitioners know to be harmless although it looks bad, and to be bad although it looks harmless."""

import math
import random
from collections.abc import Callable, Iterable, Mapping

import pytest

from tocsin_detectors.alerts import Alert, Event, Severity
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import Entry, RunConfig, StepVector

Normal = Callable[[int], dict[str, float]]
Fold = Callable[[Iterable[Entry]], tuple[Engine, list[Event]]]
Fired = Callable[[Iterable[Event]], list[Alert]]

ADVANTAGE = "critic/advantages/mean"


def noise(seed: object, step: int) -> float:
    return random.Random(f"{seed}:{step}").gauss(0, 1)  # noqa: S311 - noise that has to be the same every time


@pytest.fixture
def told(fold: Fold, fired: Fired) -> Callable[..., list[Alert]]:
    """The alerts that a run of so many steps raises, given a function from steps to metrics."""

    def run(
        metrics: Callable[[int], Mapping[str, float]], steps: int = 200, config: RunConfig | None = None
    ) -> list[Alert]:
        log: list[Entry] = [] if config is None else [config]
        return fired(fold([*log, *(StepVector(step, metrics(step)) for step in range(steps))])[1])

    return run


Told = Callable[..., list[Alert]]


def test_a_healthy_run_is_silent(told: Told, normal: Normal):
    assert told(normal, 400) == []


def test_a_kl_that_is_0_during_the_actors_warm_up_and_then_moves(told: Told, normal: Normal):
    """With a learning rate of 0 the KL stays exactly 0; the first values that aren't are no jump."""
    for warm_up in (2, 10, 40):
        alerts = told(
            lambda step, warm_up=warm_up: {
                **normal(step),
                "actor/lr": 0.0 if step < warm_up else 1e-6,
                "actor/kl_loss": 0.0 if step < warm_up else 0.001 * (step - warm_up + 1) ** 0.5,
            }
        )
        assert alerts == []


def test_a_kl_loss_that_moves_before_the_kl_in_the_reward_does(told: Told):
    """The penalty is measured after the rollout and is 0 at the second step too; the loss, in the update, isn't."""
    alerts = told(
        lambda step: {
            "actor/reward_kl_penalty": 0.0 if step < 2 else 0.001 + 1e-5 * step,
            "actor/kl_loss": 0.0 if step < 1 else 0.001 + 1e-5 * step,
        },
        60,
    )
    assert alerts == []


def test_a_lone_kl_spike_heals_by_itself(told: Told, normal: Normal):
    alerts = told(
        lambda step: {**normal(step), "actor/kl_loss": normal(step)["actor/kl_loss"] * (100 if step == 90 else 1)}
    )
    assert [alert for alert in alerts if alert.severity is not Severity.INFO] == []


def test_a_kl_that_grows_slowly_while_the_reward_rises(told: Told, normal: Normal):
    alerts = told(
        lambda step: {**normal(step), "actor/kl_loss": 0.002 * (1 + step / 4) * math.exp(0.08 * noise("kl", step))}
    )
    assert alerts == []


def test_an_entropy_that_declines_by_70_percent_over_200_steps(told: Told, normal: Normal):
    alerts = told(
        lambda step: {**normal(step), "actor/entropy": 0.8 * 0.3 ** (step / 200) * math.exp(0.03 * noise("e", step))}
    )
    assert alerts == []


def test_an_entropy_near_0_is_told_of_only_while_it_buys_no_reward(told: Told):
    def metrics(step: int, *, rising: bool) -> dict[str, float]:
        entropy = 0.5 * math.exp(-step / 30) + 0.004
        reward = 0.2 + (0.004 * step if rising else 0.0) + 0.01 * noise("r", step)
        return {"actor/entropy": entropy, "critic/score/mean": reward}

    assert told(lambda step: metrics(step, rising=True), 170) == []
    assert {alert.rule for alert in told(lambda step: metrics(step, rising=False), 250)} == {"entropy_collapse"}


def test_a_lone_gradient_spike_pages_nobody(told: Told, normal: Normal):
    alerts = told(
        lambda step: {**normal(step), "actor/grad_norm": normal(step)["actor/grad_norm"] * (30 if step == 80 else 1)}
    )
    assert [alert for alert in alerts if alert.severity is Severity.CRITICAL] == []


def test_a_gradient_norm_of_exactly_0_on_a_fifth_of_the_steps(told: Told, normal: Normal):
    """Groups without any spread of rewards give no gradient at all."""
    alerts = told(
        lambda step: {
            **normal(step),
            "actor/grad_norm": 0.0 if noise("zero", step) < -0.84 else normal(step)["actor/grad_norm"],
        }
    )
    assert alerts == []


def test_a_loss_that_starts_at_0_and_rises(told: Told, normal: Normal):
    """TRL's loss is beta times the KL on top of something around 0."""
    alerts = told(lambda step: {**normal(step), "actor/pg_loss": 1e-5 * step + 0.002 * noise("loss", step)})
    assert alerts == []


def test_a_clip_fraction_that_was_always_0_and_jumps(told: Told, normal: Normal):
    alerts = told(
        lambda step: {**normal(step), "actor/pg_clipfrac": 0.0 if step < 80 else 0.3 + 0.01 * noise("c", step)}, 90
    )
    assert [alert.metric for alert in alerts if alert.rule == "clip_fraction_high"] == ["actor/pg_clipfrac"]


def test_a_mean_of_grpo_advantages_over_tokens_may_drift_where_one_over_sequences_may_not(told: Told):
    def over_tokens(step: int) -> dict[str, float]:
        return {ADVANTAGE: -0.3 * step / 200 + 0.02 * noise("a", step)}

    def over_sequences(step: int) -> dict[str, float]:
        return {ADVANTAGE: 0.01 + 1e-4 * noise("a", step)}

    grpo = RunConfig(algorithm="grpo", framework="verl")
    assert told(over_tokens, config=grpo) == []
    for config in (
        RunConfig(algorithm="grpo", framework="slime"),
        RunConfig(algorithm="grpo", framework="verl", advantage_mean="sequence"),
    ):
        alerts = told(over_sequences, 20, config)
        assert [(alert.rule, alert.onset_step) for alert in alerts] == [("grpo_advantage_mean_nonzero", 0)]
    assert told(over_sequences, 20, RunConfig(algorithm="grpo", framework="slime", advantage_mean="token")) == []


def critic_phase(step: int) -> dict[str, float]:
    """60 steps of pretraining, in which the loss falls from 8 to a plateau of 0.5."""
    return {
        "critic/vf_loss": (0.5 + 7.5 * math.exp(-step / 8)) * math.exp(0.04 * noise("v", step)),
        "critic/values/mean": 0.1,
    }


def test_joint_training_above_the_plateau_of_the_critics_pretraining(told: Told, normal: Normal):
    def metrics(step: int, factor: float) -> dict[str, float]:
        if step < 60:
            return critic_phase(step)
        return {
            **normal(step),
            "critic/values/mean": 0.1,
            "critic/vf_loss": factor * 0.5 * math.exp(0.04 * noise("v", step)),
        }

    alerts = told(lambda step: metrics(step, 3.0), 80)
    assert {(alert.rule, alert.metric) for alert in alerts} == {("critic_loss_above_plateau", "critic/vf_loss")}
    assert alerts[0].fired_step <= 70
    assert told(lambda step: metrics(step, 1.1), 200) == []


def test_a_cold_critic_starts_high(told: Told, normal: Normal):
    alerts = told(
        lambda step: {
            **normal(step),
            "critic/vf_loss": (0.3 + 40 * math.exp(-step / 10)) * math.exp(0.05 * noise("v", step)),
        }
    )
    assert alerts == []


def test_a_mismatch_that_is_normal_for_a_mixture_of_experts(told: Told):
    """Without a change, a level that a dense model should not have is no news for a mixture of experts."""
    alerts = told(
        lambda step: {"rollout_corr/k3_kl": 0.01 * math.exp(0.1 * noise("k", step))}, config=RunConfig(profile="moe")
    )
    assert alerts == []


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_collapse_of_the_reward_is_seen_on_any_scale_of_rewards(told: Told, scale: float):
    alerts = told(
        lambda step: {"critic/score/mean": scale * ((0.7 if step < 60 else 0.05) + 0.03 * noise("r", step))}, 70
    )
    assert [(alert.rule, alert.metric) for alert in alerts] == [("reward_collapse", "critic/score/mean")]


def test_negative_rewards_collapse_too(told: Told):
    alerts = told(lambda step: {"critic/score/mean": (-1.0 if step < 60 else -4.0) + 0.05 * noise("r", step)}, 70)
    assert [alert.rule for alert in alerts] == ["reward_collapse"]


def test_a_reward_that_rises_suddenly_is_no_alarm(told: Told):
    assert told(lambda step: {"critic/score/mean": (0.2 if step < 60 else 0.9) + 0.02 * noise("r", step)}) == []


def test_the_frameworks_names_lead_to_the_same_rules(told: Told):
    """TRL's names, told and untold."""
    for config in (None, RunConfig(framework="trl")):
        alerts = told(
            lambda step: {
                "reward": (0.6 if step < 60 else 0.0) + 0.02 * noise("r", step),
                "kl": 0.02 if step < 60 else 2.0 + 0.1 * noise("k", step),
                "entropy": 0.8 + 0.02 * noise("e", step),
                "completions/mean_length": 300.0 + 5 * noise("l", step),
                "grad_norm": 0.3 + 0.02 * noise("g", step),
                "loss": 0.01 * noise("loss", step),
            },
            70,
            config,
        )
        assert {(alert.metric, alert.source) for alert in alerts} >= {
            ("critic/score/mean", "reward"),
            ("actor/kl_loss", "kl"),
        }
