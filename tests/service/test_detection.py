"""Recorded runs of a real trainer: the sabotaged ones are told of in time, the healthy ones wake nobody."""

from __future__ import annotations

from typing import Any

from tocsin_detectors.alerts import AlertEvent, Severity
from tocsin_detectors.engine import Engine
from tocsin_service.commands.verdict import judge

IN_TIME = 5  # logged steps from the first one at which the sabotage shows

# What is told of each sabotage: any of these rules is right. A new recording needs a line here.
RIGHT: dict[str, set[str]] = {
    "collapse_lr_x100": {"kl_collapse", "entropy_collapse", "reward_collapse"},
    "collapse_no_kl_high_lr": {"kl_collapse", "entropy_collapse", "reward_collapse"},
    "collapse_reward_constant": {"reward_collapse"},
    "collapse_reward_broken": {"reward_collapse"},
    "collapse_reward_sign_flipped": {"reward_collapse"},
    "collapse_nan_weights": {"non_finite"},
    "collapse_nan_weights_loss": {"non_finite"},
    "collapse_temperature_mismatch": {"mismatch_kl_rising", "kl_collapse"},
    "ppo_collapse_critic_lr": {"critic_loss_above_plateau"},
    "ppo_collapse_reward_scale": {"critic_loss_above_plateau"},
}


def test_sabotage_is_told_of_in_time(collapse: Any) -> None:
    engine = Engine(collapse.name)
    engine.feed(collapse.config)
    steps = [vector.step for vector in collapse.vectors]
    deadline = steps[min(steps.index(collapse.onset) + IN_TIME, len(steps) - 1)]
    fired = []
    for vector in collapse.vectors:
        events = engine.feed(vector)
        fired += [event for event in events if isinstance(event, AlertEvent) and event.transition == "fired"]
    early = [event.alert.summary for event in fired if event.step < collapse.onset and event.alert.severity != "info"]
    assert not early
    in_time = {event.alert.rule for event in fired if event.step <= deadline}
    assert in_time & RIGHT[collapse.name], [event.alert.summary for event in fired]


def test_healthy_runs_page_nobody(healthy: Any) -> None:
    verdict = judge(healthy.name, healthy.vectors, healthy.config)
    assert verdict.worst is not Severity.CRITICAL, verdict.to_json()
