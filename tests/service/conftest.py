"""Real servers for the service's tests: the service itself on a free port, and a stand-in for receivers."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from tests.service.stores import OpenStore
from tests.wire import whole_body

from tocsin_service.app import Service
from tocsin_service.settings import Settings
from tocsin_service.store import Store
from tocsin_service.store.redis import Address, RedisStore
from tocsin_service.store.sqlite import SqliteStore


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
    folder = tmp_path_factory.mktemp("shared")
    kept = folder / "rollouts" if find_spec("pyarrow") and find_spec("duckdb") else None
    with Service(Settings(port=0, db=folder / "tocsin.db", rollout_dir=kept)) as service:
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
            body = whole_body(self)
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


@dataclass
class Process:
    """`tocsin serve` or `tocsin worker` as a process of its own."""

    popen: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)
    _address: queue.Queue[str | None] = field(default_factory=lambda: queue.Queue(1))

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr as lines:
            for line in lines:
                self.log.append(line)
                if found := re.search(r"listening on (\S+),", line):
                    self._address.put(found.group(1))
        with suppress(queue.Full):
            self._address.put_nowait(None)

    @cached_property
    def api(self) -> Api:
        """It as a client sees it, as soon as it listens."""
        address = self._address.get(timeout=60)
        assert address is not None, "it ended before it listened:\n" + "".join(self.log)
        return Api(address)

    def kill(self) -> None:
        """Ends it at once, without a chance to say anything."""
        self.popen.kill()
        self._wait()

    def end(self) -> int:
        """Ends it gracefully; its exit status."""
        self.popen.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        status = self.popen.wait(30)
        self._reader.join(30)
        return status


@pytest.fixture
def start_process() -> Iterator[Callable[..., Process]]:
    """Starts `tocsin` with the given words, on a free port; killed after the test at the latest."""
    with ExitStack() as stack:

        def start(*words: str) -> Process:
            command = [sys.executable, "-m", "tocsin_service", *words, "--port", "0"]
            environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
            made = Process(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment))
            stack.callback(made.kill)
            return made

        yield start


@pytest.fixture(params=["sqlite", "redis"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the store; again, if it has been closed."""
    with ExitStack() as stack:
        if request.param == "redis":
            address = Address(request.getfixturevalue("redis_server").socket_url)

        def make() -> Store:
            if request.param == "redis":
                store: Store = RedisStore(address, max_runs=3)
            else:
                store = SqliteStore(tmp_path / "tocsin.db", max_runs=3)
            stack.callback(store.close)
            return store

        yield make


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    sandbox = [] if os.getuid() else ["--no-sandbox"]  # it refuses to be root in one
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=[*sandbox, "--disable-gpu"], timeout=60_000)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must not complain: what the policy forbids, scripts and dialogs end the test."""
    context = browser.new_context(locale="en-US")
    context.set_default_timeout(60_000)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: (complaints.append("dialog"), dialog.dismiss()))
    yield opened
    context.close()
    # It also notes every answer that refuses something; and asks for an icon, which there isn't.
    assert [one for one in complaints if not one.startswith("Failed to load resource")] == []
