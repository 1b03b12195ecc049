"""Any log at all: the engine never raises, its state is strict JSON everywhere, and events come in legal orders."""

import json
import math
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin_detectors.alerts import AlertEvent, Event, IncidentEvent, State, Transition
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import Entry, Rebaseline, RunConfig, StepVector, entry_from_json, entry_to_json
from tocsin_detectors.rules import shipped_rules

# Metrics of every rule, in the inputs of the computed ones too, an alias of one of them, and one that nobody knows.
NAMES = sorted(
    {name.replace("{", "").replace("}", "") for rule in shipped_rules() for name in rule.metrics}
    | {name for rule in shipped_rules() if rule.expression is not None for name in rule.expression.names}
    | {"reward", "train/kl", "critic/score/min", "critic/score/max", "actor/lr", "our/own"}
)
LEVELS = [math.nan, math.inf, -math.inf]
LEVELS += [0.0, -0.0, 1e-9, 0.01, 0.3, 1.0, 7.0, 500.0, -0.5, -40.0, 1.7e308, -1.7e308, 5e-324]

names = st.sampled_from(NAMES) | st.text(max_size=6)
values = st.sampled_from(LEVELS) | st.floats()
metrics = st.dictionaries(names, values, max_size=6)
configs = st.builds(
    RunConfig,
    algorithm=st.sampled_from([None, "grpo", "ppo", "other"]),
    framework=st.sampled_from([None, "verl", "trl", "slime", "no such framework"]),
    group_size=st.sampled_from([None, 1, 8]),
    target_kl=st.sampled_from([None, 0.1]),
    temperature=st.sampled_from([None, 0.6, 1.0]),
    profile=st.sampled_from([None, "dense", "moe"]),
    critic_warmup=st.sampled_from([None, 0, 20]),
    advantage_mean=st.sampled_from([None, "token", "sequence"]),
    whitened_advantages=st.sampled_from([None, False, True]),
)


@st.composite
def stretches(draw: Any) -> list[Entry]:
    """Some steps in a row with the same metrics at nearly the same level: long enough for baselines and alerts."""
    start = draw(st.integers(0, 150))
    chosen = draw(metrics)
    stride = draw(st.sampled_from([1, 1, 1, 5, 1000]))
    attempt = draw(st.sampled_from([None, None, None, 1, 2, 2**40]))
    timed = draw(st.booleans())
    return [
        StepVector(
            start + stride * row,
            {name: value * (1 + 0.03 * (row % 3)) for name, value in chosen.items()},
            1e9 + start + row if timed else None,
            attempt,
        )
        for row in range(draw(st.integers(1, 40)))
    ]


def single(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Entry]]:
    return entries.map(lambda entry: [entry])


logs = st.lists(
    st.one_of(
        stretches(),
        stretches(),
        single(st.builds(StepVector, st.integers(0, 2**62), metrics)),
        single(configs),
        single(st.builds(Rebaseline, st.none() | names, st.text(max_size=5))),
    ),
    max_size=12,
).map(lambda parts: [entry for part in parts for entry in part])


def check_events(events: Iterable[Event]) -> None:
    """Fired before escalated before resolved, no id twice, and incidents know their members."""
    ids: set[str] = set()
    open_alerts: dict[str, Any] = {}
    open_incidents: dict[str, Any] = {}
    for event in events:
        assert event.id not in ids
        ids.add(event.id)
        thing, known = (event.alert, open_alerts) if isinstance(event, AlertEvent) else (event.incident, open_incidents)
        if event.transition is Transition.FIRED:
            assert thing.id not in known
            known[thing.id] = thing
        else:
            before = known[thing.id]
            assert thing.onset_step <= before.onset_step
            assert thing.severity.rank >= before.severity.rank
            if event.transition is Transition.ESCALATED:
                assert thing.severity.rank > before.severity.rank or thing.rule != before.rule
            known[thing.id] = thing
            if event.transition is Transition.RESOLVED:
                del known[thing.id]
        assert (thing.state is State.RESOLVED) == (event.transition is Transition.RESOLVED)
        if isinstance(event, IncidentEvent):
            members = event.incident.members
            assert len(set(members)) == len(members) > 0
            assert event.incident.first_sign == members[0]


@given(log=logs)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_log_can_be_folded(log: list[Entry]):
    engine = Engine("run")
    events: list[Event] = []
    for position, entry in enumerate(log):
        news = engine.feed(entry)
        events += news
        if position % 8 == 0 or news:
            json.dumps(engine.snapshot(), allow_nan=False)
        if news:
            firing = {alert.id for alert in engine.firing}
            assert len(firing) == len(engine.firing)
            assert {alert.incident for alert in engine.firing} <= {incident.id for incident in engine.incidents}
            members = {member for incident in engine.incidents for member in incident.members}
            assert firing <= members
    check_events(events)


@given(log=logs, data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_log_gives_the_same_through_json_and_across_restarts(log: list[Entry], data: Any):
    steady, interrupted = Engine("run"), Engine("run")
    every = data.draw(st.integers(1, 25))
    for position, entry in enumerate(log):
        if position % every == 0:
            interrupted = Engine.restore("run", json.loads(json.dumps(interrupted.snapshot(), allow_nan=False)))
        stored = entry_from_json(json.loads(json.dumps(entry_to_json(entry), allow_nan=False)))
        assert repr(interrupted.feed(stored)) == repr(steady.feed(entry))
    assert json.dumps(interrupted.snapshot()) == json.dumps(steady.snapshot())
