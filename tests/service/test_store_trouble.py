"""The store when it can't be opened, and when the disk gives up under it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.store import Appended, Commit, Record, StoreRefused, StoreUnavailable
from tocsin_service.store.sqlite import SqliteStore

NOW = 1_700_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tocsin.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def record(step: int, **metrics: float) -> Record:
    return Record(StepVector(step, metrics or {"loss": 0.5}, NOW + step), f"k{step}")


def add(store: SqliteStore, *records: Record) -> Appended:
    return store.append("r", records, NOW).result(30)


@pytest.mark.usefixtures("store")
def test_two_services_on_one_file(path: Path) -> None:
    with pytest.raises(StoreRefused, match="another Tocsin service uses this file"):
        SqliteStore(path)
    code = """
import pathlib, sys
from tocsin_service.store.sqlite import SqliteStore
SqliteStore(pathlib.Path(sys.argv[1]))
"""
    command = [sys.executable, "-c", code, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "another Tocsin service" in done.stderr


def test_a_newer_schema(path: Path) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for _ in range(2):  # a refusal leaves no lock behind
        with pytest.raises(StoreRefused, match=r"newer Tocsin .schema 99, .*update"):
            SqliteStore(path)


def test_an_older_schema_is_taken_along(path: Path) -> None:
    store = SqliteStore(path)
    add(store, record(1))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE runs DROP COLUMN given_at")  # what the second schema brought
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    for _ in range(2):
        store = SqliteStore(path)
        add(store, Record(RunConfig(algorithm="grpo")))
        summary = store.run("r")
        store.close()
        assert summary is not None
        assert (summary.step, summary.config) == (1, RunConfig(algorithm="grpo"))


def test_a_file_of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreRefused, match="another program"):
        SqliteStore(path)


def test_no_database_at_all(path: Path) -> None:
    path.write_text("a text of some length that is no database " * 20)
    with pytest.raises(StoreRefused, match=r"not a database.*choose another db"):
        SqliteStore(path)
    assert path.read_text().startswith("a text")


@pytest.mark.parametrize("name", ["missing/tocsin.db", "folder"])
def test_a_path_that_can_not_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreRefused, match="choose another db"):
        SqliteStore(tmp_path / name)


def test_a_folder_without_rights(tmp_path: Path) -> None:
    code = """
import os, pathlib, sys
from tocsin_service.store.sqlite import SqliteStore
if os.getuid() == 0:
    os.setuid(65534)
SqliteStore(pathlib.Path(sys.argv[1]) / "tocsin.db")
"""
    tmp_path.chmod(0o500 if os.getuid() else 0o700)  # not the process's own folder in either case
    try:
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        tmp_path.chmod(0o700)
    assert "StoreRefused" in done.stderr
    assert "choose another db" in done.stderr


def test_a_full_disk(store: SqliteStore) -> None:
    add(store, record(1))
    store._writer.submit(lambda connection: connection.execute("PRAGMA max_page_count = 40")).result()
    wide = {f"metric{n}": 0.1 for n in range(500)}
    futures = [store.append("r", [record(step, **wide)], NOW) for step in range(2, 100)]
    problems = [future.exception(30) for future in futures]
    assert "full" in str(problems[-1])
    assert {type(problem) for problem in problems} == {type(None), StoreUnavailable}
    assert len(store.read("r", 0, 1000)) == 1 + problems.count(None)
    store._writer.submit(lambda connection: connection.execute("PRAGMA max_page_count = 100000")).result()
    assert add(store, record(5000)) == Appended(1, 0)


def test_readonly(store: SqliteStore) -> None:
    add(store, record(1))
    store._connection.execute("PRAGMA query_only = ON")
    for work in (lambda: add(store, record(2)), store.check, lambda: store.commit("r", Commit(0, 1, "v", NOW))):
        with pytest.raises(StoreUnavailable, match="readonly"):
            work()
    assert len(store.read("r", 0, 10)) == 1
    store._connection.execute("PRAGMA query_only = OFF")
    store.check()


def test_closed(store: SqliteStore) -> None:
    store.close()
    with pytest.raises(StoreUnavailable):
        store.append("r", [record(1)], NOW)
    with pytest.raises(StoreUnavailable):
        store.runs(1)
