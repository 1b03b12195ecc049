"""NaN and infinity: told at once, never part of the statistics, and never the reason for going deaf."""

import math
from collections.abc import Callable, Iterable

import pytest

from tocsin_detectors.alerts import Alert, AlertEvent, Event, Severity, Transition
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import Entry, StepVector

Normal = Callable[[int], dict[str, float]]
Fold = Callable[[Iterable[Entry]], tuple[Engine, list[Event]]]
Fired = Callable[[Iterable[Event]], list[Alert]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("metric", "severity"),
    [
        ("actor/pg_loss", Severity.CRITICAL),
        ("actor/grad_norm", Severity.CRITICAL),
        ("actor/kl_loss", Severity.CRITICAL),
        ("critic/vf_loss", Severity.CRITICAL),
        ("critic/grad_norm", Severity.CRITICAL),
        ("response_length/mean", Severity.WARNING),
        ("timing_s/step", Severity.WARNING),
        ("something/of_our_own", Severity.WARNING),
    ],
)
def test_told_at_once_with_the_urgency_of_the_metric(
    metric: str, severity: Severity, value: float, normal: Normal, fold: Fold, fired: Fired
):
    log = [StepVector(step, {**normal(step), metric: 1.0}) for step in range(10)]
    log.append(StepVector(10, {**normal(10), metric: value}))
    _, events = fold(log)
    alerts = fired(event for event in events if event.step == 10)
    assert [(alert.rule, alert.metric, alert.severity) for alert in alerts] == [("non_finite", metric, severity)]
    assert alerts[0].onset_step == alerts[0].fired_step == 10
    assert str(value) in alerts[0].summary


def test_told_once_while_it_lasts_and_resolved_when_all_is_finite_again(normal: Normal, fold: Fold):
    log = [StepVector(step, {**normal(step), "x": math.nan if 5 <= step < 15 else 1.0}) for step in range(40)]
    engine, events = fold(log)
    changes = [(event.transition, event.step) for event in events if isinstance(event, AlertEvent)]
    assert changes == [(Transition.FIRED, 5), (Transition.RESOLVED, 19)]
    assert engine.firing == ()


def test_a_metric_that_never_had_a_number_is_told_of_once(fold: Fold, fired: Fired):
    engine, events = fold(StepVector(step, {"x": math.nan, "loss": 0.1}) for step in range(1000))
    assert [(alert.metric, alert.fired_step) for alert in fired(events)] == [("x", 0)]
    assert len(engine.firing) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_rule_goes_deaf(bad: float, normal: Normal, fold: Fold, fired: Fired):
    """Every metric is NaN from the start, by turns and in the middle; the collapse after it is seen all the same."""
    log: list[Entry] = []
    for step in range(100):
        metrics = normal(step)
        if step >= 90:
            metrics |= {"actor/kl_loss": 3.0, "actor/entropy": 0.01, "critic/score/mean": 0.0}
        elif step < 3 or 50 <= step < 56:
            metrics = dict.fromkeys(metrics, bad)
        elif step % 7 == 0:
            metrics[sorted(metrics)[step % len(metrics)]] = bad
        log.append(StepVector(step, metrics))
    _, events = fold(log)
    late = {alert.rule: alert for alert in fired(event for event in events if event.step >= 90)}
    assert {"kl_collapse", "entropy_collapse", "reward_collapse"} <= late.keys()
    assert all(alert.fired_step <= 93 for alert in late.values())
    evidence = late["kl_collapse"].evidence
    assert evidence.baseline is not None
    assert math.isfinite(evidence.baseline)


def test_finite_values_between_nan_are_judged_as_if_nothing_were_between(normal: Normal, fold: Fold):
    plain, _ = fold(StepVector(2 * step, {"actor/entropy": normal(step)["actor/entropy"]}) for step in range(60))
    holed, _ = fold(
        StepVector(step, {"actor/entropy": normal(step // 2)["actor/entropy"] if step % 2 == 0 else math.nan})
        for step in range(120)
    )
    windows = [
        next(slot[-1]["series"]["window"] for slot in engine.snapshot()["roster"]["slots"]) for engine in (plain, holed)
    ]
    assert windows[0] == windows[1]


def test_a_resume_while_nan_fires(fold: Fold, fired: Fired):
    log = [StepVector(step, {"actor/pg_loss": math.nan}) for step in range(5, 8)]
    log += [StepVector(step, {"actor/pg_loss": 0.1 * step}) for step in range(2, 12)]
    log += [StepVector(12, {"actor/pg_loss": math.nan})]
    engine, events = fold(log)
    assert [(alert.rule, alert.attempt, alert.onset_step) for alert in fired(events)] == [
        ("non_finite", 0, 5),
        ("step_went_back", 1, 2),
        ("non_finite", 1, 12),
    ]
    assert [alert.onset_step for alert in engine.firing] == [12]
