"""Nothing is lost or said twice on the way from the outbox to a receiver, whatever receivers, stores and clocks do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.service.delivering import Recorder, Stage, resolved
from tests.service.stores import OpenStore

from tocsin_detectors.alerts import Severity, Transition
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.delivery import Failed, Reason, Result, Retry, Sent, loop
from tocsin_service.delivery.pace import Pace
from tocsin_service.delivery.policy import Policy
from tocsin_service.exposition import Exposition
from tocsin_service.silences import Silence
from tocsin_service.store import Claim, Commit, Settlement, StoreUnavailable
from tocsin_service.store.sqlite import SqliteStore

C = Severity.CRITICAL
FREELY = Policy(pace=Pace(1000, 1.0))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    store = SqliteStore(tmp_path / "tocsin.db")
    yield Stage(store, Exposition(store))
    store.close()


@pytest.fixture
def any_stage(open_store: OpenStore) -> Stage:
    """On either store."""
    store = open_store()
    return Stage(store, Exposition(store))


def acknowledge(stage: Stage) -> None:
    assert stage.store.acknowledge(Acknowledgement("run", "i1", "ada", "mine", stage.now))


def test_the_life_of_an_incident(any_stage: Stage) -> None:
    receiver = Recorder()
    for transition, changes in (
        (Transition.FIRED, {}),
        (Transition.GREW, {"members": ("a1", "a2")}),
        (Transition.ESCALATED, {"severity": C, "rule": "model_collapse"}),
        (Transition.GREW, {"severity": C, "rule": "model_collapse", "members": ("a1", "a2", "a3")}),
        (Transition.RESOLVED, resolved(severity=C, rule="model_collapse")),
    ):
        any_stage.say(transition, **changes)
        any_stage.serve(receiver)
    assert receiver.reasons == [Reason.OPENED, Reason.ESCALATED, Reason.RESOLVED]
    assert any_stage.store.next_due("recorder") is None


def test_news_while_it_waited_are_one_message_of_what_is_true_now(stage: Stage) -> None:
    receiver = Recorder()
    stage.say()
    stage.say(Transition.ESCALATED, severity=C)
    stage.serve(receiver)
    assert [(news.reason, news.incident.severity) for (news,) in receiver.calls] == [(Reason.OPENED, C)]


# Receivers that fail.


def test_tries_again_with_backoff_until_it_is_told(stage: Stage) -> None:
    receiver = Recorder(script=[Retry("HTTP 500"), RuntimeError("https://secret"), Retry("timeout")])
    stage.say()
    for moment in (1000.0, 1000.9, 1001.0, 1003.0, 1006.9, 1007.0, 9999.0):
        stage.now = moment
        stage.serve(receiver)
    assert [news.again for (news,) in receiver.calls] == [False, True, True, True]  # at 1000, 1001, 1003 and 1007
    assert len({news.id for (news,) in receiver.calls}) == 1
    assert stage.store.pending_notifications() == 1  # the other receiver's


def test_a_receiver_that_asks_for_silence_gets_it(stage: Stage) -> None:
    receiver = Recorder(script=[Retry("HTTP 429", after=60.0)])
    stage.say()
    stage.say(id="i2")
    delivery = stage.deliver(receiver)
    for moment, calls in ((1000.0, 1), (1059.0, 1), (1060.0, 3)):
        stage.now = moment
        delivery._send_due()
        assert len(receiver.calls) == calls
    assert [news.incident.id for (news,) in receiver.calls] == ["i1", "i1", "i2"]
    assert [news.again for (news,) in receiver.calls] == [False, True, False]  # the second had not been tried


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
    assert receiver.reasons == [Reason.OPENED, Reason.OPENED]


@pytest.mark.parametrize("nonsense", [RuntimeError("https://secret"), None])
def test_a_broken_receiver_is_asked_again(stage: Stage, caplog: pytest.LogCaptureFixture, nonsense: Any) -> None:
    receiver = Recorder(script=[nonsense])
    stage.say()
    stage.serve(receiver)
    assert "unexpected" in caplog.text
    assert "secret" not in caplog.text
    stage.now += 1
    stage.serve(receiver)
    assert receiver.reasons == [Reason.OPENED, Reason.OPENED]
    assert stage.store.next_due("recorder") is None


def test_an_incident_that_can_not_be_decided_harms_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def decide(claim: Claim, *arguments: Any, **named: Any) -> Any:
        if claim.incident_id == "i1":
            raise ZeroDivisionError
        return decides(claim, *arguments, **named)

    decides, receiver = loop.decide, Recorder()
    stage.say()
    stage.say(id="i2")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "decide", decide)
        stage.serve(receiver)
    assert [news.incident.id for (news,) in receiver.calls] == ["i2"]
    assert "can't be decided" in caplog.text
    stage.now += 1
    stage.serve(receiver)
    assert [news.incident.id for (news,) in receiver.calls] == ["i2", "i1"]


def test_a_broken_receiver_delays_no_other(stage: Stage) -> None:
    hanging, working = threading.Event(), Recorder("other")

    def hang() -> Result:
        hanging.wait(30)
        return Sent()

    broken = Recorder(script=[hang])
    deliveries = [stage.deliver(receiver) for receiver in (broken, working)]
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


# Stores and processes that come and go.


def test_a_restart_in_the_middle(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "x.db")
    stage = Stage(first, Exposition(first))
    stage.say()
    stage.serve(Recorder(script=[Retry("HTTP 503")]))
    first.close()
    second = SqliteStore(tmp_path / "x.db")
    later, receiver = Stage(second, Exposition(second), now=1001.0), Recorder()
    later.serve(receiver)
    assert receiver.reasons == [Reason.OPENED]
    second.close()


def test_a_kill_in_the_middle(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "x.db")
    stage = Stage(first, Exposition(first))
    stage.say()
    assert first.claim("recorder", stage.now, 60.0)
    first.close()
    second = SqliteStore(tmp_path / "x.db")
    later, receiver = Stage(second, Exposition(second)), Recorder()
    later.serve(receiver)  # not only after the lease
    assert [news.again for (news,) in receiver.calls] == [True]
    second.close()


def test_what_a_killed_process_may_have_told_is_told_with_care(any_stage: Stage) -> None:
    stage, receiver = any_stage, Recorder()
    stage.say()
    stage.say(id="i2")
    taken = stage.store.claim("recorder", stage.now, 60.0)
    assert taken is not None
    assert not taken.interrupted
    for stage.now in (1000.0, 1060.0):
        stage.serve(receiver)
    stage.say(Transition.ESCALATED, id=taken.incident_id, severity=C)
    stage.serve(receiver)
    again = [(news.incident.id == taken.incident_id, news.again) for (news,) in receiver.calls]
    assert again == [(False, False), (True, True), (True, False)]


def test_what_the_store_could_not_take_is_not_told_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Settlement) -> None:
        raise StoreUnavailable("disk full")

    receiver = Recorder()
    delivery = stage.deliver(receiver)
    stage.say()
    with monkeypatch.context() as patch:
        patch.setattr(stage.store, "settle", full)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                delivery._send_due()
    stage.now += 99_999
    delivery._send_due()
    assert len(receiver.calls) == 1
    assert stage.store.next_due("recorder") is None


def test_a_store_that_is_away_for_a_moment_delays_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not until the lease of what was taken is over."""

    def away() -> list[Silence]:
        raise StoreUnavailable("disk full")

    receiver = Recorder()
    delivery = stage.deliver(receiver)
    for number in range(3):
        stage.say(id=f"i{number}")
    with monkeypatch.context() as patch:
        patch.setattr(stage.store, "silences", away)
        with pytest.raises(StoreUnavailable):
            delivery._send_due()
    delivery._send_due()
    assert receiver.sizes == [1, 1, 1]


