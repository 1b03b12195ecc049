"""The service as a process, and as an object: starting, stopping, being killed."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tocsin_service.app import Service, StartError
from tocsin_service.settings import Settings


def vector(step: int) -> dict[str, Any]:
    return {"step": step, "metrics": {"actor/pg_loss": float("nan") if step > 5 else 0.5}}


@contextmanager
def serve(db: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process of its own, and its address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tocsin_service", "serve", "--port", "0", "--db", str(db)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment | variables,
    )
    assert process.stderr is not None
    try:
        heard = (re.search(r"listening on (\S+),", line) for line in process.stderr)
        address = next((found.group(1) for found in heard if found), None)
        assert address is not None, "the service ended before it listened"
        yield process, address
    finally:
        process.kill()
        process.wait(30)
        process.stderr.close()


@pytest.fixture
def api_at(shared_api: Any) -> Any:
    """Makes an API at any address."""
    return type(shared_api)


def test_what_was_acknowledged_survives_a_kill(make_api: Any, api_at: Any, tmp_path: Path) -> None:
    db, acknowledged = tmp_path / "tocsin.db", 0
    for _ in range(3):
        with serve(db) as (process, address):
            for _ in range(10):
                assert api_at(address).post(vector(acknowledged)).json["accepted"] == 1
                acknowledged += 1
            process.send_signal(signal.SIGKILL)
    api = make_api()
    api.settle()
    run = api.get("/v1/runs/run").json
    assert (run["vectors"], run["pending"], run["firing"]) == (30, 0, {"critical": 1})
    assert api.post([vector(step) for step in range(30)]).json == {"accepted": 0, "repeated": 30}


def test_killed_in_the_middle_of_requests(make_api: Any, api_at: Any, tmp_path: Path) -> None:
    """Senders hammer the service while it dies: what they saw acknowledged is there, once."""
    acknowledged: list[tuple[str, int]] = []
    enough = threading.Semaphore(0)

    def send(address: str, run: str) -> None:
        try:
            for step in range(10_000):
                if api_at(address).post(vector(step), run=run).status == 202:
                    acknowledged.append((run, step))
                    enough.release()
        except (OSError, ValueError, http.client.HTTPException):  # also half an answer
            return

    with serve(tmp_path / "tocsin.db") as (process, address):
        threads = [threading.Thread(target=send, args=(address, f"run-{n}")) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            assert enough.acquire(timeout=30)
        process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(30)
    api = make_api()
    for run in {run for run, _ in acknowledged}:
        stored = api.get(f"/v1/runs/{run}/series?metric=actor/pg_loss&limit=10000").json["series"][0]["steps"]
        told = [step for name, step in acknowledged if name == run]
        assert stored[: len(told)] == told
        assert len(stored) <= len(told) + 1  # stored, and killed before it could say so


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_graceful_end(make_api: Any, api_at: Any, tmp_path: Path, number: signal.Signals) -> None:
    with serve(tmp_path / "tocsin.db") as (process, address):
        api_at(address).post([vector(step) for step in range(200)])
        process.send_signal(number)
        assert process.wait(30) == 0
    store = make_api().service._wired.store
    progress = store.load("run")
    assert progress.position == 200  # folded before it ended
    assert progress.snapshot is not None
    assert progress.snapshot.position == 200


def test_a_request_in_progress_is_answered(make_api: Any) -> None:
    api = make_api()
    parts = urlsplit(api.address)
    body = b'{"step": 1, "metrics": {"loss": 1}}'
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        head = b"POST /v1/runs/run/steps HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
        connection.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")  # it has begun
        stopping = threading.Thread(target=api.service.stop)
        stopping.start()
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 202")
        stopping.join(30)
    assert make_api().get("/v1/runs/run").json["vectors"] == 1


def test_secrets_of_the_environment_are_not_told(hook: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "t.db", TOCSIN_SLACK_WEBHOOK=hook.address, TOCSIN_TOKEN="top-secret-token") as (process, _):  # noqa: S106 - a test's
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        rest = process.stderr.read()
    assert "secret" not in rest


def test_stopping_twice_and_from_another_thread(make_api: Any) -> None:
    service = make_api().service
    thread = threading.Thread(target=service.stop)
    thread.start()
    service.stop()
    thread.join(30)
    service.stop()
    with pytest.raises(StartError, match="not running"):
        _ = service.address


def test_stopping_while_it_comes_up(tmp_path: Path) -> None:
    for number in range(10):
        Service(Settings(port=0, db=tmp_path / f"{number}.db")).__enter__().stop()


def test_stopping_what_never_started(tmp_path: Path) -> None:
    Service(Settings(db=tmp_path / "t.db")).stop()


def test_two_services_on_one_file(make_api: Any, tmp_path: Path) -> None:
    make_api()
    with pytest.raises(StartError, match="another Tocsin service"):
        Service(Settings(port=0, db=tmp_path / "tocsin.db")).start()


def test_a_port_that_is_taken(make_api: Any, tmp_path: Path) -> None:
    port = urlsplit(make_api().address).port
    assert port is not None
    taken = Service(Settings(port=port, db=tmp_path / "other.db"))
    with pytest.raises(StartError, match=f"{port}.*another port"):
        taken.start()
    with Service(Settings(port=0, db=tmp_path / "other.db")):
        pass  # the failed start has left the file to others


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "x" * 300])
def test_a_host_that_can_not_be(tmp_path: Path, host: str) -> None:
    with pytest.raises(StartError, match="can't be listened on"):
        Service(Settings(host=host, port=0, db=tmp_path / "t.db", tokens=("long-enough",))).start()


def test_ipv6(make_api: Any) -> None:
    try:
        api = make_api(host="::1")
    except StartError:
        pytest.skip("this machine has no IPv6")
    assert api.address.startswith("http://[::1]:")
    assert api.get("/healthz").status == 200


def test_the_address_of_a_service_on_every_interface(make_api: Any) -> None:
    api = make_api(host="0.0.0.0", tokens=("long-enough",))
    assert api.address.startswith("http://127.0.0.1:")
    assert api.get("/healthz").status == 200
