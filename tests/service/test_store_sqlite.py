"""The store's contract, on a real SQLite file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
from tocsin_detectors.entries import Rebaseline, RunConfig, StepVector
from tocsin_service.store import (
    Appended,
    Commit,
    Notification,
    Progress,
    Record,
    Settlement,
    Told,
    TooManyRuns,
)
from tocsin_service.store.sqlite import SqliteStore

NOW = 1_700_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tocsin.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, max_runs=3)
    yield store
    store.close()


def record(step: int, key: str | None = None, **metrics: float) -> Record:
    return Record(StepVector(step, metrics or {"loss": 0.5}, NOW + step), key or f"k{step}")


def add(store: SqliteStore, *records: Record, run: str = "r") -> Appended:
    return store.append(run, records, NOW).result(30)


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


def events(transition: Transition = Transition.FIRED, **changes: Any) -> list[Event]:
    return [
        AlertEvent(transition, replace(ALERT, **changes), 2, NOW),
        IncidentEvent(transition, replace(INCIDENT, **changes), 2, NOW),
    ]


def change(expected: int, position: int, found: list[Event] | None = None, **fields: Any) -> Commit:
    found = found or []
    wishes = [Notification("slack", one.incident.id, one.id) for one in found if isinstance(one, IncidentEvent)]
    return Commit(expected, position, "v1", NOW, **{"events": found, "notifications": wishes, **fields})


class TestLog:
    def test_entries_come_back_in_order(self, store: SqliteStore) -> None:
        entries = [
            StepVector(1, {"a": math.inf, "b": -0.0, "ü\n": 1e-300}, NOW, 2),
            RunConfig(algorithm="grpo", group_size=8, labels={"team": "α"}),
            Rebaseline("loss", "on purpose"),
        ]
        assert add(store, *map(Record, entries)) == Appended(3, 0)
        assert [(one.position, one.entry) for one in store.read("r", 0, 10)] == list(enumerate(entries, 1))
        assert [one.position for one in store.read("r", 1, 1)] == [2]
        assert store.read("r", 3, 10) == []
        assert store.read("other", 0, 10) == []

    def test_nan_survives(self, store: SqliteStore) -> None:
        add(store, record(1, loss=math.nan))
        (stored,) = store.read("r", 0, 10)
        assert isinstance(stored.entry, StepVector)
        assert math.isnan(stored.entry.metrics["loss"])

    def test_a_known_key_is_not_stored_again(self, store: SqliteStore) -> None:
        assert add(store, record(1), record(2), record(1)) == Appended(2, 1)
        assert add(store, record(2), record(3)) == Appended(1, 1)
        assert [one.position for one in store.read("r", 0, 10)] == [1, 2, 3]
        assert add(store, record(1), run="s") == Appended(1, 0)

    def test_a_configuration_that_changes_nothing_is_not_stored(self, store: SqliteStore) -> None:
        grpo = Record(RunConfig(algorithm="grpo"))
        assert add(store, grpo, grpo) == Appended(1, 1)
        assert add(store, grpo) == Appended(0, 1)
        assert add(store, Record(RunConfig())) == Appended(0, 1)
        assert add(store, Record(RunConfig(framework="trl"))) == Appended(1, 0)
        summary = store.run("r")
        assert summary is not None
        assert summary.config == RunConfig(algorithm="grpo", framework="trl")

    def test_bound_of_runs(self, store: SqliteStore) -> None:
        for run in "abc":
            add(store, record(1), run=run)
        with pytest.raises(TooManyRuns, match="max_runs"):
            add(store, record(1), run="d")
        assert store.run("d") is None
        assert add(store, record(2), run="a") == Appended(1, 0)

    def test_many_at_once_are_all_stored(self, store: SqliteStore) -> None:
        futures = [store.append("r", [record(step)], NOW) for step in range(1000)]
        assert sum(future.result(30).accepted for future in futures) == 1000
        assert [one.position for one in store.read("r", 0, 2000)] == list(range(1, 1001))

    def test_one_bad_append_harms_no_other_of_its_group(self, store: SqliteStore) -> None:
        futures = [store.append(run, [record(1)], NOW) for run in ("a", "\ud800", "b")]
        assert futures[0].result(30) == futures[2].result(30) == Appended(1, 0)
        with pytest.raises(UnicodeEncodeError):
            futures[1].result(30)

    def test_seek(self, store: SqliteStore) -> None:
        add(store, *(record(step) for step in (10, 20, 30)))
        assert [store.seek("r", after, 2) for after in (0, 10, 19, 30, 99)] == [0, 1, 1, 3, 3]
        assert store.seek("r", None, 2) == 1
        assert store.seek("r", None, 9) == 0
        assert store.seek("unknown", None, 9) == store.seek("unknown", 1, 9) == 0

    def test_recent_times(self, store: SqliteStore) -> None:
        add(store, *(record(step) for step in (1, 2, 3)))
        assert store.recent_times("r", 2) == [(3, NOW + 3), (2, NOW + 2)]


class TestCommit:
    def test_news_until_committed(self, store: SqliteStore) -> None:
        add(store, record(1), record(2))
        assert store.news() == ["r"]
        assert store.commit("r", change(0, 2))
        assert store.news() == []
        assert store.load("r") == Progress(2, "v1", None)
        assert store.load("unknown") == Progress()

    def test_a_second_commit_from_the_same_position_is_refused(self, store: SqliteStore) -> None:
        add(store, record(1), record(2))
        assert store.commit("r", change(0, 1, events(), state={"n": 1}))
        late = change(0, 2, events(id="x"), state={"n": 2})
        assert not store.commit("r", late)
        assert not store.commit("unknown", late)
        progress = store.load("r")
        assert progress.position == 1
        assert progress.snapshot is not None
        assert progress.snapshot.state == {"n": 1}
        assert [one.id for one in store.alerts("r", None, None, 10)] == ["a1"]

    def test_nothing_beyond_the_log_can_be_committed(self, store: SqliteStore) -> None:
        add(store, record(1))
        assert not store.commit("r", change(0, 2))

    def test_an_older_snapshot_stays_until_there_is_a_newer(self, store: SqliteStore) -> None:
        add(store, record(1), record(2))
        store.commit("r", change(0, 1, state={"n": 1}))
        store.commit("r", change(1, 2))
        progress = store.load("r")
        assert progress.snapshot is not None
        assert (progress.position, progress.snapshot.position) == (2, 1)

    def test_a_view_that_is_older_than_the_configuration_does_not_hide_it(self, store: SqliteStore) -> None:
        add(store, Record(RunConfig(algorithm="grpo")))
        add(store, Record(RunConfig(framework="trl")))
        for position, engine_saw, expected in [
            (1, RunConfig("grpo", profile="moe"), RunConfig("grpo", "trl")),
            (2, RunConfig("grpo", "trl", profile="moe"), RunConfig("grpo", "trl", profile="moe")),
        ]:
            assert store.commit("r", change(position - 1, position, config=engine_saw))
            summary = store.run("r")
            assert summary is not None
            assert summary.config == expected

    def test_alerts_keep_their_latest_form(self, store: SqliteStore) -> None:
        add(store, record(1), record(2))
        store.commit("r", change(0, 1, events()))
        store.commit("r", change(1, 2, events(Transition.RESOLVED, state=State.RESOLVED, resolved_step=9)))
        (alert,) = store.alerts("r", State.RESOLVED, None, 10)
        assert (alert.resolved_step, math.isnan(alert.evidence.value)) == (9, True)
        (incident,) = store.incidents(None, None, None, 10)
        assert incident.resolved_step == 9
        assert store.alerts("r", State.FIRING, None, 10) == []

    def test_filters(self, store: SqliteStore) -> None:
        add(store, record(1))
        add(store, record(1), run="s")
        store.commit("r", change(0, 1, events() + events(id="a2", severity=Severity.CRITICAL)))
        store.commit("s", change(0, 1, events(id="a3", run="s")))
        assert [one.id for one in store.alerts(None, None, None, 10)] == ["a3", "a2", "a1"]
        assert [one.id for one in store.alerts("r", State.FIRING, Severity.CRITICAL, 10)] == ["a2"]
        assert [one.id for one in store.incidents(None, None, None, 1)] == ["a3"]
        summary = store.run("r")
        assert summary is not None
        assert summary.firing == {"critical": 1, "warning": 1}

    def test_rewriting_forgets_what_was_found_before(self, store: SqliteStore) -> None:
        add(store, record(1))
        store.commit("r", change(0, 1, events()))
        assert store.commit("r", change(1, 1, events(id="b"), notifications=(), rewrite=True))
        assert [one.id for one in store.alerts("r", None, None, 10)] == ["b"]
        assert [one.id for one in store.incidents("r", None, None, 10)] == ["b"]
        assert store.pending_notifications() == 1

    def test_everything_is_there_after_reopening(self, path: Path) -> None:
        first = SqliteStore(path)
        add(first, record(1))
        first.commit("r", change(0, 1, events(), state={"n": 1}, attempt=2, error="oops"))
        first.close()
        first.close()
        second = SqliteStore(path)
        summary = second.run("r")
        assert summary is not None
        assert (summary.attempt, summary.error, summary.vectors, summary.pending) == (2, "oops", 1, 0)
        assert second.load("r").snapshot is not None
        assert second.pending_notifications() == 1
        assert add(second, record(1)) == Appended(0, 1)
        second.close()


class TestOutbox:
    def commit(self, store: SqliteStore, *batches: list[Event]) -> None:
        add(store, *(record(step) for step in range(len(batches))))
        for position, batch in enumerate(batches):
            assert store.commit("r", change(position, position + 1, batch))

    def test_a_claim_is_for_one(self, store: SqliteStore) -> None:
        self.commit(store, events())
        claim = store.claim("slack", NOW, 60)
        assert claim is not None
        assert (claim.incident, [alert.id for alert in claim.alerts], claim.told) == (INCIDENT, ["a1"], None)
        assert store.claim("slack", NOW + 59, 60) is None
        assert store.claim("pager", NOW, 60) is None
        assert store.claim("slack", NOW + 60, 60) is not None  # its sender must have died

    def test_not_before_it_is_due(self, store: SqliteStore) -> None:
        self.commit(store, events())
        assert store.next_due("slack") == NOW
        assert store.claim("slack", NOW - 1, 60) is None

    def test_settled(self, store: SqliteStore) -> None:
        self.commit(store, events())
        claim = store.claim("slack", NOW, 60)
        assert claim is not None
        store.settle(Settlement(claim, told=Told("non_finite", Severity.WARNING, State.FIRING, NOW)))
        assert store.pending_notifications() == 0
        assert store.next_due("slack") is None
        assert store.claim("slack", NOW + 999, 60) is None

    def test_again_later(self, store: SqliteStore) -> None:
        self.commit(store, events())
        claim = store.claim("slack", NOW, 60)
        assert claim is not None
        store.settle(Settlement(claim, retry_at=NOW + 5, error="HTTP 500"))
        assert store.next_due("slack") == NOW + 5
        again = store.claim("slack", NOW + 5, 60)
        assert again is not None
        assert again.tries == 1

    def test_news_during_a_claim_are_not_lost(self, store: SqliteStore) -> None:
        worse = events(Transition.ESCALATED, severity=Severity.CRITICAL)
        add(store, record(1), record(2))
        store.commit("r", change(0, 1, events()))
        claim = store.claim("slack", NOW, 60)
        assert claim is not None
        store.commit("r", change(1, 2, worse))
        assert store.claim("slack", NOW, 60) is None  # one message at a time
        told = Told("non_finite", Severity.WARNING, State.FIRING, NOW)
        store.settle(Settlement(claim, told=told))
        late = store.claim("slack", NOW, 60)
        assert late is not None
        assert late.told == told
        assert late.incident is not None
        assert late.incident.severity is Severity.CRITICAL

    def test_several_news_are_one_notification(self, store: SqliteStore) -> None:
        self.commit(store, events(), events(Transition.ESCALATED, severity=Severity.CRITICAL))
        assert store.pending_notifications() == 1

    def test_known_events_notify_nobody(self, store: SqliteStore) -> None:
        self.commit(store, events())
        claim = store.claim("slack", NOW, 60)
        assert claim is not None
        store.settle(Settlement(claim, told=Told("non_finite", Severity.WARNING, State.FIRING, NOW)))
        add(store, record(7))
        assert store.commit("r", change(1, 2, events()))
        assert store.pending_notifications() == 0

    def test_what_a_killed_service_had_taken_is_due_at_once(self, path: Path) -> None:
        first = SqliteStore(path)
        self.commit(first, events())
        assert first.claim("slack", NOW, 3600) is not None
        first.close()
        second = SqliteStore(path)
        assert second.claim("slack", NOW, 3600) is not None
        second.close()
