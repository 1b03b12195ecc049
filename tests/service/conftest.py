"""Real servers for the service's tests: the service itself on a free port, and a stand-in for receivers."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tocsin_service.app import Service
from tocsin_service.settings import Settings


def _refuse_constant(token: str) -> float:
    raise AssertionError(f"{token} is not strict JSON")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data, parse_constant=_refuse_constant)


@dataclass(frozen=True)
class Api:
    """The service as a client sees it."""

    address: str
    service: Service | None = None

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """One request; ``body`` is sent as it is if bytes, else as JSON (with NaN tokens)."""
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def post(self, body: Any, run: str = "run", headers: dict[str, str] | None = None) -> Answer:
        """Sends step vectors."""
        return self.call("POST", f"/v1/runs/{quote(run, safe='')}/steps", body, headers)

    def settle(self) -> None:
        """Waits until everything is judged."""
        assert self.service is not None
        assert self.service.wait_idle(30)


MakeApi = Callable[..., Api]


@pytest.fixture
def make_api(tmp_path: Path) -> Iterator[MakeApi]:
    """Starts services, all on one file unless told otherwise; they are stopped after the test."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Api:
            settings = {"port": 0, "db": tmp_path / "tocsin.db", "stop_seconds": 5.0, **settings}
            service = stack.enter_context(Service(Settings(**settings)))
            return Api(service.address, service)

        yield make


@pytest.fixture
def api(make_api: MakeApi) -> Api:
    return make_api()


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One service for all tests of a module that leave nothing behind."""
    with Service(Settings(port=0, db=tmp_path_factory.mktemp("shared") / "tocsin.db")) as service:
        yield Api(service.address, service)


@dataclass
class Hook:
    """A web server in a receiver's place: answers from a script, then with 200, and keeps what it was sent."""

    address: str
    posts: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)
    raw: queue.Queue[tuple[dict[str, str], bytes]] = field(default_factory=queue.Queue)  # headers and body
    script: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    body: bytes = b"ok"  # of every answer
    gate: threading.Event = field(default_factory=threading.Event)  # answers wait while it is clear

    def next(self) -> dict[str, Any]:
        return self.posts.get(timeout=30)


@pytest.fixture
def hook() -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.raw.put((dict(self.headers.items()), body))
            payload = json.loads(body, parse_constant=_refuse_constant)
            found.posts.put(payload)
            found.gate.wait(30)
            status, headers = found.script.pop(0) if found.script else (200, {})
            self.send_response(status)
            for name, value in {"content-length": str(len(found.body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.body)

        def handle(self) -> None:
            with suppress(ConnectionError):  # the caller gave up: that is what some tests are about
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Hook(f"http://127.0.0.1:{server.server_address[1]}/services/T0/B0/very-secret")
    found.gate.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        found.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
