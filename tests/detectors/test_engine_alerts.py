"""The life of an alert, what ends it from outside, and the incident it belongs to."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tocsin_detectors.alerts import (
    Alert,
    AlertEvent,
    Event,
    IncidentEvent,
    Severity,
    State,
    Transition,
)
from tocsin_detectors.algorithms import Bound, LevelShift
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import Entry, Rebaseline, RunConfig, StepVector
from tocsin_detectors.rules import Rule, RuleSet

Normal = Callable[[int], dict[str, float]]
Fold = Callable[[Iterable[Entry]], tuple[Engine, list[Event]]]
Fired = Callable[[Iterable[Event]], list[Alert]]

GONE = {"actor/kl_loss": 3.0, "critic/score/mean": 0.0, "actor/entropy": 0.01}


def rule(**changes: object) -> Rule:
    """A rule with parameters of its own, so that tuning the shipped ones doesn't matter here."""
    fields: dict[str, Any] = {
        "name": "too_high",
        "family": "test",
        "metrics": ("m",),
        "tests": (Bound(above=1.0, severe=10.0),),
        "severity": Severity.WARNING,
        "title": "Too high",
        "meaning": "It is.",
        "remedies": ("Lower it.",),
        "source": "test",
        "signs": 2,
        "among": 3,
        "recovery": 3,
    }
    return Rule(**{**fields, **changes})


def life(values: Iterable[float], **changes: object) -> list[tuple[str, int, str]]:
    """Transition, step and severity of each alert event of one rule over these values."""
    engine = Engine("run", RuleSet([rule(**changes)]))
    return [
        (event.transition.value, event.step, event.alert.severity.value)
        for step, value in enumerate(values)
        for event in engine.feed(StepVector(step, {"m": value}))
        if isinstance(event, AlertEvent)
    ]


def test_signs_pend_until_there_are_enough_among_the_last_values():
    assert life([0, 2, 0, 0, 2, 0, 0]) == []
    assert life([0, 2, 0, 2]) == [("fired", 3, "warning")]
    assert life([0, 2], signs=1, among=1) == [("fired", 1, "warning")]


def test_the_onset_is_the_first_of_the_signs():
    engine = Engine("run", RuleSet([rule()]))
    for step, value in enumerate([2, 0, 0, 2, 0, 2]):
        engine.feed(StepVector(step, {"m": value}))
    assert [(alert.onset_step, alert.fired_step) for alert in engine.firing] == [(3, 5)]


def test_an_alert_ends_after_enough_clear_values_in_a_row():
    assert life([2, 2, 0, 0, 2, 0, 0, 0, 0]) == [("fired", 1, "warning"), ("resolved", 7, "warning")]


def test_a_second_episode_is_a_second_alert():
    events = life([2, 2, 0, 0, 0, 2, 2, 0, 0, 0])
    assert [event[:2] for event in events] == [("fired", 1), ("resolved", 4), ("fired", 6), ("resolved", 9)]


def test_between_sign_and_clear_nothing_changes():
    """Hysteresis: a level-shift test that isn't clear yet keeps the alert, however long that takes."""
    steady = [1.0 + 0.01 * (row % 3) for row in range(20)]
    tests = (LevelShift("up", z=3, relative=1.0),)
    lingering = [*steady, 5.0, 5.0, *[1.8] * 30]
    assert [event[0] for event in life(lingering, tests=tests)] == ["fired"]
    assert [event[:2] for event in life([*lingering, 1.0, 1.0, 1.0], tests=tests)] == [("fired", 21), ("resolved", 54)]


def test_a_severe_value_makes_it_critical_if_the_rule_says_so():
    assert life([2, 20], critical_if_severe=True) == [("fired", 1, "critical")]
    assert life([2, 2, 20, 2], critical_if_severe=True) == [("fired", 1, "warning"), ("escalated", 2, "critical")]
    assert life([2, 20]) == [("fired", 1, "warning")]


def test_a_lasting_sign_makes_it_critical_if_the_rule_says_so():
    assert life([2] * 8, critical_after=5) == [("fired", 1, "warning"), ("escalated", 4, "critical")]


