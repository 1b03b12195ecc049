"""What fires is shown again and again: by the thread, from a real store, in step with /metrics."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.service.stores import (
    ACKNOWLEDGEMENT,
    ALERT,
    INCIDENT,
    NOW,
    OpenStore,
    add,
    change,
    events,
    positions,
    record,
)
from tests.service.test_exposition import scrape

from tocsin_detectors.alerts import Severity, Transition
from tocsin_service.delivery.alertmanager import BATCH, Alertmanager
from tocsin_service.delivery.resend import Resend
from tocsin_service.exposition import Exposition
from tocsin_service.firing import Firing, Labels, label, read_firing
from tocsin_service.silences import Matchers, Silence
from tocsin_service.store import Store
from tocsin_service.store.sqlite import SqliteStore

WARNING = label(ALERT), label(INCIDENT)


class Stage:
    """A store in which something fires, and a thread that shows it every 10 ms, by a clock that stands still."""

    def __init__(self, store: Store, hook: Any) -> None:
        self.store, self.hook, self.now, self.mine, self.audible = store, hook, NOW + 10, True, True
        self.exposition = Exposition(store)
        self.receiver = Alertmanager(hook.address, clock=lambda: self.now)
        self.resend = Resend(store, self.receiver, self.exposition, lambda _: self.audible, lambda _: self.mine)

    def fire(self, transition: Transition = Transition.FIRED, **changes: Any) -> None:
        add(self.store, record(positions(self.store)[-1] + 1))
        before, *_, last = positions(self.store)
        done = self.store.load("r").position
        assert self.store.commit("r", change(done or before, last, events(transition, **changes)))

    def next(self) -> dict[Labels, float]:
        """The next POST: what it says when, in seconds from now, what ends."""
        found = {}
        for alert in self.hook.next():
            labels = {name: value for name, value in alert["labels"].items() if name != "alertname"}
            found[Labels(**labels)] = datetime.fromisoformat(alert["endsAt"]).timestamp() - self.now
        return found

    def due(self) -> list[dict[Labels, Any]]:
        with self.receiver._lock:
            return self.receiver._ledger.due(self.now)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(3_000):
            if holds():
                return
            pause.wait(0.01)
        pytest.fail("it never came")

    def until(self, holds: Callable[[dict[Labels, float]], bool]) -> dict[Labels, float]:
        """The first POST of which something holds."""
        for _ in range(1_000):
            if holds(found := self.next()):
                return found
        pytest.fail("it never came")


@pytest.fixture
def stage(open_store: OpenStore, hook: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(Alertmanager, "resend", 0.01)
    made = Stage(open_store(), hook)
    made.receiver._ledger._lasting = 120.0
    made.fire()
    yield made
    made.resend.stop(30)
    made.receiver.close()


def test_what_fires_is_shown_at_the_start_and_then_again(stage: Stage) -> None:
    stage.resend.start()
    for _ in range(3):
        assert stage.next() == dict.fromkeys(WARNING, 120.0)


def test_what_rises_is_shown_beside_what_it_was_until_that_ends(stage: Stage) -> None:
    stage.resend.start()
    stage.next()
    stage.fire(Transition.ESCALATED, severity=Severity.CRITICAL)
    critical = {labels._replace(severity="critical") for labels in WARNING}
    assert stage.until(lambda found: found.keys() == critical) == dict.fromkeys(critical, 120.0)
    stage.now += 121
    found = stage.until(lambda found: min(found.values()) <= 0)
    assert found.keys() == set(WARNING)
    assert stage.next() == dict.fromkeys(critical, 120.0)


def test_silences_routes_and_acknowledgements(stage: Stage) -> None:
    stage.resend.start()
    stage.next()
    stage.store.acknowledge(ACKNOWLEDGEMENT)
    for _ in range(10_000):
        if any("acknowledged_by" in alert["annotations"] for alert in stage.hook.next()):
            break
    else:
        pytest.fail("nobody says who looks after it")
    stage.store.add_silence(Silence("s", Matchers(rule="non_*"), NOW, NOW + 200))
    stage.wait_for(lambda: not stage.due())
    stage.now += 121
    stage.until(lambda found: max(found.values()) <= 0)  # over, as nobody wants to hear of it
    stage.now += 100
    stage.until(lambda found: min(found.values()) == 120)  # and now again
    stage.audible = False
    stage.wait_for(lambda: not stage.due())


def test_only_who_serves_the_receiver_shows(stage: Stage) -> None:
    stage.resend.start()
    stage.next()
    stage.mine = False
    stage.wait_for(lambda: WARNING[0] not in stage.receiver._ledger)
    stage.mine = True
    stage.next()


def test_trouble_is_counted_and_passes(stage: Stage) -> None:
    stage.hook.script = [(500, {}), (400, {}), (200, {})]
    stage.resend.start()
    for _ in range(4):
        stage.next()
    text = stage.exposition.render().decode()
    for result, at_least in (("retry", 1), ("failed", 1), ("sent", 1)):
        sample = f'tocsin_delivery_total{{receiver="alertmanager",result="{result}"}} '
        assert float(text.split(sample)[1].split()[0]) >= at_least


def test_the_thread_outlives_a_store_that_is_away(hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Alertmanager, "resend", 0.01)
    store = SqliteStore(tmp_path / "tocsin.db")
    stage = Stage(store, hook)
    stage.fire()
    store.close()
    stage.resend.start()
    tried, again = threading.Event(), SqliteStore(tmp_path / "tocsin.db")

    def silences() -> list[Silence]:
        tried.set()
        return []

    monkeypatch.setattr(again, "silences", silences)
    stage.resend._store = again
    assert tried.wait(30)
    stage.next()
    stage.resend.stop(30)
    stage.receiver.close()
    again.close()


def test_stopping_is_possible_at_any_time(stage: Stage) -> None:
    stage.resend.stop(30)
    stage.resend.stop(30)


def test_ten_thousand(hook: Any) -> None:
    receiver = Alertmanager(hook.address, clock=lambda: NOW)
    alerts = tuple(replace(ALERT, id=str(number), metric=f"m{number}") for number in range(9_999))
    assert receiver.show([Firing(INCIDENT, alerts, {})], (), {}) is not None
    sent = [alert["labels"]["metric"] for _ in range(10_000 // BATCH) for alert in hook.next()]
    assert len(set(sent)) == len(sent) == 10_000
    receiver.close()


def test_the_push_says_what_metrics_say(make_api: Any, hook: Any) -> None:
    """Also after a restart, when the outbox knows of nothing to tell."""
    silent = make_api()
    bodies = [{"step": step, "metrics": {"actor/pg_loss": math.nan, "actor/entropy": math.inf}} for step in range(5)]
    for run in ("a", 'b "x" {y="z"}\U0001f514'):
        silent.post(bodies, run=run)
    silent.settle()
    silent.service.stop()
    api = make_api(alertmanager=hook.address)
    pushed = {
        frozenset((name, value) for name, value in alert["labels"].items() if name != "alertname")
        for alert in (*hook.next(), *hook.next())  # what is critical, and warnings
    }
    assert pushed == {frozenset(labels) for labels in scrape(api)["tocsin_alert"]}
    assert len(pushed) >= 4


def test_members_come_in_order_and_what_is_not_asked_for_does_not_come(open_store: OpenStore) -> None:
    store = open_store()
    add(store, record(1))
    later = replace(ALERT, id="a2", metric="actor/entropy")
    first, told = events()
    store.commit("r", change(0, positions(store)[1], [first, replace(first, alert=later), told]))
    [firing] = read_firing(store, {"r": {"team": "rl"}})
    assert [alert.id for alert in firing.alerts] == ["a1", "a2"]
    assert firing.subjects[-1] == INCIDENT
    assert read_firing(store, {"other": {}}) == []


@pytest.mark.parametrize(
    ("matchers", "silenced"),
    [
        (Matchers(rule="non_finite"), {"actor/pg_loss", "incident", "step"}),  # nothing but it fires: all is silent
        (Matchers(severity=Severity.WARNING), {"actor/pg_loss", "incident", "step"}),
        (Matchers(rule="kl_*"), set()),
        (Matchers(labels={"team": "rl"}), {"actor/pg_loss", "incident", "step"}),
        (Matchers(labels={"team": "*"}, run="x*"), set()),
    ],
)
def test_silenced(matchers: Matchers, silenced: set[str]) -> None:
    firing = Firing(INCIDENT, (ALERT, replace(ALERT, id="a2", metric="step")), {"team": "rl"})
    found = firing.silenced([Silence("s", matchers, 0, 9)], 5)
    assert {labels.metric for labels in found} == silenced
    assert firing.silenced([Silence("s", matchers, 0, 9)], 9) == set()


def test_one_silenced_rule_of_two() -> None:
    firing = Firing(INCIDENT, (ALERT, replace(ALERT, id="a2", rule="gap", metric="step")), {})
    found = firing.silenced([Silence("s", Matchers(rule="gap"), 0, 9)], 5)
    assert {labels.metric for labels in found} == {"step"}
