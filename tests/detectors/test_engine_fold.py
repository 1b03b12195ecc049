"""The engine is a fold: the same log gives the same events and the same state, wherever it is cut."""

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tocsin_detectors.alerts import Alert, AlertEvent, Event
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import Entry, Rebaseline, RunConfig, StepVector
from tocsin_detectors.rules import RuleSet, shipped_rules

Normal = Callable[[int], dict[str, float]]
Fold = Callable[[Any], tuple[Engine, list[Event]]]
Fired = Callable[[list[Event]], list[Alert]]

SNAPSHOT_BOUND = 256 * 1024


def state_of(engine: Engine) -> str:
    """The snapshot as text; fails if it isn't strict JSON."""
    return json.dumps(engine.snapshot(), allow_nan=False)


def reborn(engine: Engine) -> Engine:
    return Engine.restore(engine.run, json.loads(state_of(engine)))


def eventful_log(normal: Normal) -> list[Entry]:
    """A log in which everything happens: late metrics, NaN, a collapse, a resume, configurations, a new normal."""
    log: list[Entry] = [RunConfig(algorithm="grpo", framework="verl", temperature=1.0, group_size=8, target_kl=0.1)]
    for step in range(60):
        metrics = normal(step)
        if 20 <= step < 24:
            metrics["actor/grad_norm"] = math.nan
        if step > 45:
            metrics |= {"actor/kl_loss": 2.0 + step, "actor/entropy": 0.02, "critic/score/mean": 0.0}
        log.append(StepVector(step, metrics, time=1000.0 + step))
        if step % 10 == 0:
            log.append(StepVector(step, {"val-core/gsm8k/reward/mean@1": 0.5}, time=1000.5 + step))
    log.append(RunConfig(temperature=0.6))
    log.extend(StepVector(step, normal(step + 1000)) for step in range(40, 70))
    log.append(Rebaseline(note="as planned"))
    log.extend(StepVector(step, {**normal(step), "actor/kl_loss": 0.9, "x": math.inf}) for step in range(70, 85))
    log.append(Rebaseline("actor/kl_loss"))
    log.extend(StepVector(step, normal(step), attempt=3) for step in range(30, 45))
    log.append(StepVector(20, normal(20), attempt=2))
    log.extend([StepVector(45, {}), StepVector(500, normal(500)), StepVector(501, {"actor/entropy": -1.0})])
    return log


def test_two_engines_agree_on_every_event(normal: Normal, fold: Fold):
    first, events = fold(eventful_log(normal))
    second, same_events = fold(eventful_log(normal))
    assert len(events) > 20, "the log is meant to be eventful"
    assert repr(events) == repr(same_events)
    assert state_of(first) == state_of(second)


def test_the_order_of_metrics_in_a_vector_does_not_matter(normal: Normal, fold: Fold):
    rng = random.Random(3)  # noqa: S311 - noise that has to be the same every time

    def shuffled(entry: Entry) -> Entry:
        if not isinstance(entry, StepVector):
            return entry
        items = list(entry.metrics.items())
        rng.shuffle(items)
        return StepVector(entry.step, dict(items), entry.time, entry.attempt)

    first, events = fold(eventful_log(normal))
    second, same_events = fold(map(shuffled, eventful_log(normal)))
    assert repr(events) == repr(same_events)
    assert state_of(first) == state_of(second)


def test_restored_after_every_entry_equals_uninterrupted(normal: Normal):
    steady, interrupted = Engine("run"), Engine("run")
    for position, entry in enumerate(eventful_log(normal)):
        interrupted = reborn(interrupted)
        assert repr(interrupted.feed(entry)) == repr(steady.feed(entry)), f"after {position} entries"
        assert state_of(interrupted) == state_of(steady), f"after {position} entries"
        assert repr(interrupted.firing) == repr(steady.firing)
        assert repr(interrupted.incidents) == repr(steady.incidents)
        assert interrupted.config == steady.config
        assert (interrupted.attempt, interrupted.step) == (steady.attempt, steady.step)


def test_a_snapshot_is_not_changed_by_what_is_fed_later(normal: Normal):
    engine = Engine("run")
    log = eventful_log(normal)
    for entry in log[:50]:
        engine.feed(entry)
    snapshot = engine.snapshot()
    before = json.dumps(snapshot)
    for entry in log[50:]:
        engine.feed(entry)
    assert json.dumps(snapshot) == before


def test_a_snapshot_of_other_rules_is_refused(normal: Normal):
    engine = Engine("run", RuleSet(rule for rule in shipped_rules() if rule.family == "kl"))
    engine.feed(StepVector(0, normal(0)))
    assert engine.version != Engine("run").version
    with pytest.raises(ValueError, match="fold the run's log"):
        Engine.restore("run", engine.snapshot())
    assert Engine.restore("run", engine.snapshot(), engine.rules).step == 0


def test_any_choice_of_rules_can_be_folded(normal: Normal):
    for rules in (RuleSet([]), *(RuleSet([rule]) for rule in shipped_rules())):
        engine = Engine("run", rules)
        for entry in eventful_log(normal):
            for event in engine.feed(entry):
                told = event.alert if isinstance(event, AlertEvent) else event.incident
                assert told.rule in rules or told.rule == "model_collapse"