def test_a_wake_up_is_enough(stage: Stage) -> None:
    receiver = Recorder()
    delivery = stage.deliver(receiver)
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


def test_only_who_serves_a_receiver_tells_it(stage: Stage) -> None:
    receiver, mine = Recorder(), set[str]()
    delivery = stage.deliver(receiver, serves=mine.__contains__)
    stage.say()
    delivery._send_due()
    assert receiver.calls == []
    assert delivery._wait_seconds() == loop.SHARED_WAIT
    mine.add("recorder")
    delivery._send_due()
    assert len(receiver.calls) == 1


def test_a_stop_puts_back_what_it_has_no_time_for(stage: Stage) -> None:
    receiver = Recorder()
    delivery = stage.deliver(receiver)

    def stop() -> Result:
        delivery._deadline = 0.0
        return Sent()

    receiver.script = [stop]
    stage.say()
    stage.say(id="i2")
    delivery._send_due()
    assert len(receiver.calls) == 1
    stage.serve(receiver)
    assert [news.incident.id for (news,) in receiver.calls] == ["i1", "i2"]


@pytest.mark.parametrize("policy", [Policy(), Policy(pace=Pace(1, 30.0))])
def test_no_attempt_begins_that_could_outlast_the_lease(stage: Stage, policy: Policy) -> None:
    receiver = Recorder()
    delivery = stage.deliver(receiver, policy=policy)
    for number in range(3):
        stage.say(id=f"i{number}")
    delivery._serve(delivery._claim(), monotonic() - loop.LEASE_SECONDS / 2)
    assert receiver.calls == []
    delivery._send_due()  # it was put back
    assert sum(receiver.sizes) == 3
