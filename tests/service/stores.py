"""What the tests of the stores put into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tocsin_detectors.alerts import (
    Alert,
    AlertEvent,
    Event,
    Evidence,
    Incident,
    IncidentEvent,
    Severity,
    State,
    Transition,
)
from tocsin_detectors.entries import StepVector
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.audit import Act
from tocsin_service.silences import Matchers, Silence
from tocsin_service.store import Appended, Claim, Commit, Notification, Record, RunSummary, Store, Told

OpenStore: TypeAlias = Callable[[], Store]  # opens the store of a test; again, if it has been closed

NOW = 1_700_000_000.0

ALERT = Alert(
    id="a1",
    run="r",
    attempt=0,
    rule="non_finite",
    family="data",
    severity=Severity.WARNING,
    metric="actor/pg_loss",
    source="loss",
    onset_step=2,
    fired_step=2,
    evidence=Evidence(math.nan, baseline=0.5),
    summary="s",
    meaning="m",
    remedies=("stop",),
    incident="i1",
)
INCIDENT = Incident(
    id="i1",
    run="r",
    attempt=0,
    rule="non_finite",
    title="t",
    severity=Severity.WARNING,
    onset_step=2,
    first_sign="a1",
    last_good_step=1,
    members=("a1",),
    meaning="m",
    remedies=("stop",),
)

TOLD = Told("non_finite", Severity.WARNING, State.FIRING, NOW)
ACKNOWLEDGEMENT = Acknowledgement("r", "i1", "me", "I look after it", NOW + 3)
ACT = Act(NOW, "oncall", "acknowledge", "i1", {"comment": "ü", "hours": 1.5, "more": [None, {"a": True}]})
SILENCE = Silence("s1", Matchers(run="exp-*", severity=Severity.WARNING, labels={"team": "rl"}), 5.0, 9.0, "me", "why")


def record(step: int, key: str | None = None, **metrics: float) -> Record:
    return Record(StepVector(step, metrics or {"loss": 0.5}, NOW + step), key or f"k{step}")


def add(store: Store, *records: Record, run: str = "r", now: float = NOW) -> Appended:
    return store.append(run, records, now).result(30)


def events(transition: Transition = Transition.FIRED, **changes: Any) -> list[Event]:
    return [
        AlertEvent(transition, replace(ALERT, **changes), 2, NOW),
        IncidentEvent(transition, replace(INCIDENT, **changes), 2, NOW),
    ]


def change(expected: int, position: int, found: Sequence[Event] = (), **fields: Any) -> Commit:
    wishes = [Notification("slack", one.incident.id, one.id) for one in found if isinstance(one, IncidentEvent)]
    return Commit(expected, position, "v1", NOW, **{"events": found, "notifications": wishes, **fields})


def positions(store: Store, run: str = "r") -> list[int]:
    """0 for "before everything", then the positions of the log: so that ``positions(store)[n]`` is behind n entries."""
    return [0, *(one.position for one in store.read(run, 0, 10_000))]


def summary(store: Store, run: str = "r") -> RunSummary:
    found = store.run(run)
    assert found is not None
    return found


def taken(store: Store, now: float = NOW, receiver: str = "slack") -> Claim:
    """The notification that is due longest, which there has to be."""
    claim = store.claim(receiver, now, 60)
    assert claim is not None
    return claim
