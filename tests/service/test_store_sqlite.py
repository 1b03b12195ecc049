"""What only the SQLite store promises; the contract has tests of its own."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.stores import NOW, add, change, events, positions, record, taken

from tocsin_detectors.entries import RunConfig
from tocsin_service.store import Record, Retention, Trimmed
from tocsin_service.store.sqlite import SqliteStore
from tocsin_service.store.sqlite import wal as wal_module
from tocsin_service.store.sqlite.wal import LIMIT, Wal

DAY = 86_400.0
WIDE = {f"metric{number}": 0.1 * number for number in range(100)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tocsin.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def test_positions_count_one_by_one(store: SqliteStore) -> None:
    add(store, *(record(step) for step in range(1000)))
    assert positions(store) == list(range(1001))


def test_what_a_killed_service_had_taken_is_due_at_once(path: Path) -> None:
    first = SqliteStore(path)
    add(first, record(1))
    first.commit("r", change(0, 1, events()))
    assert first.claim("slack", NOW, 3600) is not None
    first.close()
    second = SqliteStore(path)
    assert taken(second).interrupted
    second.close()


def test_nobody_gets_past_the_api(store: SqliteStore) -> None:
    assert store.dead_letters() == 0


def test_the_age_of_entries_is_counted_in_days(store: SqliteStore) -> None:
    for day in range(10):
        add(store, record(day), Record(RunConfig(group_size=day + 1)), now=NOW + day * DAY)
    store.commit("r", change(0, 20, state={}))
    now = NOW + 9 * DAY
    assert store.trim(Retention(days=20), now) == Trimmed(0, 0)
    assert store.trim(Retention(days=5), now) == Trimmed(7, 0)  # days 0 to 3; the last of them says how it was then
    stored = store.read("r", 0, 100)
    assert [one.position for one in stored] == list(range(8, 21))
    assert [one.entry for one in stored[:2]] == [RunConfig(group_size=4), record(4).entry]
    assert store.trim(Retention(days=5), now) == Trimmed(0, 0)
    assert store.trim(Retention(days=4), now) == Trimmed(2, 0)


def test_space_is_given_back(store: SqliteStore, path: Path) -> None:
    add(store, *(record(step, **WIDE) for step in range(3000)))
    store.commit("r", change(0, 3000, state={}))
    assert Wal(store._connection, path).empty()
    full = path.stat().st_size
    assert store.trim(Retention(entries=10), NOW) == Trimmed(2989, 0)
    assert Wal(store._connection, path).empty()
    assert path.stat().st_size < full / 10


def test_the_wal_stays_small_while_readers_come_and_go(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_module, "PATIENCE_MILLISECONDS", 10_000)  # a slow machine's readers take longer
    store._writer._wal = wal = Wal(store._connection, path, LIMIT // 8)
    stopping = threading.Event()

    def read() -> None:
        while not stopping.is_set():  # several at any time, each with a view of its own
            store.recent_times("r", 20)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in readers:
        thread.start()
    largest = 0
    try:
        for group in range(30):
            add(store, *(record(group * 100 + step, **WIDE) for step in range(100)))
            largest = max(largest, wal.size())
    finally:
        stopping.set()
        for thread in readers:
            thread.join()
    assert path.stat().st_size > LIMIT / 4
    assert largest < LIMIT / 4


def test_a_reader_that_stays_delays_nobody(store: SqliteStore, path: Path) -> None:
    add(store, record(0))
    store._writer._wal = wal = Wal(store._connection, path, LIMIT // 8)
    with store._reader() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM runs").fetchone()
        for group in range(12):
            add(store, *(record(group * 100 + step, f"{group}-{step}", **WIDE) for step in range(1, 100)))
        assert wal.size() > LIMIT / 8
        connection.execute("COMMIT")
    add(store, record(9999))
    assert wal.empty()
    assert wal.size() == 0


def test_how_full_it_is(store: SqliteStore, path: Path) -> None:
    add(store, *(record(step) for step in range(1000)))
    in_wal = store.usage()
    assert in_wal.used > path.stat().st_size
    assert Wal(store._connection, path).empty()
    assert store.usage().used == path.stat().st_size
    assert in_wal.free is not None
    assert 0 < in_wal.free < shutil.disk_usage(path.parent).total