def test_a_vector_split_into_two_gives_alerts_on_the_same_metrics(normal: Normal, fold: Fold, fired: Fired):
    def split(entry: Entry) -> list[Entry]:
        if not isinstance(entry, StepVector) or len(entry.metrics) < 2:
            return [entry]
        items = sorted(entry.metrics.items())
        parts = (dict(items[::2]), dict(items[1::2]))
        return [StepVector(entry.step, part, entry.time, entry.attempt) for part in parts]

    log = [StepVector(step, normal(step)) for step in range(50)]
    log += [
        StepVector(step, {**normal(step), "actor/kl_loss": 3.0, "critic/score/mean": 0.0}) for step in range(50, 60)
    ]
    _, events = fold(log)
    _, split_events = fold(part for entry in log for part in split(entry))
    key = {(alert.rule, alert.metric, alert.onset_step, alert.fired_step) for alert in fired(events)}
    assert key
    assert {(a.rule, a.metric, a.onset_step, a.fired_step) for a in fired(split_events)} == key


def test_train_and_validation_of_one_step_merge(normal: Normal, fold: Fold):
    engine, events = fold(
        entry
        for step in range(30)
        for entry in (StepVector(step, normal(step)), StepVector(step, {"val-core/gsm8k/reward/mean@1": 0.4}))
    )
    assert events == []
    assert (engine.attempt, engine.step) == (0, 29)


def test_ten_thousand_steps_of_a_hundred_metrics_keep_the_state_small(normal: Normal):
    engine = Engine("run")
    rng = random.Random(1)  # noqa: S311 - noise that has to be the same every time
    names = [rule.metrics[0] for rule in shipped_rules() if rule.tests and "{" not in rule.metrics[0]]
    extra = [f"train/extra_{number}" for number in range(100 - len(normal(0)) - 20)] + names[:20]
    metrics: dict[str, float] = {}
    for step in range(10_000):
        if step % 10 == 0:  # most of a vector stays as it was: what counts here is the number of rows
            metrics = {name: rng.random() for name in extra} | normal(step)
        engine.feed(StepVector(step, metrics))
    assert len(state_of(engine)) < SNAPSHOT_BOUND


def test_five_thousand_metrics_in_one_vector(fold: Fold):
    engine, events = fold(
        StepVector(step, {f"layer_{number}/norm": 1.0 for number in range(5000)}) for step in range(3)
    )
    assert events == []
    assert reborn(engine).snapshot() == engine.snapshot()


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "\x00",
        "\x1f",
        "\ud800",
        "\u202e{metric}",
        "{metric}",
        "a" * 100_000,
        "nan",
        "__class__",
        "%s%n",
        "../../etc/passwd",
        "val-core/" * 50,
        "incident",
        "training/global_step",
        *(rule.metrics[0] for rule in shipped_rules() if rule.expression is not None),
    ],
)
def test_any_metric_name_is_survived_and_watched_for_nan(name: str, fold: Fold, fired: Fired):
    log: list[Entry] = [RunConfig(group_size=2, target_kl=0.1, temperature=1.0)]
    others = {"actor/reward_kl_penalty": 9.0, "rollout_corr/kl": 0.5, "rollout_corr/k3_kl": 0.001}
    log += [StepVector(step, {name: 1.0, **others}) for step in range(80)]
    log += [StepVector(step, {name: 0.5, **dict.fromkeys(others, 0.1)}) for step in range(10, 130)]
    log += [StepVector(130, {name: math.nan})]
    engine, events = fold(log)
    assert [alert.source for alert in fired(events) if alert.rule == "non_finite"] == [name]
    assert state_of(reborn(engine)) == state_of(engine)


def test_an_alias_and_the_canonical_name_after_it_are_two_metrics(fold: Fold, fired: Fired):
    log = [StepVector(0, {"reward": 1.0}), StepVector(1, {"reward": math.nan, "critic/score/mean": math.nan})]
    log += [StepVector(step, {"reward": 1.0, "critic/score/mean": 1.0}) for step in range(2, 12)]
    engine, events = fold(log)
    assert sorted(alert.source for alert in fired(events)) == ["critic/score/mean", "reward"]
    assert len({alert.id for alert in fired(events)}) == 2
    assert engine.firing == ()


@pytest.mark.parametrize("metrics", [{}, {"a": math.nan}, {"a": math.nan, "b": math.inf, "c": -math.inf}])
def test_vectors_without_a_single_finite_number(metrics: dict[str, float], fold: Fold):
    engine, _ = fold(StepVector(step, metrics) for step in range(20))
    assert (engine.attempt, engine.step) == (0, 19)
    assert len(engine.firing) == len(metrics)
    assert state_of(reborn(engine)) == state_of(engine)


def test_huge_steps_and_values(fold: Fold):
    rng = random.Random(5)  # noqa: S311 - noise that has to be the same every time
    names = ("actor/kl_loss", "actor/entropy", "critic/score/mean", "critic/vf_loss", "actor/ppo_kl", "x")
    last = 2**63 - 1
    engine, _ = fold(
        StepVector(last - 200 + number, {name: rng.choice([-1, 1, 1e-300]) * 1.7e308 for name in names})
        for number in range(201)
    )
    assert engine.step == last
    assert state_of(reborn(engine)) == state_of(engine)
