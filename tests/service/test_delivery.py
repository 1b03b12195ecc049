"""Whether and why a receiver is told, and that nothing is lost or said twice on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tocsin_detectors.alerts import Alert, Incident, IncidentEvent, Severity, State, Transition
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.delivery import Delivery, Failed, Reason, Result, Retry, Sent, backoff, decide
from tocsin_service.exposition import Exposition
from tocsin_service.store import Commit, Notification, Record, Told
from tocsin_service.store.sqlite import SqliteStore

INCIDENT = Incident(
    id="i1",
    run="run",
    attempt=0,
    rule="kl_jump",
    title="t",
    severity=Severity.WARNING,
    onset_step=2,
    first_sign="a1",
    last_good_step=1,
    members=("a1",),
    meaning="m",
    remedies=(),
)
W, C, I = Severity.WARNING, Severity.CRITICAL, Severity.INFO  # noqa: E741 - short names make the table readable
F, R = State.FIRING, State.RESOLVED


@pytest.mark.parametrize(
    ("told", "now", "reason"),
    [
        # (rule, severity, state): what the receiver knows, what is true
        (None, ("kl", W, F), Reason.OPENED),
        (None, ("kl", C, F), Reason.OPENED),
        (None, ("kl", I, F), None),
        (None, ("kl", W, R), None),  # over before anybody could be told: no news
        (None, ("kl", C, R), Reason.RESOLVED),
        (("kl", W, F), ("kl", W, F), None),  # it grew
        (("kl", W, F), ("entropy", W, F), None),
        (("kl", W, F), ("kl", C, F), Reason.ESCALATED),
        (("kl", W, F), ("model_collapse", C, F), Reason.ESCALATED),
        (("kl", C, F), ("model_collapse", C, F), Reason.ESCALATED),
        (("model_collapse", C, F), ("model_collapse", C, F), None),
        (("kl", C, F), ("kl", C, R), Reason.RESOLVED),
        (("kl", W, F), ("kl", C, R), Reason.RESOLVED),  # escalated and over in between
        (("kl", W, F), ("kl", W, R), None),
        (("kl", C, R), ("kl", C, R), None),
    ],
)
def test_decisions(told: Any, now: Any, reason: Reason | None) -> None:
    rule, severity, state = now
    incident = replace(INCIDENT, rule=rule, severity=severity, state=state)
    assert decide(None if told is None else Told(*told, time=0.0), incident) is reason


def test_backoff_grows_and_is_bounded() -> None:
    assert [backoff(tries) for tries in (1, 2, 3, 20, 5000)] == [1, 2, 4, 300, 300]


@dataclass
class Recorder:
    """A receiver that keeps what it is told and answers from a script."""

    name: str = "recorder"
    script: list[Result | Exception] = field(default_factory=list)
    calls: list[tuple[Reason, Incident]] = field(default_factory=list)
    told: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: bool = False

    def send(self, reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig) -> Result:
        assert isinstance(alerts, tuple)
        assert isinstance(config, RunConfig)
        self.calls.append((reason, incident))
        result = self.script.pop(0) if self.script else Sent()
        self.told.release()
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        self.closed = True

    def wait(self) -> None:
        assert self.told.acquire(timeout=30)


@dataclass
class Stage:
    """A store with one run, and a clock that moves by hand."""

    store: SqliteStore
    exposition: Exposition
    now: float = 1000.0
    position: int = 0

    def say(self, transition: Transition = Transition.FIRED, **changes: Any) -> None:
        incident = replace(INCIDENT, **changes)
        event = IncidentEvent(transition, incident, self.position)
        self.store.append("run", [Record(StepVector(self.position, {}))], self.now).result(30)
        wishes = [Notification(name, incident.id, event.id) for name in ("recorder", "other")]
        assert self.store.commit(
            "run", Commit(self.position, self.position + 1, "v", self.now, [event], notifications=wishes)
        )
        self.position += 1

    def serve(self, receiver: Recorder) -> None:
        """Tells the receiver everything that is due now."""
        delivery = Delivery(self.store, receiver, self.exposition, lambda: self.now)
        delivery._send_due()
        receiver.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    store = SqliteStore(tmp_path / "tocsin.db")
    yield Stage(store, Exposition(store))
    store.close()


def reasons(receiver: Recorder) -> list[Reason]:
    return [reason for reason, _ in receiver.calls]


def test_the_life_of_an_incident(stage: Stage) -> None:
    receiver = Recorder()
    for transition, changes in (
        (Transition.FIRED, {}),
        (Transition.GREW, {"members": ("a1", "a2")}),
        (Transition.ESCALATED, {"severity": C, "rule": "model_collapse"}),
        (Transition.GREW, {"severity": C, "rule": "model_collapse", "members": ("a1", "a2", "a3")}),
        (Transition.RESOLVED, {"severity": C, "rule": "model_collapse", "state": R}),
    ):
        stage.say(transition, **changes)
        stage.serve(receiver)
    assert reasons(receiver) == [Reason.OPENED, Reason.ESCALATED, Reason.RESOLVED]
    assert stage.store.next_due("recorder") is None


def test_news_while_it_waited_are_one_message_of_what_is_true_now(stage: Stage) -> None:
    receiver = Recorder()
    stage.say()
    stage.say(Transition.ESCALATED, severity=C)
    stage.serve(receiver)
    assert [(reason, incident.severity) for reason, incident in receiver.calls] == [(Reason.OPENED, C)]


def test_tries_again_with_backoff_until_it_is_told(stage: Stage) -> None:
    receiver = Recorder(script=[Retry("HTTP 500"), RuntimeError("https://secret"), Retry("timeout")])
    stage.say()
    for moment in (1000.0, 1000.9, 1001.0, 1003.0, 1006.9, 1007.0, 9999.0):
        stage.now = moment
        stage.serve(receiver)
    assert len(receiver.calls) == 4  # at 1000, 1001, 1003 and 1007
    assert stage.store.pending_notifications() == 1  # the other receiver's


def test_a_receiver_that_asks_for_silence_gets_it(stage: Stage) -> None:
    receiver = Recorder(script=[Retry("HTTP 429", after=60.0)])
    stage.say()
    stage.say(id="i2")
    delivery = Delivery(stage.store, receiver, stage.exposition, lambda: stage.now)
    for moment, calls in ((1000.0, 1), (1059.0, 1), (1060.0, 3)):
        stage.now = moment
        delivery._send_due()
        assert len(receiver.calls) == calls


def test_what_can_not_be_told_is_given_up_and_counted(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    receiver = Recorder(script=[Failed("HTTP 404: no_service")])
    stage.say()
    stage.serve(receiver)
    stage.now += 99_999
    stage.serve(receiver)
    assert len(receiver.calls) == 1
    assert "no_service" in caplog.text
    assert 'tocsin_delivery_total{receiver="recorder",result="failed"} 1.0' in stage.exposition.render().decode()
    stage.say(Transition.ESCALATED, severity=C)  # news are another chance
    stage.serve(receiver)
    assert reasons(receiver) == [Reason.OPENED, Reason.OPENED]


def test_a_broken_receiver_delays_no_other(stage: Stage) -> None:
    hanging, working = threading.Event(), Recorder("other")

    class Hanging(Recorder):
        def send(self, *arguments: Any) -> Result:
            hanging.wait(30)
            return super().send(*arguments)

    broken = Hanging()
    deliveries = [
        Delivery(stage.store, receiver, stage.exposition, lambda: stage.now) for receiver in (broken, working)
    ]
    stage.say()
    for delivery in deliveries:
        delivery.start()
    working.wait()
    hanging.set()
    broken.wait()
    for delivery in deliveries:
        delivery.stop(30)
    assert broken.closed
    assert working.closed


def test_a_restart_in_the_middle(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "x.db")
    stage = Stage(first, Exposition(first))
    stage.say()
    stage.serve(Recorder(script=[Retry("HTTP 503")]))
    first.close()
    second = SqliteStore(tmp_path / "x.db")
    later, receiver = Stage(second, Exposition(second), now=1001.0), Recorder()
    later.serve(receiver)
    assert reasons(receiver) == [Reason.OPENED]
    second.close()


def test_a_wake_up_is_enough(stage: Stage) -> None:
    receiver = Recorder()
    delivery = Delivery(stage.store, receiver, stage.exposition, lambda: stage.now)
    delivery.start()
    stage.say()
    delivery.wake()
    receiver.wait()
    delivery.stop(30)


def test_an_incident_that_a_new_fold_removed_is_forgotten(stage: Stage) -> None:
    receiver = Recorder()
    stage.say()
    version = Commit(stage.position, stage.position, "v2", stage.now, rewrite=True)
    assert stage.store.commit("run", version)
    stage.serve(receiver)
    assert receiver.calls == []
    assert stage.store.next_due("recorder") is None
