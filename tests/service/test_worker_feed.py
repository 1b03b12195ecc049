"""What a worker tells its feed: that a run is caught up, when it is, and only then."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tocsin_detectors.entries import StepVector
from tocsin_service.exposition import Exposition
from tocsin_service.judging import worker as module
from tocsin_service.judging.worker import BATCH, Worker
from tocsin_service.store import Record
from tocsin_service.store.sqlite import SqliteStore

NOW = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "tocsin.db")
    yield store
    store.close()


class Feed:
    """Keeps how far each run was committed when it was said to be caught up."""

    def __init__(self, store: SqliteStore, *overlooked: str) -> None:
        self._store, self._overlooked = store, overlooked
        self.heard: list[tuple[str, int]] = []
        self.since: list[float] = []

    def overlooked(self) -> Iterable[str]:
        return self._overlooked

    def caught_up(self, run: str, since: float) -> None:
        self.heard.append((run, self._store.load(run).position))
        self.since.append(since)


def add(store: SqliteStore, steps: range, run: str = "run") -> None:
    records = [Record(StepVector(step, {"actor/grad_norm": 1.0}, NOW + step)) for step in steps]
    store.append(run, records, NOW).result(30)


def work(store: SqliteStore, feed: Feed, *runs: str) -> None:
    worker = Worker(store, Exposition(store), feed=feed)
    for run in runs:
        worker.wake(run)
    worker.start()
    assert worker.wait_idle(30)
    worker.stop(30)


@pytest.mark.parametrize("steps", [1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH])
def test_once_at_the_end_of_the_log(store: SqliteStore, steps: int) -> None:
    add(store, range(steps))
    feed, before = Feed(store), time.monotonic()
    work(store, feed, "run")
    assert feed.heard == [("run", steps)]
    assert before <= feed.since[0] <= time.monotonic()


def test_also_where_there_was_nothing_to_do(store: SqliteStore) -> None:
    feed = Feed(store)
    work(store, feed, "unknown")
    assert feed.heard == [("unknown", 0)]


def test_what_the_feed_has_overlooked_is_folded(store: SqliteStore) -> None:
    for run in ("ours", "theirs"):
        add(store, range(5), run)
    feed = Feed(store, "ours")
    work(store, feed)
    assert feed.heard == [("ours", 5)]
    assert store.news() == ["theirs"]


def test_not_while_the_store_is_away(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", (0.01,))
    add(store, range(5))
    store._connection.execute("PRAGMA query_only = ON")
    feed = Feed(store)
    worker = Worker(store, Exposition(store), feed=feed)
    worker.wake("run")
    worker.start()
    assert not worker.wait_idle(0.1)
    assert not feed.heard
    store._connection.execute("PRAGMA query_only = OFF")
    assert worker.wait_idle(30)
    worker.stop(30)
    assert feed.heard == [("run", 5)]


def test_not_if_the_log_can_not_be_read(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    add(store, range(5))
    store._writer.submit(lambda connection: connection.execute("UPDATE log SET entry = '{}'")).result()
    feed = Feed(store)
    work(store, feed, "run")
    assert not feed.heard
