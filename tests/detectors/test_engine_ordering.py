"""Where a vector belongs: repeats, late ones, replays, resumes, and the trainer's own attempt numbers."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tocsin_detectors.alerts import Alert, AlertEvent, Event, IncidentEvent, Transition
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import Entry, StepVector

Normal = Callable[[int], dict[str, float]]
Fold = Callable[[Iterable[Entry]], tuple[Engine, list[Event]]]
Fired = Callable[[Iterable[Event]], list[Alert]]


def broken(metrics: dict[str, float]) -> dict[str, float]:
    return {**metrics, "actor/kl_loss": 3.0, "critic/score/mean": 0.0}


def test_a_repeated_vector_changes_nothing(normal: Normal, fold: Fold):
    once, events = fold(StepVector(step, normal(step), time=step) for step in range(60))
    thrice, same = fold(vector for step in range(60) for vector in [StepVector(step, normal(step), time=step)] * 3)
    assert thrice.snapshot() == once.snapshot()
    assert same == events


def test_a_repeat_of_an_earlier_step_changes_nothing(normal: Normal, fold: Fold):
    engine, _ = fold(StepVector(step, normal(step)) for step in range(30))
    before = json.dumps(engine.snapshot())
    assert [event for step in (5, 29, 0, 17) for event in engine.feed(StepVector(step, normal(step)))] == []
    assert json.dumps(engine.snapshot()) == before


def test_replayed_history_changes_nothing_and_the_run_goes_on(normal: Normal, fold: Fold):
    history = [StepVector(step, normal(step)) for step in range(100)]
    engine, _ = fold(history)
    before = json.dumps(engine.snapshot())
    assert [event for vector in history for event in engine.feed(vector)] == []
    assert json.dumps(engine.snapshot()) == before
    engine.feed(StepVector(100, normal(100)))
    assert (engine.attempt, engine.step) == (0, 100)


def test_the_first_value_of_a_metric_at_a_step_counts(normal: Normal, fold: Fold):
    once, _ = fold(StepVector(step, normal(step)) for step in range(30))
    twice, events = fold(
        vector
        for step in range(30)
        for vector in (StepVector(step, normal(step)), StepVector(step, broken(normal(step))))
    )
    assert events == []
    assert twice.attempt == 0
    assert twice.snapshot()["roster"] == once.snapshot()["roster"]


def test_a_late_vector_opens_no_attempt(normal: Normal, fold: Fold):
    log = [StepVector(step, normal(step), time=100.0 + step) for step in range(30)]
    engine, events = fold([*log, StepVector(12, broken(normal(12)), time=112.5)])
    assert events == []
    assert (engine.attempt, engine.step) == (0, 29)


def test_a_metric_that_comes_late_counts_at_its_step(normal: Normal, fold: Fold, fired: Fired):
    log: list[Entry] = []
    for step in range(40):
        log.append(StepVector(step, normal(step)))
        if step >= 2:  # validation takes its time: it is logged two steps later
            score = 0.6 if step < 30 else 0.0
            log.append(StepVector(step - 2, {"val-core/gsm8k/reward/mean@1": score}))
    engine, events = fold(log)
    assert engine.attempt == 0
    alerts = [alert for alert in fired(events) if alert.source == "val-core/gsm8k/reward/mean@1"]
    assert alerts
    assert alerts[0].onset_step >= 28


def resumed(normal: Normal) -> list[Entry]:
    """Collapses at step 50, and goes back to 40 after 59."""
    log = [StepVector(step, normal(step) if step < 50 else broken(normal(step))) for step in range(60)]
    return [*log, *(StepVector(step, normal(step + 1)) for step in range(40, 60))]


def test_a_step_that_goes_back_opens_the_next_attempt(normal: Normal, fold: Fold, fired: Fired):
    engine, events = fold(resumed(normal))
    assert (engine.attempt, engine.step) == (1, 59)
    went_back = [alert for alert in fired(events) if alert.rule == "step_went_back"]
    assert [(alert.attempt, alert.onset_step, alert.fired_step) for alert in went_back] == [(1, 40, 40)]
    assert "after step 59 came step 40" in went_back[0].summary


def test_a_resume_resolves_what_fires_and_tells_of_the_end_first(normal: Normal, fold: Fold):
    _, events = fold(resumed(normal))
    at_resume = [event for event in events if event.step == 40]
    resolved = [
        event.alert for event in at_resume if isinstance(event, AlertEvent) and event.transition is Transition.RESOLVED
    ]
    assert {alert.rule for alert in resolved} >= {"kl_collapse", "reward_collapse"}
    assert {alert.reason for alert in resolved} == {"resumed"}
    assert {alert.attempt for alert in resolved} == {0}
    kinds = [(type(event).__name__, event.transition) for event in at_resume]
    end = kinds.index(("IncidentEvent", Transition.RESOLVED))
    begin = kinds.index(("AlertEvent", Transition.FIRED))
    assert kinds.count(("AlertEvent", Transition.FIRED)) == 1
    assert end < begin


def test_baselines_survive_a_resume(normal: Normal, fold: Fold, fired: Fired):
    log = [StepVector(step, normal(step)) for step in range(50)]
    log += [StepVector(step, broken(normal(step))) for step in range(30, 36)]
    _, events = fold(log)
    kl = [alert for alert in fired(events) if alert.rule == "kl_collapse"]
    assert [(alert.attempt, alert.onset_step) for alert in kl] == [(1, 30)]


def test_the_same_collapse_in_two_attempts_is_two_alerts(normal: Normal, fold: Fold, fired: Fired):
    first = [StepVector(step, normal(step) if step < 50 else broken(normal(step))) for step in range(56)]
    again = [StepVector(step, normal(step + 1) if step < 50 else broken(normal(step + 1))) for step in range(45, 56)]
    _, events = fold([*first, *again])
    kl = [alert for alert in fired(events) if alert.rule == "kl_collapse"]
    assert [(alert.attempt, alert.onset_step) for alert in kl] == [(0, 50), (1, 50)]
    assert kl[0].id != kl[1].id
    assert kl[0].incident != kl[1].incident


def test_the_trainers_own_attempt_number_decides(normal: Normal, fold: Fold):
    log = [StepVector(step, normal(step), attempt=4) for step in range(20)]
    engine, events = fold([*log, StepVector(10, normal(77), attempt=4)])
    assert events == []
    assert engine.attempt == 0, "the same attempt, whatever the step says"
    engine.feed(StepVector(21, normal(21), attempt=5))
    assert (engine.attempt, engine.step) == (1, 21), "the next attempt, though the step goes on"
    before = json.dumps(engine.snapshot())
    assert engine.feed(StepVector(99, broken(normal(99)), attempt=4)) == []
    assert json.dumps(engine.snapshot()) == before, "what comes late from the last attempt is dropped"


def test_an_attempt_number_beside_vectors_without_one(normal: Normal, fold: Fold):
    engine, _ = fold(StepVector(step, normal(step), attempt=None if step % 2 else 1) for step in range(20))
    assert (engine.attempt, engine.step) == (0, 19)


def test_steps_may_start_anywhere_and_lie_apart(normal: Normal, fold: Fold):
    engine, events = fold(StepVector(1001 + 5 * row, normal(row)) for row in range(60))
    assert events == []
    assert engine.step == 1001 + 5 * 59


def test_a_gap_in_the_steps_is_told_once(normal: Normal, fold: Fold, fired: Fired):
    steps = [*range(30), *range(400, 430)]
    engine, events = fold(StepVector(step, normal(row)) for row, step in enumerate(steps))
    assert [(alert.rule, alert.onset_step) for alert in fired(events)] == [("step_gap", 400)]
    assert engine.firing == ()


def test_events_come_alerts_first_and_carry_step_and_time(normal: Normal, fold: Fold):
    log = [StepVector(step, normal(step) if step < 40 else broken(normal(step)), time=5.0 * step) for step in range(50)]
    _, events = fold(log)
    by_step: dict[int, list[Any]] = {}
    for event in events:
        assert event.time == 5.0 * event.step
        by_step.setdefault(event.step, []).append(event)
    for together in by_step.values():
        kinds = [isinstance(event, IncidentEvent) for event in together]
        assert kinds == sorted(kinds)
        assert all(event.alert.incident for event in together if isinstance(event, AlertEvent))


@pytest.mark.parametrize("last", [53, 59, 79, 150])
def test_the_way_back_from_a_collapse_is_no_alarm(last: int, normal: Normal, fold: Fold, fired: Fired):
    """However long the collapsed run went on, what is undone by the resume is no past to compare with."""
    gone = {"actor/kl_loss": 3.0, "critic/score/mean": 0.0, "actor/entropy": 0.01, "response_length/mean": 900.0}
    log = [StepVector(step, {**normal(step), **(gone if step >= 50 else {})}) for step in range(last)]
    log += [StepVector(step, normal(step + 1)) for step in range(40, 140)]
    _, events = fold(log)
    assert {alert.rule for alert in fired(events) if alert.attempt == 0} > {"kl_collapse", "reward_collapse"}
    assert [alert.rule for alert in fired(events) if alert.attempt == 1] == ["step_went_back"]


def test_a_long_history_replayed_on_resume_changes_nothing(normal: Normal, fold: Fold):
    """ROLL sends its whole history through the tracker again, here longer than what is remembered step by step."""
    log = [StepVector(step, normal(step)) for step in range(600)]
    replayed = [StepVector(step, normal(step)) for step in range(600)]
    later = [StepVector(step, normal(step)) for step in range(600, 660)]
    engine, events = fold([*log, *replayed, *later])
    assert engine.attempt == 0
    assert not events


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_what_is_computed_of_tensors_may_come_later(behind: int, normal: Normal, fold: Fold):
    """Its names may be the trainer's own too; that it comes behind newer steps is no resume."""
    plain, _ = fold(StepVector(step, normal(step), time=step) for step in range(60))

    def vectors() -> Iterable[Entry]:
        for step in range(60):
            yield StepVector(step, normal(step), time=step)
            if step >= behind:
                late = step - behind
                again = {name: 1.01 * value for name, value in normal(late).items()}
                yield StepVector(late, {**again, "rollout_corr/kl": 1e-4}, time=step + 0.5, computed=True)

    engine, events = fold(vectors())
    assert (engine.attempt, engine.step, events) == (0, 59, [])
    seen, unmoved = engine._roster.series("rollout_corr/kl"), plain._roster.series("actor/kl_loss")
    assert seen.count == 60 - behind
    assert engine._roster.series("actor/kl_loss").snapshot() == unmoved.snapshot()


def test_what_is_computed_may_come_first(normal: Normal, fold: Fold):
    engine, events = fold(
        vector
        for step in range(60)
        for vector in (
            StepVector(step, {"rollout_corr/kl": 1e-4}, computed=True),
            StepVector(step, normal(step)),
        )
    )
    assert (engine.attempt, engine.step, events) == (0, 59, [])
    assert engine._roster.series("actor/kl_loss").count == 60


def test_names_that_are_computed_do_not_tell_the_framework(fold: Fold):
    names = ("critic/score/mean", "actor/kl_k3", "rollout_corr/kl", "response_length/mean", "actor/entropy_token_mean")
    trl = {"reward": 0.5, "kl": 0.01, "completions/mean_length": 90.0, "frac_reward_zero_std": 0.1, "loss": 0.01}
    engine, _ = fold(
        vector
        for step in range(5)
        for vector in (
            StepVector(step, dict.fromkeys(names, 0.1), computed=True),
            StepVector(step, trl),
        )
    )
    assert engine._roster.framework == "trl"
    assert Engine.restore("run", engine.snapshot())._roster.framework == "trl"
