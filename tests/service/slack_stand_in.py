"""A stand-in of Slack's Web API and of its incoming webhooks: keeps what it is told, and has every kind of trouble."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CHANNEL = "C012345"
TOKEN = "xoxb-very-secret"  # noqa: S105 - a test's
WEBHOOK = "/services/T0/B0/very-secret"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a call.

    Attributes:
        status: of the answer; 0: none, the connection ends.
        headers: of the answer.
        stored: whether Slack has the message all the same.
        error: answer with status 200 that refuses by this name.
        hangs: the answer comes when the caller is gone.
    """

    status: int = 500
    headers: tuple[tuple[str, str], ...] = ()
    stored: bool = False
    error: str | None = None
    hangs: bool = False


TOO_MANY = Fault(429, (("Retry-After", "1"),))
BROKEN = Fault(500)
BROKEN_AFTER = Fault(500, stored=True)
CUT_AFTER = Fault(0, stored=True)
HANGS_AFTER = Fault(0, stored=True, hangs=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True

    def __init__(self, *words: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*words)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Ends the connections that callers keep for later."""
        for connection in tuple(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """A caller that is gone is what some tests are about."""


@dataclass
class SlackStandIn:
    """Slack, of one channel.

    Attributes:
        messages: as Slack keeps them, in the order in which they came, replies too.
        faults: what goes wrong with the next calls, by method ("webhook" for webhooks).
        calls: method and arguments of all calls that came.
        scopes: without ``channels:history`` nobody may look.
        bad_pictures: messages with a picture are refused.
    """

    port: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    scopes: set[str] = field(default_factory=lambda: {"chat:write", "channels:history"})
    bad_pictures: bool = False
    page: int = 2  # most messages in an answer
    token: str = TOKEN
    release: threading.Event = field(default_factory=threading.Event)  # of calls that hang
    hanging: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))  # released by each
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _server: _Server | None = None
    _thread: threading.Thread | None = None

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def webhook(self) -> str:
        return f"http://127.0.0.1:{self.port}{WEBHOOK}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _handler(self))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        """Nobody listens any more; what it was told stays."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.hang_up()
            self._server.server_close()
            self._server = None

    def let_go(self) -> None:
        """Ends the calls that hang now."""
        waiting, self.release = self.release, threading.Event()
        waiting.set()

    def called(self, method: str) -> list[dict[str, Any]]:
        """The arguments of all calls of a method."""
        with self._lock:
            return [arguments for name, arguments in self.calls if name == method]

    def told(self) -> list[dict[str, Any]]:
        """A copy of the messages."""
        with self._lock:
            return [dict(message) for message in self.messages]

    def wait(self, count: int) -> list[dict[str, Any]]:
        """The messages once there are so many."""
        ends = time.monotonic() + 60
        while len(told := self.told()) < count:
            assert time.monotonic() < ends, [message["text"] for message in told]
            threading.Event().wait(0.01)
        return told

    def answer(self, method: str, arguments: dict[str, Any], token: str | None) -> tuple[Fault | None, bytes]:
        """What a call leads to."""
        with self._lock:
            self.calls.append((method, arguments))
            fault = self.faults[method].popleft() if self.faults[method] else None
            if fault is not None and not fault.stored:
                told: dict[str, Any] = {"ok": False, "error": fault.error}
            elif method == "webhook":
                told = self._store(arguments)
            elif token != f"Bearer {self.token}":
                told = {"ok": False, "error": "invalid_auth"}
            else:
                told = self._method(method, arguments)
        return fault, json.dumps(told).encode()

    def _method(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("channel") != CHANNEL:
            return {"ok": False, "error": "channel_not_found"}
        match method:
            case "chat.postMessage":
                thread = arguments.get("thread_ts")
                if thread is not None and not any(message["ts"] == thread for message in self.messages):
                    return {"ok": False, "error": "thread_not_found"}
                return self._store(arguments)
            case "chat.update":
                return self._update(arguments)
            case "conversations.history" | "conversations.replies" if "channels:history" not in self.scopes:
                return {"ok": False, "error": "missing_scope"}
            case "conversations.history":
                shown = [one for one in self.messages if "thread_ts" not in one or one.get("reply_broadcast")]
                return self._listed(shown[::-1], arguments)
            case "conversations.replies":
                top = arguments["ts"]
                return self._listed(
                    [one for one in self.messages if top in {one["ts"], one.get("thread_ts")}], arguments
                )
            case _:
                return {"ok": False, "error": "unknown_method"}

    def _store(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if (refusal := self._refusal(arguments)) is not None:
            return refusal
        message = {**arguments, "ts": f"{time.time():.0f}.{len(self.messages):06d}"}
        self.messages.append(message)
        return {"ok": True, "channel": CHANNEL, "ts": message["ts"]}

    def _update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = [message for message in self.messages if message["ts"] == arguments["ts"]]
        if not found:
            return {"ok": False, "error": "message_not_found"}
        if (refusal := self._refusal(arguments)) is not None:
            return refusal
        found[0].update(text=arguments["text"], blocks=arguments["blocks"])
        return {"ok": True, "channel": CHANNEL, "ts": arguments["ts"]}

    def _refusal(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        pictures = any(block["type"] == "image" for block in arguments["blocks"])
        return {"ok": False, "error": "invalid_blocks"} if pictures and self.bad_pictures else None

    def _listed(self, messages: list[dict[str, Any]], arguments: dict[str, Any]) -> dict[str, Any]:
        messages = [one for one in messages if float(one["ts"]) >= float(arguments["oldest"])]
        start = int(arguments.get("cursor", "0"))
        page = messages[start : start + min(self.page, int(arguments["limit"]))]
        if arguments.get("include_all_metadata") != "true":
            page = [{name: value for name, value in one.items() if name != "metadata"} for one in page]
        more = start + len(page) < len(messages)
        cursor = str(start + len(page)) if more else ""
        return {"ok": True, "messages": page, "has_more": more, "response_metadata": {"next_cursor": cursor}}


@contextmanager
def slack() -> Iterator[SlackStandIn]:
    """Slack, listening; its port stays its own while it is stopped."""
    with socket.socket() as placeholder:
        placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        placeholder.bind(("127.0.0.1", 0))
        found = SlackStandIn(placeholder.getsockname()[1])
        found.start()
        try:
            yield found
        finally:
            found.release.set()
            found.stop()


def _handler(slack: SlackStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._answer(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self._answer(self.path, json.loads(body))

        def _answer(self, path: str, arguments: dict[str, Any]) -> None:
            method = "webhook" if path == WEBHOOK else path.removeprefix("/api/")
            fault, body = slack.answer(method, arguments, self.headers["authorization"])
            if fault is not None and fault.hangs:
                slack.hanging.release()
                slack.release.wait(60)
            if fault is not None and not fault.status:
                self.close_connection = True
                return
            status = 200 if fault is None or fault.error else fault.status
            if method == "webhook":
                refused = fault is None and not json.loads(body)["ok"]
                status, body = (400, b"invalid_blocks") if refused else (status, b"ok")
            self.send_response(status)
            for name, value in (("Content-Length", str(len(body))), *(() if fault is None else fault.headers)):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    return Handler