def test_an_alert_carries_what_the_receiver_needs(normal: Normal, fold: Fold, fired: Fired):
    log = [StepVector(step, normal(step) if step < 50 else {**normal(step), **GONE}) for step in range(56)]
    _, events = fold(log)
    for alert in fired(events):
        assert alert.run == "run"
        assert alert.summary.startswith(f"{alert.rule} (")
        assert alert.metric in alert.summary
        assert alert.source == alert.metric
        assert alert.meaning
        assert alert.remedies
        assert 48 <= alert.onset_step <= alert.fired_step
        assert alert.evidence.detail


def test_a_slow_return_resolves_with_the_reason(normal: Normal, fold: Fold):
    log = [StepVector(step, {**normal(step), **(GONE if 50 <= step < 60 else {})}) for step in range(90)]
    engine, events = fold(log)
    ends = [
        event.alert for event in events if isinstance(event, AlertEvent) and event.transition is Transition.RESOLVED
    ]
    assert {"kl_collapse", "entropy_collapse", "reward_collapse"} <= {alert.rule for alert in ends}
    assert {alert.reason for alert in ends} == {"recovered"}
    assert all(alert.state is State.RESOLVED and alert.resolved_step is not None for alert in ends)
    assert engine.firing == ()
    assert engine.incidents == ()


# What ends it from outside


@pytest.mark.parametrize("metric", [None, "actor/kl_loss"])
def test_a_new_normal_resolves_and_is_not_fired_upon_again(metric: str | None, normal: Normal, fold: Fold):
    raised = {"actor/kl_loss": 0.8}
    log: list[Entry] = [
        StepVector(step, normal(step) if step < 50 else {**normal(step), **raised}) for step in range(60)
    ]
    engine, _ = fold(log)
    assert [alert.rule for alert in engine.firing] == ["kl_collapse"]
    resolved = [event for event in engine.feed(Rebaseline(metric)) if isinstance(event, AlertEvent)]
    assert [(event.transition, event.alert.reason) for event in resolved] == [(Transition.RESOLVED, "rebaselined")]
    assert engine.firing == ()
    assert engine.incidents == ()
    for step in range(60, 120):
        assert engine.feed(StepVector(step, {**normal(step), "actor/kl_loss": 0.8 * (1 + 0.02 * (step % 3))})) == []
    again = [event for step in range(120, 130) for event in engine.feed(StepVector(step, {"actor/kl_loss": 9.0}))]
    assert "kl_collapse" in {event.alert.rule for event in again if isinstance(event, AlertEvent)}


def test_a_new_normal_of_another_metric_changes_nothing(normal: Normal, fold: Fold):
    engine, _ = fold(
        StepVector(step, normal(step) if step < 50 else {**normal(step), "actor/kl_loss": 0.8}) for step in range(60)
    )
    assert engine.feed(Rebaseline("actor/entropy")) == []
    assert engine.feed(Rebaseline("no such metric")) == []
    assert [alert.rule for alert in engine.firing] == ["kl_collapse"]


def test_a_new_temperature_begins_the_baselines_that_it_touches_anew(normal: Normal):
    def run(*, told: bool) -> list[Event]:
        engine = Engine("run")
        events = engine.feed(RunConfig(temperature=1.0))
        for step in range(100):
            if step == 50 and told:
                events += engine.feed(RunConfig(temperature=0.6))
            metrics = normal(step)
            if step >= 50:
                metrics |= {
                    "actor/entropy": metrics["actor/entropy"] * 0.3,
                    "actor/kl_loss": metrics["actor/kl_loss"] * 8,
                }
            events += engine.feed(StepVector(step, metrics))
        return events

    assert run(told=False)
    assert run(told=True) == []


def test_an_unchanged_temperature_or_another_setting_changes_no_baseline(normal: Normal, fold: Fold):
    steps = [StepVector(step, normal(step)) for step in range(50)]
    plain, _ = fold([RunConfig(temperature=1.0), *steps])
    told, _ = fold([RunConfig(temperature=1.0), *steps, RunConfig(temperature=1.0, labels={"team": "a"})])
    assert told.snapshot()["roster"] == plain.snapshot()["roster"]
    assert told.config.labels == {"team": "a"}


# Incidents


def incident_events(events: Iterable[Event]) -> list[IncidentEvent]:
    return [event for event in events if isinstance(event, IncidentEvent)]


