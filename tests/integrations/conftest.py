"""A real service, what it was sent, and programs that log to it from inside their frameworks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.wire import whole_body

from tocsin_service.app import Service
from tocsin_service.settings import Settings

PATIENCE = 60.0
"""Seconds until a test that waits for something gives up; never how long it usually waits."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are raised, and nothing of the developer's environment is seen."""
    for name in list(os.environ):
        if name.startswith("TOCSIN_") or name.lower() in {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TOCSIN_DEBUG", "1")


@dataclass
class Heard:
    """A service and what it knows."""

    service: Service

    @property
    def url(self) -> str:
        return self.service.address

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=PATIENCE) as response:
            return json.load(response)

    def settle(self) -> None:
        assert self.service.wait_idle(PATIENCE)

    def series(self, run: str, metric: str) -> dict[int, Any]:
        """Values by step, under the trainer's own name or the canonical one."""
        (found,) = self.get(f"/v1/runs/{run}/series?metric={urllib.request.quote(metric, safe='')}")["series"]
        return dict(zip(found["steps"], found["values"], strict=True))

    def config(self, run: str) -> dict[str, Any]:
        return self.get(f"/v1/runs/{run}")["config"]

    def incidents(self, run: str) -> list[dict[str, Any]]:
        self.settle()
        return self.get(f"/v1/runs/{run}/incidents")["incidents"]


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    with Service(Settings(port=0, db=tmp_path / "tocsin.db", stop_seconds=5.0)) as service:
        yield Heard(service)


class Scripted:
    """A server that takes vectors, and tells of the incidents and alerts that a test wants to fire."""

    def __init__(self, port: int = 0) -> None:
        self.incidents: list[dict[str, Any]] = []
        self.alerts: list[dict[str, Any]] = []
        self.status = 200  # of the answers to those who ask what fires
        self.asked: list[str] = []
        self.posted: list[dict[str, Any]] = []
        self.put: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait(self, until: Callable[[Scripted], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: until(self), PATIENCE), (self.asked, self.posted)

    def looks(self, count: int, what: str = "incidents") -> None:
        """Waits until it was asked so often what fires; the answers are given by then."""
        self.wait(lambda server: sum(what in path for path in server.asked) >= count)

    def _take(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        with self.changed:
            if method == "POST":
                self.posted += json.loads(body)
            elif method == "PUT":
                self.put.append(json.loads(body))
            else:
                self.asked.append(path)
            self.changed.notify_all()
            what = path.partition("?")[0].rpartition("/")[2]
            answer = {"incidents": self.incidents, "alerts": self.alerts}.get(what, [])
            return (self.status if method == "GET" else 202 if method == "POST" else 200), {what: answer}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = whole_body(self)
                status, answer = scripted._take(self.command, self.path, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = _answer  # noqa: N815 http.server looks for these names

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    with ExitStack() as servers:

        def start(port: int = 0) -> Scripted:
            server = Scripted(port)
            servers.callback(server.stop)
            return server

        yield start


def needs(*modules: str) -> None:
    """Skips the test where a host isn't installed; `scripts/e2e` makes environments that have them."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed here: run scripts/e2e")


def run_program(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python program in a process of its own, as a trainer is; its warnings are its own business."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**clean, "PYTHONUNBUFFERED": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done
