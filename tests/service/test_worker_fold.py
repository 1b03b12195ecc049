"""The worker: whatever happens between two commits, the alerts are those of an undisturbed fold."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tocsin_detectors.alerts import Alert
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.exposition import Exposition
from tocsin_service.judging import worker as module
from tocsin_service.judging.worker import BATCH, Worker
from tocsin_service.store import Commit, Outcome, Record, Stored, StoreUnavailable
from tocsin_service.store.sqlite import SqliteStore

NOW = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "tocsin.db")
    yield store
    store.close()


def vector(step: int, **metrics: float) -> Record:
    return Record(StepVector(step, metrics or {"actor/pg_loss": math.nan if step % 50 > 40 else 0.5}, NOW + step))


def add(store: SqliteStore, *records: Record, run: str = "run") -> None:
    store.append(run, records, NOW).result(30)


def work(store: SqliteStore, *, receivers: tuple[str, ...] = ("slack",)) -> Exposition:
    """Folds everything there is, with a worker that then stops in good order."""
    exposition = Exposition(store)
    worker = Worker(store, exposition, receivers, clock=lambda: NOW)
    worker.start()
    assert worker.wait_idle(30)
    worker.stop(30)
    assert not worker.alive()
    return exposition


def expected(store: SqliteStore, run: str = "run") -> dict[str, Alert]:
    """The alerts of an undisturbed fold over the log, in their latest form."""
    engine, alerts = Engine(run), {}
    for stored in store.read(run, 0, 100_000):
        for event in engine.feed(stored.entry):
            if hasattr(event, "alert"):
                alerts[event.alert.id] = event.alert
    return alerts


def found(store: SqliteStore, run: str = "run") -> dict[str, Alert]:
    return {alert.id: alert for alert in store.alerts(run, None, None, 10_000)}


def same(left: Mapping[str, Alert], right: Mapping[str, Alert]) -> bool:
    """Whether the alerts are equal to the last field; NaN counts as equal to itself."""
    return {key: repr(value) for key, value in left.items()} == {key: repr(value) for key, value in right.items()}


def test_a_backlog_is_folded_at_the_start(store: SqliteStore) -> None:
    add(store, *(vector(step) for step in range(300)))
    add(store, vector(1, reward=0.5), run="other")
    work(store)
    assert store.news() == []
    assert len(found(store)) > 3
    assert same(found(store), expected(store))


def test_restarts_anywhere_change_nothing(store: SqliteStore) -> None:
    for start, end in ((0, 1), (1, 45), (45, 46), (46, 200), (200, 333)):
        add(store, *(vector(step) for step in range(start, end)))
        work(store)
    assert same(found(store), expected(store))


def test_a_snapshot_at_the_end_saves_the_next_start_the_fold(store: SqliteStore) -> None:
    add(store, *(vector(step) for step in range(10)))
    work(store)
    progress = store.load("run")
    assert progress.snapshot is not None
    assert progress.snapshot.position == progress.position == 10


def test_snapshots_are_no_further_apart_than_a_batch(store: SqliteStore) -> None:
    add(store, *(vector(step) for step in range(3 * BATCH + 5)))
    exposition = Exposition(store)
    worker = Worker(store, exposition)
    worker.start()
    assert worker.wait_idle(30)
    progress = store.load("run")  # before the good order of a stop
    worker.stop(30)
    assert progress.snapshot is not None
    assert progress.position - progress.snapshot.position < BATCH


def test_an_older_snapshot_is_folded_on_silently(store: SqliteStore) -> None:
    """As after a kill: events are committed beyond the newest snapshot, and must not be told again."""
    records = [vector(step) for step in range(100)]
    add(store, *records)
    engine = Engine("run")
    first = [event for record in records[:30] for event in engine.feed(record.entry)]
    state = engine.snapshot()
    assert store.commit("run", Commit(0, 30, engine.version, NOW, first, state=state))
    second = [event for record in records[30:60] for event in engine.feed(record.entry)]
    assert second
    assert store.commit("run", Commit(30, 60, engine.version, NOW, second))
    exposition = work(store)
    assert same(found(store), expected(store))
    fired = sum(alert.fired_step >= 60 for alert in found(store).values())
    told = exposition.render().decode()
    assert f'transition="fired"}} {fired}.0' in told
    assert store.pending_notifications() == fired  # each of these alerts is an incident of its own


def test_without_any_snapshot_the_log_is_folded_from_its_start(store: SqliteStore) -> None:
    add(store, *(vector(step) for step in range(60)))
    work(store)
    store._writer.submit(lambda connection: connection.execute("DELETE FROM state")).result()
    add(store, *(vector(step) for step in range(60, 100)))
    before = store.pending_notifications()
    work(store)
    assert same(found(store), expected(store))
    assert store.pending_notifications() == before + 1


def test_a_snapshot_that_does_not_fit_is_no_hindrance(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    add(store, *(vector(step) for step in range(60)))
    work(store)
    broken = '{"version": "no such thing"}'
    store._writer.submit(lambda connection: connection.execute("UPDATE state SET snapshot = ?", (broken,))).result()
    add(store, *(vector(step) for step in range(60, 100)))
    work(store)
    assert same(found(store), expected(store))
    assert "snapshot doesn't fit" in caplog.text


def test_other_rules_fold_the_log_again_and_page_nobody(store: SqliteStore) -> None:
    """A run judged by an older version: its alerts are replaced, and what is past is told to nobody."""
    records = [vector(step) for step in range(100)]
    add(store, *records)
    engine = Engine("run")
    events = [event for record in records[:60] for event in engine.feed(record.entry)]
    stale = [replace(event, alert=replace(event.alert, id="stale")) for event in events if hasattr(event, "alert")]
    assert store.commit("run", Commit(0, 60, "older rules", NOW, stale, state={"of": "older rules"}))
    work(store)
    assert "stale" not in found(store)
    assert same(found(store), expected(store))
    assert store.load("run").version == engine.version
    assert store.pending_notifications() == sum(alert.fired_step >= 60 for alert in found(store).values())


def test_one_run_that_the_engine_chokes_on_stops_no_other(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Choosy(Engine):
        def feed(self, entry: Any) -> Any:
            if self.run == "bad" and getattr(entry, "step", None) == 3:
                raise ZeroDivisionError("step 3")
            return super().feed(entry)

    monkeypatch.setattr(module, "Engine", Choosy)
    for run in ("bad", "good"):
        add(store, *(vector(step) for step in range(100)), run=run)
    told = work(store).render().decode()
    bad, good = store.run("bad"), store.run("good")
    assert bad is not None
    assert good is not None
    assert bad.error == "log entry 4 was skipped: ZeroDivisionError: step 3"
    assert good.error is None
    assert bad.pending == good.pending == 0
    assert len(found(store, "bad")) == len(found(store, "good")) > 0
    assert "tocsin_worker_errors_total 1.0" in told
    assert "log entry 4 was skipped" in caplog.text


def test_an_engine_that_can_not_be_snapshotted_still_alerts(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Engine) -> dict[str, Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(module.Engine, "snapshot", fail)
    add(store, *(vector(step) for step in range(100)))
    work(store)
    assert same(found(store), expected(store))
    assert "no snapshot could be made" in caplog.text


def test_a_log_that_can_not_be_read_stops_no_other(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    add(store, vector(1), run="bad")
    store._writer.submit(lambda connection: connection.execute("UPDATE log SET entry = '{}'")).result()
    add(store, *(vector(step) for step in range(50)), run="good")
    exposition = Exposition(store)
    worker = Worker(store, exposition)
    worker.start()
    assert worker.wait_idle(30)
    worker.stop(30)
    assert same(found(store, "good"), expected(store, "good"))
    assert store.news() == ["bad"]
    assert "can't be folded" in caplog.text


def test_more_runs_than_fit_in_memory(store: SqliteStore) -> None:
    exposition = Exposition(store)
    worker = Worker(store, exposition, most_engines=2)
    worker.start()
    for step in range(50):
        for run in "abcd":
            add(store, vector(step), run=run)
            worker.wake(run)
    assert worker.wait_idle(60)
    assert len(worker._tracked) <= 2
    worker.stop(30)
    for run in "abcd":
        assert same(found(store, run), expected(store, run))


def test_more_runs_have_news_than_fit_in_memory(store: SqliteStore) -> None:
    for run in "abcd":
        add(store, vector(1), vector(2), run=run)
    exposition = Exposition(store)
    worker = Worker(store, exposition, most_engines=2)
    worker.start()
    assert worker.wait_idle(30)
    worker.stop(30)
    assert "tocsin_worker_errors_total 0.0" in exposition.render().decode()
    for run in "abcd":
        snapshot = store.load(run).snapshot
        assert snapshot is not None
        assert snapshot.position == 2


def test_what_one_run_meets_harms_no_other_of_the_same_turn(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for run in "abcd":
        add(store, *(vector(step) for step in range(BATCH // 8)), vector(60, **{"actor/pg_loss": math.nan}), run=run)
    commit_all, met = store.commit_all, {"a": False, "b": StoreUnavailable("away"), "c": ValueError("broken")}

    def meet(changes: Sequence[tuple[str, Commit]]) -> list[Outcome]:
        stored = iter(commit_all([one for one in changes if one[0] not in met]))
        return [met.pop(run) if run in met else next(stored) for run, _ in changes]

    monkeypatch.setattr(store, "commit_all", meet)
    monkeypatch.setattr(module, "PAUSE_SECONDS", (0.01,))
    work(store)
    assert not met
    assert store.news() == ["c"]
    work(store)
    for run in "abcd":
        assert same(found(store, run), expected(store, run))


def test_a_worker_that_was_overtaken_starts_again_from_what_is_committed(store: SqliteStore) -> None:
    add(store, *(vector(step) for step in range(30)))
    exposition = Exposition(store)
    worker = Worker(store, exposition)
    worker.start()
    assert worker.wait_idle(30)
    records = [vector(step) for step in range(30, 60)]
    add(store, *records)
    other = Engine("run")
    for stored in store.read("run", 0, 30):
        other.feed(stored.entry)
    events = [event for record in records for event in other.feed(record.entry)]
    assert store.commit("run", Commit(30, 60, other.version, NOW, events))
    add(store, *(vector(step) for step in range(60, 100)))
    worker.wake("run")
    assert worker.wait_idle(30)
    worker.stop(30)
    assert same(found(store), expected(store))


def test_store_trouble_is_waited_out(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", (0.01,))
    exposition = Exposition(store)
    worker = Worker(store, exposition)
    add(store, *(vector(step) for step in range(50)))
    store._connection.execute("PRAGMA query_only = ON")
    worker.start()
    assert not worker.wait_idle(0.2)
    store._connection.execute("PRAGMA query_only = OFF")
    assert worker.wait_idle(30)
    worker.stop(30)
    assert same(found(store), expected(store))
    assert "the worker waits for the store" in caplog.text


def test_while_the_store_is_away_it_is_asked_for_one_run_and_not_for_all(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    asked, began = [], threading.Event()

    def read(run: str, after: int, limit: int) -> list[Stored]:
        asked.append((run, after, limit))
        began.set()
        raise StoreUnavailable("away")

    for run in "abcd":
        add(store, vector(1), run=run)
    monkeypatch.setattr(store, "read", read)
    worker = Worker(store, Exposition(store))
    worker.start()
    assert began.wait(30)
    worker.stop(30)
    assert len(asked) == 1


def test_what_the_engine_knows_of_the_run_is_shown(store: SqliteStore) -> None:
    add(store, Record(RunConfig(algorithm="ppo")), vector(5), vector(6))
    add(store, Record(StepVector(2, {"actor/pg_loss": 0.25}, NOW + 99)))
    work(store)
    summary = store.run("run")
    assert summary is not None
    assert (summary.attempt, summary.step, summary.config.algorithm) == (1, 2, "ppo")


def test_stopping_before_starting(store: SqliteStore) -> None:
    Worker(store, Exposition(store)).stop(1)


@pytest.fixture(autouse=True)
def _quiet_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
