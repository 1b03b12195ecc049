"""What a client can do to a connection, with bytes and with time: each has an end, and the service lives on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.faults.fleet import eventually

from tocsin_service.access.connections import Bounds
from tocsin_service.server import Server, listen
from tocsin_service.settings import Settings

LARGE = 8 * 2**20
QUICK = Bounds(head_seconds=0.3, rest_seconds=0.3, write_seconds=0.3)
PATIENT = Bounds(head_seconds=60.0, rest_seconds=60.0, write_seconds=60.0)
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Target:
    """A server with an app that reads the body and then answers."""

    port: int
    refused: Counter[str] = field(default_factory=Counter)
    bodies: list[int] = field(default_factory=list)  # sizes
    answer: int = 2  # bytes

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def send(self, *pieces: bytes) -> bytes:
        """All that comes back until the server ends the connection, as it must."""
        with self.connect() as connection:
            with suppress(ConnectionError):  # it may end it before it has read everything
                for piece in pieces:
                    connection.sendall(piece)
            return read_to_end(connection)

    def answers(self, path: bytes = b"/") -> bool:
        """Whether it answers. Where heads have little time, a slow machine may need more than one attempt."""
        head = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        return self.send(head).startswith(b"HTTP/1.1 200")

    def lives_on(self) -> None:
        eventually(self.answers, 30, "an answer")

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more and scope["path"] != "/unread":
            message = await receive()
            if message["type"] != "http.request":
                return
            size, more = size + len(message["body"]), message["more_body"]
        if scope["path"] == "/long":
            await asyncio.sleep(3 * QUICK.head_seconds)
        self.bodies.append(size)
        headers = [(b"content-length", b"%d" % self.answer)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * self.answer})


def read_to_end(connection: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionError):
        while piece := connection.recv(2**16):
            found += piece
    return found


def read_one(connection: socket.socket) -> bytes:
    """The next answer of :class:`Target`, whole: its head and its body may come one after the other."""
    found = b""
    while not found.endswith(b"\r\n\r\nxx"):
        piece = connection.recv(1000)
        assert piece, found
        found += piece
    return found


@pytest.fixture
def serve() -> Iterator[Callable[..., Target]]:
    with ExitStack() as stack:

        def start(bounds: Bounds) -> Target:
            listener = listen("127.0.0.1", 0)
            stack.callback(listener.close)
            target = Target(listener.getsockname()[1])
            settings = Settings(stop_seconds=1.0)
            server = Server(target.app, listener, settings, lambda what: target.refused.update([what]), bool, bounds)
            server.start()
            stack.callback(server.stop)
            return target

        yield start


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\na: " + b"x" * LARGE, 431),
        (b"GET / HTTP/1.1\r\n" + b"x" * LARGE, 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(500_000)), 431),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /?" + b"x" * LARGE, 414),
        (CHUNKED + b"1\r\na\r\n0\r\nt: " + b"x" * LARGE, 431),
        (CHUNKED + b"1\r\na\r\n0\r\n" + b"t: x\r\n" * 1_000, 431),
        (CHUNKED + b"1;" + b"x" * LARGE, 431),
    ],
    ids=["many", "long", "endless", "endless name", "countless", "path", "query", "trailer", "trailers", "extension"],
)
def test_heads_are_bounded(serve: Any, sent: bytes, status: int) -> None:
    target = serve(PATIENT)
    answer = target.send(sent)
    # Whoever is still sending may not hear the answer any more.
    assert answer.startswith(b"HTTP/1.1 %d " % status) or (answer == b"" and len(sent) > 30_000)
    assert target.refused == {"head": 1}
    assert target.bodies == []
    target.lives_on()


@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED + b"zz\r\n",
        CHUNKED + b"-1\r\na\r\n",
        CHUNKED + b"ffffffffffffffffff\r\na",
        CHUNKED + b"1\r\nab\r\n",
        CHUNKED.replace(b"chunked", b"chunked, identity") + b"0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length : 1\r\n\r\na",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\n\r\n",
        b"GET \xff HTTP/1.1\r\n\r\n",
        b"GET http://[x HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\na\x00: b\r\n\r\n",
        b"GET / HTTP/1.1\r\na: b\x00\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 1000,
    ],
)
def test_broken_requests(serve: Any, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    target = serve(PATIENT)
    answer = target.send(sent)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"x-content-type-options: nosniff" in answer.lower()
    assert target.refused == {"malformed": 1}
    target.lives_on()
    assert "Invalid HTTP" not in caplog.text  # nobody fills the log


def test_small_chunks_and_long_bodies_are_no_offence(serve: Any) -> None:
    target = serve(PATIENT)
    with target.connect() as connection:
        for sent, size in (
            (CHUNKED + b"1\r\na\r\n" * 100_000 + b"0\r\nt: x\r\n\r\n", 100_000),
            (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % LARGE + b"x" * LARGE, LARGE),
            (CHUNKED + b"%x\r\n" % LARGE + b"x" * LARGE + b"\r\n0\r\n\r\n", LARGE),
            (b"GET /" + b"x" * 30_000 + b" HTTP/1.1\r\n" + b"a: b\r\n" * 99 + b"\r\n", 0),
        ):
            connection.sendall(sent)
            assert read_one(connection).startswith(b"HTTP/1.1 200")
            assert target.bodies[-1] == size
    assert not target.refused


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
def test_an_upgrade_is_not_made(serve: Any, upgrade: bytes, caplog: pytest.LogCaptureFixture) -> None:
    target = serve(PATIENT)
    with target.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert "upgrade" not in caplog.text.lower()


@pytest.mark.parametrize(
    "pieces",
    [
        (b"G",),
        (b"GET / HTTP/1.1\r\n",),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\na: ", b"b"),
        (GET, b"GET / HT"),
        (b"POST /unread HTTP/1.1\r\nContent-Length: 100\r\n\r\n", b"x"),
        (b"POST /unread HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["a byte", "no header", "half a header", "half a second", "rest of a body", "rest of chunks"],
)
def test_who_stops_in_the_middle_is_cut(serve: Any, pieces: tuple[bytes, ...]) -> None:
    target = serve(QUICK)

    def cut() -> bool:
        target.send(*pieces)  # returns, as the server ends it: on a slow machine before anything was sent
        return target.refused["slow"] > 0

    eventually(cut, 30, "an end that is counted")
    target.lives_on()


@pytest.mark.parametrize("drip", [b"a: b\r\n", b"\r\n"], ids=["headers", "empty lines"])
def test_who_sends_a_little_now_and_then_is_cut(serve: Any, drip: bytes) -> None:
    target = serve(replace(QUICK, headers=10_000))
    with target.connect() as connection, suppress(ConnectionError):
        if drip.strip():
            connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(3_000):  # a minute: each piece in its time, all together never
            connection.sendall(drip)
            threading.Event().wait(0.02)
        pytest.fail("it was never cut")
    target.lives_on()


def test_who_connects_and_says_nothing_is_cut(serve: Any) -> None:
    target = serve(QUICK)
    assert target.send() == b""
    assert not target.refused  # browsers do that


def test_who_does_not_read_is_cut(serve: Any) -> None:
    target = serve(replace(PATIENT, write_seconds=0.3))
    target.answer = 64 * 2**20
    with target.connect() as connection:
        connection.sendall(GET)
        eventually(lambda: target.refused == {"slow": 1}, 30, "the end of patience")
        assert len(read_to_end(connection)) < target.answer
    target.answer = 2
    target.lives_on()


def test_who_waits_for_a_long_answer_is_not_cut(serve: Any) -> None:
    target = serve(QUICK)
    eventually(lambda: target.answers(b"/long"), 30, "the answer, long after the head's time")


def test_requests_sent_ahead_are_bounded(serve: Any) -> None:
    target = serve(PATIENT)
    answers = target.send(GET * 20 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert answers.count(b"HTTP/1.1 200") == 21
    target.send(GET * 20_000)
    assert target.refused == {"head": 1}
    target.lives_on()


def test_connections_are_bounded(serve: Any) -> None:
    target = serve(replace(PATIENT, connections=5))
    with ExitStack() as stack:
        held = [stack.enter_context(target.connect()) for _ in range(5)]
        for connection in held:  # all of them are known to the server
            connection.sendall(GET)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            connection.sendall(b"GET")  # and are not idle
        answer = target.send()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: " in answer
        held[0].sendall(b" / HTTP/1.1\r\n\r\n")
        assert held[0].recv(1000).startswith(b"HTTP/1.1 200")  # who was there is served on
    assert target.refused == {"connections": 1}
    target.lives_on()


def test_many_at_once(serve: Any) -> None:
    """200 connections with half a request each; the service answers others meanwhile, and is rid of them in the end."""
    target = serve(replace(QUICK, head_seconds=2.0))
    with ExitStack() as stack:
        held = [stack.enter_context(target.connect()) for _ in range(200)]
        for connection in held:
            with suppress(ConnectionError):
                connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        target.lives_on()
        assert all(read_to_end(connection) == b"" for connection in held)
    target.lives_on()
