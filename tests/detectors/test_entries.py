"""Entries of the log, alerts and incidents: what they mean and that JSON gives them back."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_detectors.alerts import (
    Alert,
    AlertEvent,
    Evidence,
    Incident,
    IncidentEvent,
    Severity,
    State,
    Transition,
    alert_from_json,
    alert_to_json,
    derive_id,
    incident_from_json,
    incident_to_json,
)
from tocsin_detectors.entries import (
    Rebaseline,
    RunConfig,
    StepVector,
    entry_from_json,
    entry_to_json,
    number_from_json,
    number_to_json,
)

texts = st.text(max_size=12)
steps = st.integers(0, 2**63 - 1)
configs = st.builds(
    RunConfig,
    algorithm=st.none() | texts,
    framework=st.none() | texts,
    group_size=st.none() | st.integers(1, 64),
    target_kl=st.none() | st.floats(1e-6, 10),
    temperature=st.none() | st.floats(0.01, 2),
    profile=st.sampled_from([None, "dense", "moe"]),
    critic_warmup=st.none() | st.integers(0, 100),
    actor_warmup=st.none() | st.integers(0, 100),
    advantage_mean=st.sampled_from([None, "token", "sequence"]),
    whitened_advantages=st.none() | st.booleans(),
    labels=st.dictionaries(texts, texts, max_size=3),
    link=st.none() | texts,
)
vectors = st.builds(
    StepVector,
    step=steps,
    metrics=st.dictionaries(texts, st.floats(), max_size=5),
    time=st.none() | st.floats(0, 4e9),
    attempt=st.none() | st.integers(0, 1000),
)
entries = st.one_of(vectors, configs, st.builds(Rebaseline, metric=st.none() | texts, note=texts))
optional_numbers = st.none() | st.floats()
alerts = st.builds(
    Alert,
    id=texts,
    run=texts,
    attempt=st.integers(0, 9),
    rule=texts,
    family=texts,
    severity=st.sampled_from(Severity),
    metric=texts,
    source=texts,
    onset_step=steps,
    fired_step=steps,
    evidence=st.builds(
        Evidence,
        value=st.floats(),
        baseline=optional_numbers,
        score=optional_numbers,
        limit=optional_numbers,
        window=st.none() | st.integers(0, 99),
        detail=texts | st.just("NaN"),
    ),
    summary=texts,
    meaning=texts,
    remedies=st.lists(texts, max_size=3).map(tuple),
    state=st.sampled_from(State),
    incident=texts,
    resolved_step=st.none() | steps,
    reason=st.none() | texts,
)
incidents = st.builds(
    Incident,
    id=texts,
    run=texts,
    attempt=st.integers(0, 9),
    rule=texts,
    title=texts,
    severity=st.sampled_from(Severity),
    onset_step=steps,
    first_sign=texts,
    last_good_step=st.none() | steps,
    members=st.lists(texts, max_size=3).map(tuple),
    meaning=texts,
    remedies=st.lists(texts, max_size=3).map(tuple),
    state=st.sampled_from(State),
    opened_step=steps,
    resolved_step=st.none() | steps,
)


def through_json(data: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(json.dumps(data, allow_nan=False))
    return decoded


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (False, 0.0),
        ("1e-3", 0.001),
        (" 7 ", 7.0),
        ("+2.5", 2.5),
        ("np.float64(0.5)", 0.5),
        ("numpy.float32(-3)", -3.0),
        ("tensor(0.125)", 0.125),
        ("tensor(2., device='cuda:0')", 2.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("inf", math.inf),
        ("+inf", math.inf),
        ("-inf", -math.inf),
        ("np.float64(-inf)", -math.inf),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        ("1e999", math.inf),
    ],
)
def test_numbers_in_many_spellings(written: object, meant: float):
    assert number_from_json(written) == meant


@pytest.mark.parametrize(
    "written",
    [None, math.nan, "nan", "NaN", "NAN", "-nan", "np.float64(nan)", "tensor(nan)", "tensor(nan, device='x')"],
)
def test_nan_in_many_spellings(written: object):
    assert math.isnan(number_from_json(written))


@pytest.mark.parametrize(
    "written", [[], [1.0], {}, {"value": 1}, "", "abc", "1_000", "0x10", "1,5", "1 2", "tensor([1, 2])", "9" * 65, b"1"]
)
def test_what_is_no_number_is_refused(written: object):
    with pytest.raises(ValueError, match=r"number|convert"):
        number_from_json(written)


@given(st.floats())
def test_numbers_survive_json(value: float):
    again = number_from_json(json.loads(json.dumps(number_to_json(value), allow_nan=False)))
    assert again == value or (math.isnan(again) and math.isnan(value))


@given(entries)
def test_entries_survive_json(entry: StepVector | RunConfig | Rebaseline):
    assert repr(entry_from_json(through_json(entry_to_json(entry)))) == repr(entry)


@given(alerts)
def test_alerts_survive_json(alert: Alert):
    assert repr(alert_from_json(through_json(alert_to_json(alert)))) == repr(alert)


@given(incidents)
def test_incidents_survive_json(incident: Incident):
    assert incident_from_json(through_json(incident_to_json(incident))) == incident


def test_an_unknown_kind_of_entry_is_refused():
    with pytest.raises(ValueError, match="surprise"):
        entry_from_json({"kind": "surprise"})


@given(configs, configs)
def test_a_newer_configuration_overrides_only_what_it_sets(old: RunConfig, new: RunConfig):
    both = old.updated(new)
    for name in RunConfig.__dataclass_fields__:
        if name == "labels":
            continue
        told = getattr(new, name)
        assert getattr(both, name) == (getattr(old, name) if told is None else told)
    assert both.labels == {**old.labels, **new.labels}
    assert both.updated(RunConfig()) == both
    assert both.updated(new) == both


def test_a_flag_set_to_false_and_a_number_set_to_0_override():
    old = RunConfig(whitened_advantages=True, critic_warmup=20)
    both = old.updated(RunConfig(whitened_advantages=False, critic_warmup=0))
    assert both.whitened_advantages is False
    assert both.critic_warmup == 0


def test_severities_are_ordered_by_urgency():
    assert [severity.rank for severity in (Severity.INFO, Severity.WARNING, Severity.CRITICAL)] == [0, 1, 2]


def test_ids_depend_on_every_part_and_on_nothing_else():
    assert derive_id("run", 0, "rule", 7) == derive_id("run", 0, "rule", 7) == "6400a44221aa3652"
    assert (
        len({derive_id("run", 0, "a"), derive_id("run", 1, "a"), derive_id("run", 0, "b"), derive_id("run0", "a")}) == 4
    )
    assert derive_id("\ud800") != derive_id("\ud801"), "any text that JSON can carry has an id"


@given(alerts, incidents)
def test_event_ids_tell_the_changes_of_a_thing_apart(alert: Alert, incident: Incident):
    ids = {AlertEvent(transition, alert, 1).id for transition in Transition}
    ids |= {IncidentEvent(transition, incident, 1).id for transition in Transition}
    assert len(ids) == 2 * len(Transition)
