"""A real HTTP server that remembers what it was asked and answers as a test tells it to."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.wire import whole_body

import tocsin

PATIENCE = 60.0
"""Seconds until a test that waits for something gives up; never how long it usually waits."""


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What the server does with one request, not before ``when`` is set.

    It hangs up without an answer before (``hang_up``) or after (``drop_answer``) it has stored the vectors.
    """

    status: int = 202
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    hang_up: bool = False
    drop_answer: bool = False
    when: threading.Event | None = None


class RecordingServer:
    """Vectors of bodies that it answered with 202 are in ``vectors``, repeated ones once, as the service stores them.

    What it answers: the replies in ``script`` to one POST each, else what ``decide`` says.
    """

    Reply = Reply

    def __init__(self, tls: ssl.SSLContext | None = None, restarted: RecordingServer | None = None) -> None:
        self.requests: list[Request] = []
        self.vectors: list[dict[str, Any]] = restarted.vectors if restarted else []
        self.repeated = 0
        self.connections = 0
        self.script: deque[Reply] = deque()
        self.decide: Callable[[Request], Reply] = lambda _: Reply()
        self.changed = threading.Condition()
        self._known: set[tuple[int, str]] = restarted._known if restarted else set()
        self._open: set[socket.socket] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", restarted.port if restarted else 0), self._handler())
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def wait(self, until: Callable[[RecordingServer], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: until(self), PATIENCE), (self.requests, self.vectors)

    def stop(self) -> None:
        """Ends as a killed server does: nothing listens and every open connection is cut."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.cut()

    def cut(self) -> None:
        """Closes every open connection."""
        with self.changed:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def steps(self) -> list[int]:
        return [vector["step"] for vector in self.vectors]

    def posts(self) -> list[Request]:
        return [request for request in self.requests if request.method == "POST"]

    def _take(self, request: Request) -> Reply:
        with self.changed:
            reply = self.script.popleft() if self.script and request.method == "POST" else self.decide(request)
            self.requests.append(request)
            self.changed.notify_all()
        if reply.when is not None:
            assert reply.when.wait(PATIENCE)
        with self.changed:
            if request.method == "POST" and reply.status == 202 and not reply.hang_up:
                self._store(request.json)
            self.changed.notify_all()
        return reply

    def _store(self, vectors: list[dict[str, Any]]) -> None:
        for vector in vectors:
            key = vector["step"], vector["sequence"]
            if key in self._known:
                self.repeated += 1
            else:
                self._known.add(key)
                self.vectors.append(vector)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recording = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with recording.changed:
                    recording._open.add(self.connection)
                    recording.connections += 1

            def finish(self) -> None:
                with recording.changed:
                    recording._open.discard(self.connection)
                with suppress(OSError):
                    super().finish()

            def handle(self) -> None:
                with suppress(OSError):
                    super().handle()

            def _answer(self) -> None:
                body = whole_body(self)
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                reply = recording._take(Request(self.command, self.path, dict(self.headers), body))
                if reply.hang_up or reply.drop_answer:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_PUT = do_POST = _answer  # noqa: N815 http.server looks for these names

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class Said(logging.Handler):
    """What the client said, for those who wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self._messages.append(record.getMessage())
            self._changed.notify_all()

    def wait(self, text: str) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: any(text in message for message in self._messages), PATIENCE)
            assert found, self._messages


@pytest.fixture
def said() -> Iterator[Said]:
    handler = Said()
    logging.getLogger("tocsin").addHandler(handler)
    yield handler
    logging.getLogger("tocsin").removeHandler(handler)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are raised, and nothing of the developer's environment is seen."""
    for name in list(os.environ):
        if name.startswith("TOCSIN_") or name.lower() in {"http_proxy", "https_proxy", "no_proxy", "all_proxy"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TOCSIN_DEBUG", "1")


@pytest.fixture
def start() -> Iterator[Callable[..., RecordingServer]]:
    with ExitStack() as servers:

        def started(**options: Any) -> RecordingServer:
            server = RecordingServer(**options)
            servers.callback(server.stop)
            return server

        yield started


@pytest.fixture
def server(start: Callable[..., RecordingServer]) -> RecordingServer:
    return start()


class Streams:
    """A real Redis that keeps what it acknowledged when it is killed, and what lies in it."""

    def __init__(self, server: Any) -> None:
        self.start: Callable[[], None] = server.start
        self.kill: Callable[[], None] = server.kill
        self.port: int = server.port
        self.url = f"redis://127.0.0.1:{server.port}"

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(port=self.port, **options)

    def entries(self, run: str = "run") -> list[dict[bytes, bytes]]:
        """The run's stream."""
        with self.client() as client:
            return [fields for _, fields in client.xrange(f"tocsin:{{{run}}}:log")]

    def vectors(self, run: str = "run") -> list[dict[str, Any]]:
        """The run's vectors, of those with the same sequence the first."""
        found = [json.loads(entry[b"vector"]) for entry in self.entries(run) if b"vector" in entry]
        return list({vector["sequence"]: vector for vector in reversed(found)}.values())[::-1]

    def steps(self, run: str = "run") -> list[int]:
        return [vector["step"] for vector in self.vectors(run)]


@pytest.fixture
def start_redis(make_redis: Callable[..., Any]) -> Callable[..., Streams]:
    return lambda *options: Streams(make_redis("--appendonly", "yes", "--appendfsync", "always", *options))


@pytest.fixture
def redis_server(start_redis: Callable[..., Streams]) -> Streams:
    return start_redis()


@pytest.fixture
def dead() -> Iterator[str]:
    """The address of a port that is ours but where nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


_PROGRAM = """
import json, multiprocessing, os, signal, sys, threading
import tocsin
url = sys.argv[1]
def spooled(run, count):
    while run.stats()["spooled"] < count:
        threading.Event().wait(0.002)
"""


@pytest.fixture
def program() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Python program with the client imported; gives its standard output and error once it has ended well."""

    def run(text: str, url: str, ends: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _PROGRAM + text, url],
            env={**os.environ, **environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == ends, done.stderr
        return done

    return run


@pytest.fixture
def connect() -> Iterator[Callable[..., tocsin.Run]]:
    """Makes runs and ends them without waiting."""
    made: list[tocsin.Run] = []

    def connected(run: str | None = "run", **options: Any) -> tocsin.Run:
        made.append(tocsin.Run(run, **options))
        return made[-1]

    yield connected
    for run in made:
        run.finish(0)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for this machine, and a server's context with it."""
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl program to make a certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    names = ["-addext", "subjectAltName=DNS:localhost,DNS:tocsin.invalid,IP:127.0.0.1"]
    subprocess.run([*made.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context
