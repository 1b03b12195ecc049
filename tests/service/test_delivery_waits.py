"""What has to wait is told in the end: for a silence, for the morning, for a reminder, for the pace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.service.delivering import ALERT, Recorder, Stage, resolved
from tests.service.stores import OpenStore

from tocsin_detectors.alerts import Severity, Transition
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.delivery import Failed, Reason, Result, Retry, Sent, loop
from tocsin_service.delivery.pace import Pace
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.quiet import QuietHours
from tocsin_service.delivery.routing import Route
from tocsin_service.exposition import Exposition
from tocsin_service.silences import Matchers, Silence
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


# Silences, quiet hours, routes, acknowledgements, reminders: that what waits is told in the end.


def test_a_silence_that_is_ended_early_is_noticed_within_a_minute(any_stage: Stage) -> None:
    stage, receiver = any_stage, Recorder()
    stage.store.add_silence(Silence("s", Matchers(run="r*"), 0.0, 99_999.0))
    stage.say(Transition.FIRED, ALERT)
    for stage.now in (1000.0, 1030.0, 1059.0):
        stage.serve(receiver)
    assert receiver.calls == []
    assert stage.store.pending_notifications() == 1  # the other's: what is put off isn't late
    stage.store.expire_silence("s", stage.now)
    assert stage.store.next_due("recorder") == 1060.0
    stage.now = 1060.0
    stage.serve(receiver)
    assert receiver.reasons == [Reason.OPENED]


def test_what_a_silence_held_back_is_told_as_it_is_then(stage: Stage) -> None:
    receiver = Recorder()
    stage.say()
    stage.serve(receiver)
    stage.store.add_silence(Silence("s", Matchers(), 0.0, 1100.0))
    stage.say(Transition.ESCALATED, severity=C)
    stage.say(Transition.RESOLVED, **resolved(severity=C))
    for stage.now in (1000.0, 1060.0, 1099.0):
        stage.serve(receiver)
    assert receiver.reasons == [Reason.OPENED]
    stage.now = 1100.0
    stage.serve(receiver)
    assert receiver.reasons == [Reason.OPENED, Reason.RESOLVED]


def test_a_warning_of_the_night_becomes_critical(any_stage: Stage) -> None:
    """It waits for the morning until then, and not a moment longer."""
    stage, receiver = any_stage, Recorder()
    night = Policy(quiet=(QuietHours(time(0), time(8), ZoneInfo("UTC")),))
    stage.say()
    stage.serve(receiver, policy=night)
    assert receiver.calls == []
    stage.say(Transition.ESCALATED, severity=C)
    stage.serve(receiver, policy=night)
    assert receiver.reasons == [Reason.OPENED]


def test_the_warnings_of_a_night_are_one_message_in_the_morning(stage: Stage) -> None:
    receiver, night = Recorder(), Policy(quiet=(QuietHours(time(0), time(8), ZoneInfo("UTC")),))
    for number in range(20):
        stage.say(id=f"i{number}")
        stage.now += 60
        stage.serve(receiver, policy=night)
    while stage.now < 8 * 3600 - 1:
        stage.now = min(8 * 3600 - 1.0, stage.now + 300)
        stage.serve(receiver, policy=night)
    assert receiver.calls == []
    stage.now = 8 * 3600.0
    stage.serve(receiver, policy=night)
    assert receiver.sizes == [20]


def test_who_is_routed_an_incident_only_when_it_escalates_is_told_then(any_stage: Stage) -> None:
    stage, pager, chat = any_stage, Recorder("other"), Recorder()
    routes = (
        Route(Matchers(severity=C, rule="kl_*"), ("other",)),
        Route(Matchers(), ("recorder",)),
    )
    for transition, changes in (
        (Transition.FIRED, {}),
        (Transition.ESCALATED, {"severity": C}),
        (Transition.RESOLVED, resolved(severity=C)),
    ):
        stage.say(transition, **changes)
        for receiver in (pager, chat):
            stage.serve(receiver, routes=routes)
    assert pager.reasons == [Reason.OPENED, Reason.RESOLVED]
    assert chat.reasons == [Reason.OPENED, Reason.ESCALATED, Reason.RESOLVED]


def test_reminders_until_somebody_acknowledges(any_stage: Stage) -> None:
    stage, receiver, hourly = any_stage, Recorder(), Policy(remind_seconds=3600.0)
    stage.say(severity=C)
    for stage.now in (1000.0, 4599.0, 4600.0, 8199.0, 8200.0):
        stage.serve(receiver, policy=hourly)
    assert receiver.reasons == [Reason.OPENED, Reason.REMINDED, Reason.REMINDED]
    assert len({news.id for (news,) in receiver.calls}) == 3
    acknowledge(stage)
    for stage.now in (8200.0, 99_999.0):
        stage.serve(receiver, policy=hourly)
    assert receiver.reasons[3:] == [Reason.ACKNOWLEDGED]
    assert receiver.calls[-1][0].acknowledged == Acknowledgement("run", "i1", "ada", "mine", 8200.0)
    assert stage.store.next_due("recorder") is None


def test_an_end_does_not_wait_for_the_reminder(any_stage: Stage) -> None:
    stage, receiver, hourly = any_stage, Recorder(), Policy(remind_seconds=3600.0)
    stage.say(severity=C)
    stage.serve(receiver, policy=hourly)
    stage.say(Transition.RESOLVED, **resolved(severity=C))
    stage.serve(receiver, policy=hourly)
    assert receiver.reasons == [Reason.OPENED, Reason.RESOLVED]
    assert stage.store.next_due("recorder") is None


def test_who_was_not_told_of_an_incident_does_not_hear_that_it_is_acknowledged(stage: Stage) -> None:
    chat, pager = Recorder(), Recorder("other")
    routes = (Route(Matchers(), ("recorder",)),)
    stage.say()
    for receiver in (chat, pager):
        stage.serve(receiver, routes=routes)
    acknowledge(stage)
    for receiver in (chat, pager):
        stage.serve(receiver, routes=routes)
    assert chat.reasons == [Reason.OPENED, Reason.ACKNOWLEDGED]
    assert pager.calls == []


def test_threads_go_on(stage: Stage) -> None:
    receiver = Recorder(script=[Sent("first"), Sent("second"), Sent(None)])
    for transition, changes in (
        (Transition.FIRED, {}),
        (Transition.ESCALATED, {"severity": C}),
        (Transition.RESOLVED, resolved(severity=C)),
    ):
        stage.say(transition, **changes)
        stage.serve(receiver)
    assert [news.thread for (news,) in receiver.calls] == [None, "first", "second"]
    assert [news.told_at for (news,) in receiver.calls] == [None, 1000.0, 1000.0]


# The pace.


def test_too_much_at_once_is_one_message(any_stage: Stage) -> None:
    stage, receiver, policy = any_stage, Recorder(), Policy(pace=Pace(2, 30.0))
    delivery = stage.deliver(receiver, policy=policy)
    for number in range(2):
        stage.say(id=f"i{number}")
    delivery._send_due()
    for number in range(2, 7):
        stage.say(id=f"i{number}")
    delivery._send_due()
    assert receiver.sizes == [1, 1]
    assert stage.store.pending_notifications() == 5 + 7  # nothing is claimed that can't be told
    assert stage.store.next_due("recorder") == 1000.0
    assert delivery._wait_seconds() == loop.LONGEST_WAIT
    for stage.now in (1010.0, 1029.9, 1030.0):
        delivery._send_due()
    assert receiver.sizes == [1, 1, 5]
    assert stage.store.next_due("recorder") is None


def test_a_summary_settles_each_incident_as_if_it_was_told_alone(any_stage: Stage) -> None:
    stage, receiver = any_stage, Recorder(script=[Sent("thread of i0"), Sent("a summary")])
    policy = Policy(pace=Pace(1, 30.0), remind_seconds=3600.0)
    delivery = stage.deliver(receiver, policy=policy)
    stage.say(id="i0", severity=C)
    delivery._send_due()
    stage.say(Transition.RESOLVED, **resolved(id="i0", severity=C))
    stage.say(id="i1", severity=C)
    stage.say(id="i2")
    stage.now = 1030.0
    delivery._send_due()
    assert [(news.incident.id, news.reason, news.thread) for news in receiver.calls[1]] == [
        ("i0", Reason.RESOLVED, "thread of i0"),
        ("i1", Reason.OPENED, None),
        ("i2", Reason.OPENED, None),
    ]
    assert stage.store.next_due("recorder") == 1030.0 + 3600.0  # i1 is critical
    stage.now = 9999.0
    stage.say(Transition.ESCALATED, id="i2", severity=C)
    delivery._send_due()
    assert {(news.incident.id, news.reason, news.thread) for news in receiver.calls[2]} == {
        ("i1", Reason.REMINDED, "a summary"),
        ("i2", Reason.ESCALATED, "a summary"),
    }


def test_a_summary_that_fails_is_tried_again(stage: Stage) -> None:
    receiver, policy = Recorder(script=[Retry("timeout")]), Policy(pace=Pace(1, 30.0))
    delivery = stage.deliver(receiver, policy=policy)
    for number in range(3):
        stage.say(id=f"i{number}")
    for stage.now in (1000.0, 1000.9, 1001.0):
        delivery._send_due()
    assert receiver.sizes == [3, 3]  # what didn't get out costs nothing
    assert [news.again for news in receiver.calls[1]] == [True, True, True]
    assert {news.id for news in receiver.calls[0]} == {news.id for news in receiver.calls[1]}
    deliveries = stage.exposition.render().decode()
    assert 'tocsin_delivery_total{receiver="recorder",result="retry"} 1.0' in deliveries
    assert 'tocsin_delivery_total{receiver="recorder",result="sent"} 1.0' in deliveries


def test_what_a_receiver_refuses_takes_nothing_along(stage: Stage) -> None:
    """One incident makes every message it is in unacceptable."""

    class Picky(Recorder):
        def _take(self, news: list[Any]) -> Result:
            super()._take(news)
            return Failed("invalid_blocks") if any(one.incident.id == "i5" for one in news) else Sent()

    receiver = Picky()
    for number in range(8):
        stage.say(id=f"i{number}")
    stage.serve(receiver, policy=Policy(pace=Pace(1, 30.0)))
    calls = [[news.incident.id for news in call] for call in receiver.calls]
    heard = [one for call in calls for one in call if "i5" not in call]
    assert sorted(heard) == [f"i{number}" for number in range(8) if number != 5]
    assert receiver.sizes == [8, 4, 4, 2, 1, 1, 2]
    assert stage.store.next_due("recorder") is None


def test_a_mirror_knows_no_pace(stage: Stage) -> None:
    receiver, mirror = Recorder(), Policy(pace=Pace(1, 30.0), mirrors=True)
    delivery = stage.deliver(receiver, policy=mirror)
    for number in range(5):
        stage.say(id=f"i{number}")
        delivery._send_due()
    for number in range(5):
        stage.say(Transition.GREW, id=f"i{number}", members=("a1", "a2"))
    delivery._send_due()
    assert receiver.sizes == [1, 1, 1, 1, 1, 5]
    assert set(receiver.reasons) == {Reason.CHANGED}


def test_a_pace_is_no_slower_for_what_is_not_told(stage: Stage) -> None:
    """An incident that grows is no message and costs none."""
    receiver, policy = Recorder(), Policy(pace=Pace(2, 30.0))
    delivery = stage.deliver(receiver, policy=policy)
    stage.say()
    for number in range(2, 20):
        stage.say(Transition.GREW, members=tuple(f"a{one}" for one in range(number)))
        delivery._send_due()
    stage.say(id="i2")
    delivery._send_due()
    assert receiver.sizes == [1, 1]


def test_a_message_is_about_the_members_too(stage: Stage) -> None:
    receiver, other = Recorder(), replace(ALERT, id="a2", rule="entropy_collapse")
    stage.say(Transition.FIRED, ALERT, other)
    stage.store.add_silence(Silence("s", Matchers(rule="kl_jump"), 0.0, 99_999.0))
    routes = (Route(Matchers(rule="entropy_*"), ("recorder",)), Route(Matchers(), ()))
    stage.serve(receiver, policy=FREELY, routes=routes)
    assert [alert.id for alert in receiver.calls[0][0].alerts] == ["a1", "a2"]
