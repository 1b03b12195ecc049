"""The store when it can't be opened, and when the disk gives up under it."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.service.stores import ACKNOWLEDGEMENT, ACT, NOW, SILENCE, add, record, summary, taken

from tocsin_detectors.alerts import Severity, State
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.store import (
    Appended,
    Commit,
    Retention,
    Settlement,
    Snapshot,
    StoreRefused,
    StoreUnavailable,
    Told,
    Trimmed,
)
from tocsin_service.store.sqlite import SqliteStore
from tocsin_service.store.sqlite.schema import SCHEMA_VERSION

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tocsin.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


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


def make_older(path: Path, version: int) -> None:
    """What a Tocsin of an older schema has left."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((SCHEMAS / f"{version}.sql").read_text())
    connection.close()


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_schema_is_taken_along(path: Path, version: int) -> None:
    make_older(path, version)
    for new in (1, 0):  # the second time it is of the present schema
        store = SqliteStore(path)
        assert add(store, record(1), record(4), record(9), now=time.time()) == Appended(new, 3 - new)
        found = summary(store)
        assert (found.step, found.vectors, found.pending, found.firing) == (9, 5, 1, {"critical": 1})
        assert found.config == RunConfig("grpo", profile="dense")
        assert store.load("r").snapshot == Snapshot("v1", 3, {"n": 1})
        assert store.pending_notifications() == 1
        assert store.silences() == []
        # Nobody knows how old the older entries are: they begin to age now.
        assert store.trim(Retention(days=10), time.time() + 5 * 86_400) == Trimmed(0, 0)
        store.close()
    store = SqliteStore(path)
    assert store.trim(Retention(entries=1), NOW) == Trimmed(2, 0)  # up to the snapshot
    assert store.commit("r", Commit(5, 5, "v2", NOW, rewrite=True))
    (alert,) = store.alerts("r", None, None, 9)  # it began with the first entry kept, and is known to have
    assert (alert.state, alert.reason) == (State.RESOLVED, "reconfigured")
    store.close()


def test_an_outbox_from_before_there_were_acknowledgements(path: Path) -> None:
    make_older(path, 3)
    store = SqliteStore(path)
    told = Told("non_finite", Severity.CRITICAL, State.FIRING, NOW)
    assert store.silences() == [SILENCE]
    assert store.load("r").snapshot == Snapshot("v1", 3, {"n": 1})
    assert store.acknowledgements() == {}
    assert store.pending_notifications() == 2
    assert store.acknowledge(ACKNOWLEDGEMENT)
    assert store.pending_notifications() == 3  # the pager was told
    claims = {name: taken(store, ACKNOWLEDGEMENT.time, name) for name in ("slack", "pager", "webhook")}
    assert {name: claim.told for name, claim in claims.items()} == {"slack": None, "pager": told, "webhook": None}
    assert [(claim.tries, claim.error) for claim in claims.values()] == [(0, None), (0, None), (1, "HTTP 500")]
    assert {claim.acknowledged for claim in claims.values()} == {ACKNOWLEDGEMENT}
    store.settle(Settlement(claims["pager"], replace(told, acknowledged=True), retry_at=NOW + 3600))
    store.record(ACT)
    store.close()
    store = SqliteStore(path)
    assert store.next_due("pager") == NOW + 3600
    assert store.acts(9) == [ACT]
    assert store.acknowledgements("r") == {"i1": ACKNOWLEDGEMENT}
    store.close()


def test_the_present_schema_is_the_same_by_either_way(path: Path, tmp_path: Path) -> None:
    def shape(file: Path) -> dict[str, list[str]]:
        with sqlite3.connect(file) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master ORDER BY name")]
            columns = {
                name: sorted(str(row[1:]) for row in connection.execute(f"PRAGMA table_info({name})"))
                for name in tables
            }
        connection.close()
        return columns

    SqliteStore(path).close()
    for version in range(1, SCHEMA_VERSION):
        older = tmp_path / f"{version}.db"
        make_older(older, version)
        SqliteStore(older).close()
        assert shape(older) == shape(path)


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
    works: list[Callable[[], object]] = [
        lambda: add(store, record(2)),
        store.check,
        lambda: store.commit("r", Commit(0, 1, "v", NOW)),
        lambda: store.record(ACT),
    ]
    for work in works:
        with pytest.raises(StoreUnavailable, match="readonly"):
            work()
    assert len(store.read("r", 0, 10)) == 1
    assert store.acts(9) == []
    store._connection.execute("PRAGMA query_only = OFF")
    store.check()


def test_a_file_that_has_gone(store: SqliteStore, path: Path) -> None:
    assert store.usage().runs == 0
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreUnavailable, match="can't be looked at"):
        store.usage()


def test_closed(store: SqliteStore) -> None:
    store.close()
    with pytest.raises(StoreUnavailable):
        store.append("r", [record(1)], NOW)
    with pytest.raises(StoreUnavailable):
        store.runs(1)


SERVE = """
import resource, sys
from tocsin_service.cli import main
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
main(["serve", "--port", "0", "--db", sys.argv[2]])
"""


def test_a_disk_that_fills_up_under_a_running_service(path: Path) -> None:
    """No file may grow beyond some size: what a full disk is to SQLite. Then there is room again."""
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(2**19), path], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        heard = (re.search(r"listening on (\S+),", line) for line in process.stderr)
        address = next(found.group(1) for found in heard if found)
        reader = threading.Thread(target=process.stderr.read)  # nobody has to wait for a full pipe
        reader.start()
        wide = {f"metric{number}": 0.1 for number in range(300)}
        acknowledged, statuses = [], []
        for step in range(200):
            status, data = _post(address, {"step": step, "metrics": wide})
            statuses.append(status)
            if status == 202:
                acknowledged.append(step)
            elif "retry-after" not in data.lower():
                pytest.fail(data)
        assert set(statuses) == {202, 503}
        assert statuses[-1] == 503
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert _post(address, {"step": 1000, "metrics": wide})[0] == 202
    finally:
        process.kill()
        process.wait(30)
        reader.join()
        process.stderr.close()
    store = SqliteStore(path)
    stored = [one.entry.step for one in store.read("r", 0, 1000) if isinstance(one.entry, StepVector)]
    store.close()
    assert stored == [*acknowledged, 1000]


def _post(address: str, body: object) -> tuple[int, str]:
    """Status and headers of the answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("POST", "/v1/runs/r/steps", json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        return answer.status, str(answer.headers)
    finally:
        connection.close()