def test_what_breaks_together_is_one_critical_model_collapse(normal: Normal, fold: Fold, fired: Fired):
    """Entropy falls first, KL and reward follow."""
    log: list[Entry] = []
    for step in range(70):
        metrics = normal(step)
        metrics |= {"actor/entropy": 0.01} if step >= 50 else {}
        metrics |= {"actor/kl_loss": 3.0} if step >= 52 else {}
        metrics |= {"critic/score/mean": 0.0} if step >= 53 else {}
        log.append(StepVector(step, metrics))
    engine, events = fold(log)
    assert len(engine.incidents) == 1
    incident = engine.incidents[0]
    assert (incident.rule, incident.severity) == ("model_collapse", Severity.CRITICAL)
    alerts = {alert.id: alert for alert in fired(events)}
    members = [alerts[member] for member in incident.members]
    assert [alert.rule for alert in members][:3] == ["entropy_collapse", "kl_collapse", "reward_collapse"]
    assert [alert.onset_step for alert in members] == sorted(alert.onset_step for alert in members)
    assert incident.first_sign == members[0].id
    assert (incident.onset_step, incident.last_good_step) == (50, 49)
    assert {alert.incident for alert in members} == {incident.id}
    assert incident.title
    assert incident.meaning
    assert incident.remedies
    told = incident_events(events)
    assert told[0].transition is Transition.FIRED
    assert len([event for event in told if event.transition is Transition.ESCALATED]) <= 2
    assert any(event.incident.rule == "model_collapse" and event.step <= 55 for event in told)


def test_a_single_family_is_an_incident_of_one_member(normal: Normal, fold: Fold):
    log = [StepVector(step, {**normal(step), **({"actor/kl_loss": 0.3} if step >= 50 else {})}) for step in range(56)]
    engine, _ = fold(log)
    assert [incident.rule for incident in engine.incidents] == ["kl_collapse"]
    assert engine.incidents[0].members == (engine.firing[0].id,)
    assert engine.incidents[0].severity is engine.firing[0].severity


def test_what_is_far_apart_are_two_incidents(normal: Normal, fold: Fold):
    log: list[Entry] = []
    for step in range(140):
        metrics = normal(step)
        metrics |= {"actor/grad_norm": metrics["actor/grad_norm"] * 30} if 50 <= step < 56 else {}
        metrics |= {"response_length/mean": 20.0} if step >= 100 else {}
        log.append(StepVector(step, metrics))
    _, events = fold(log)
    opened = [event.incident for event in incident_events(events) if event.transition is Transition.FIRED]
    assert [(incident.rule, incident.onset_step) for incident in opened] == [
        ("grad_norm_spike", 50),
        ("length_shift", 100),
    ]
    assert opened[0].id != opened[1].id


def test_an_incident_ends_when_its_last_member_does(normal: Normal, fold: Fold):
    log: list[Entry] = []
    for step in range(110):
        metrics = normal(step)
        metrics |= {"actor/kl_loss": 3.0} if 50 <= step < 60 else {}
        metrics |= {"critic/score/mean": 0.0} if 50 <= step < 75 else {}
        log.append(StepVector(step, metrics))
    _, events = fold(log)
    ends = [event for event in events if event.transition is Transition.RESOLVED]
    assert len(ends) >= 3
    assert isinstance(ends[-1], IncidentEvent)
    assert [event for event in ends if isinstance(event, IncidentEvent)] == [ends[-1]]
    assert ends[-1].incident.state is State.RESOLVED
    assert ends[-1].incident.resolved_step == ends[-1].step > 75
    assert ends[-1].incident.rule == "model_collapse", "what once was a collapse stays one"


def test_wrong_from_the_start_has_no_last_good_step(fold: Fold):
    engine, _ = fold(StepVector(step, {"actor/grad_norm": float("nan")}) for step in range(3))
    assert [incident.last_good_step for incident in engine.incidents] == [None]


@pytest.mark.parametrize("back", range(96, 130))
def test_a_metric_may_come_back_at_any_step(back: int, fold: Fold, fired: Fired):
    """Also at the very step of the look that would have missed it."""
    log = [
        StepVector(step, {"a": float(step % 7)} | ({} if 80 <= step < back else {"b": float(step % 3)}))
        for step in range(200)
    ]
    engine, events = fold(log)
    assert {alert.rule for alert in fired(events)} <= {"metric_missing"}
    assert bool(fired(events)) == (back > 112)
    assert not engine.firing
