"""Retention runs by itself, in the service on a file and in the workers, each for its own runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tocsin_detectors.entries import StepVector
from tocsin_service import wiring
from tocsin_service.app import Service
from tocsin_service.exposition import Exposition
from tocsin_service.judging import keeping
from tocsin_service.judging.keeping import Keeper
from tocsin_service.judging.worker import Worker
from tocsin_service.settings import Settings
from tocsin_service.store import Record, Retention
from tocsin_service.store.sqlite import SqliteStore

NOW = 1.7e9


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LOOK_SECONDS", 0.02)


def until(condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


def bodies() -> list[dict[str, Any]]:
    return [{"step": step, "metrics": {"actor/grad_norm": 1.0}} for step in range(200)]


def test_on_a_file(make_api: Any) -> None:
    api = make_api(keep_entries=10)
    assert api.post(bodies()).status == 202
    api.settle()
    until(lambda: len(api.service._wired.store.read("run", 0, 1000)) < 100)
    assert api.get("/v1/runs/run").json["vectors"] == 200


def test_on_redis(shared_api: Any, redis_server: Any) -> None:
    settings = Settings(port=0, store=redis_server.url, keep_entries=10)
    with Service(settings) as service, Service(settings, wire=wiring.work):
        web = type(shared_api)(service.address, service)
        assert web.post(bodies()).status == 202
        until(lambda: len(service._wired.store.read("run", 0, 1000)) < 100)
        web.settle()
        assert web.get("/v1/runs/run").json["vectors"] == 200


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "tocsin.db")
    for run in ("ours", "theirs"):
        records = [Record(StepVector(step, {"actor/grad_norm": 1.0}, NOW)) for step in range(200)]
        store.append(run, records, NOW).result(30)
    worker = Worker(store, Exposition(store), clock=lambda: NOW)
    worker.start()
    assert worker.wait_idle(30)
    worker.stop(30)
    yield store
    store.close()


def test_runs_of_others_are_left_to_others(store: SqliteStore) -> None:
    keeper = Keeper(store, Retention(entries=10), lambda: NOW, lambda run: run == "ours")
    keeper.start()
    until(lambda: len(store.read("ours", 0, 1000)) < 100)
    keeper.stop(30)
    assert len(store.read("theirs", 0, 1000)) == 200


def test_trouble_is_waited_out(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    store._connection.execute("PRAGMA query_only = ON")
    keeper = Keeper(store, Retention(entries=10), lambda: NOW)
    keeper.start()
    until(lambda: "the store can't be trimmed" in caplog.text)
    store._connection.execute("PRAGMA query_only = OFF")
    until(lambda: len(store.read("ours", 0, 1000)) < 100)
    keeper.stop(30)
