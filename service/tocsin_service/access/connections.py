"""The HTTP protocol of the server with bounds on all that a client may send, hold back, or leave unread.

uvicorn's protocol takes headers of any number and size, waits for them for ever, and never gives up on a client that
doesn't read its answer. Bodies have bounds of their own where they are read (:mod:`tocsin_service.api.body`).
"""

from __future__ import annotations

import json
import logging
from asyncio import BaseTransport, TimerHandle, Transport
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

__all__ = ["BoundedProtocol", "Bounds", "quieten"]

# What isn't body may be this many times the body: chunks of one byte, each with its length before it.
CHUNK_OVERHEAD = 16
# uvicorn would write a line for each, at the speed of whoever sends them; they are counted in /metrics instead.
FLOODS = frozenset({"Invalid HTTP request received."})


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a client may do.

    Attributes:
        connections: most connections at a time.
        target_bytes: longest path with query. 50 metrics with long names take most of it.
        head_bytes: most bytes of a request that are not its body: request line, headers, trailers, framing of chunks.
        headers: most headers of a request, trailers included.
        pipelined: most requests sent ahead of their answers.
        head_seconds: longest time from the first byte of a request to the end of its headers.
        rest_seconds: longest time for the rest of a body that was answered before it had come in.
        write_seconds: longest time for which a client may leave an answer unread.
    """

    connections: int = 1_000
    target_bytes: int = 2**15
    head_bytes: int = 2**16
    headers: int = 100
    pipelined: int = 32
    head_seconds: float = 10.0
    rest_seconds: float = 30.0
    write_seconds: float = 60.0


class _TooMuch(Exception):  # noqa: N818 - never leaves the parser, which makes an error of its own of it
    """The request goes beyond a bound."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        bounds: what its client may do.
        refused: counts what is refused: "connections", "head", "slow" or "malformed".
        uvicorn: what uvicorn gives its protocols.
    """

    def __init__(self, *, bounds: Bounds, refused: Callable[[str], None], **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._bounds, self._refused = bounds, refused
        self._messages = 0  # begun so far
        self._in_head = False
        self._incomplete = False  # the latest message has begun, but hasn't ended
        self._header_count = self._header_bytes = 0
        self._body_bytes = self._other_bytes = 0
        self._too_much: tuple[int, str] | None = None
        self._earlier: list[RequestResponseCycle] = []  # requests before the latest, while any is not answered
        self._timed: tuple[str, int] | None = None  # what the timer runs for
        self._timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast("Transport", transport))
        if len(self.connections) > self._bounds.connections:
            self._refuse(503, "too many connections; come back later", "connections")
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._let_go()
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        messages, body = self._messages, self._body_bytes
        super().data_received(data)
        if messages == self._messages and self._incomplete:  # else a part of it belongs to another message
            gained = len(data) - (1 + CHUNK_OVERHEAD) * (self._body_bytes - body)
            self._other_bytes = max(0, self._other_bytes + gained)
            if self._other_bytes > self._bounds.head_bytes and not self.transport.is_closing():
                self._refuse(431, f"the headers are larger than {self._bounds.head_bytes} bytes", "head")
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answers what can't be parsed, or was given up."""
        status, text = self._too_much or (400, msg)
        self._refuse(status, text, "malformed" if self._too_much is None else "head")

    def _unsupported_upgrade_warning(self) -> None:
        """Says nothing: the request is answered as if no upgrade had been asked for."""

    # What the parser finds. An exception ends the connection, with the answer of send_400_response.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._messages += 1
        self._in_head = self._incomplete = True
        self._header_count = self._header_bytes = self._body_bytes = self._other_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._bounds.target_bytes:
            self._give_up(414, f"the address is longer than {self._bounds.target_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if self._header_count > self._bounds.headers:
            self._give_up(431, f"more than {self._bounds.headers} headers")
        if self._header_bytes > self._bounds.head_bytes:
            self._give_up(431, f"the headers are larger than {self._bounds.head_bytes} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._bounds.pipelined:
            self._give_up(429, f"more than {self._bounds.pipelined} requests sent ahead; wait for the answers")
        self._in_head = False
        if self.cycle is not None and not self.cycle.response_complete:
            self._earlier.append(self.cycle)
        else:
            self._earlier.clear()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._incomplete = False
        super().on_message_complete()

    def _give_up(self, status: int, text: str) -> None:
        self._too_much = status, text
        raise _TooMuch

    # Time.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._bounds.write_seconds, self._unread)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch(self) -> None:
        """Lets the timer run for what the client owes now."""
        owed = None if self.transport.is_closing() else self._owed()
        if owed == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timed, self._timer = owed, None
        if owed is not None:
            seconds = self._bounds.rest_seconds if owed[0] == "rest" else self._bounds.head_seconds
            self._timer = self.loop.call_later(seconds, self._late)

    def _owed(self) -> tuple[str, int] | None:
        """What the connection waits for: "head" or "rest", of which message; None if for nothing that is timed here."""
        if self.cycle is not None and not self.cycle.response_complete:
            return None  # the route reads the body, and knows how long to wait for it
        if self._in_head:
            return "head", self._messages
        if self._incomplete:
            return "rest", self._messages
        if self.timeout_keep_alive_task is not None:
            return None
        return "head", self._messages + 1

    def _late(self) -> None:
        if self._incomplete:  # a connection on which nothing was ever sent is nothing to count
            self._refused("slow")
        self._end()

    def _unread(self) -> None:
        self._refused("slow")
        self.transport.abort()

    def _refuse(self, status: int, text: str, what: str) -> None:
        """Answers, if nothing else is being answered, and ends the connection."""
        self._refused(what)
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if not answering or (cycle.more_body and not cycle.response_started):
            body = json.dumps({"error": text}).encode()
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            head += "Retry-After: 5\r\n" if status in {429, 503} else ""
            head += f"X-Content-Type-Options: nosniff\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self._end()

    def _end(self) -> None:
        self._let_go()
        self.transport.close()

    def _let_go(self) -> None:
        """Tells all routes that are still at work that nobody waits for them: what they send leads nowhere.

        uvicorn tells the latest alone.
        """
        for cycle in (*self._earlier, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()


def quieten() -> None:
    """Keeps uvicorn from writing a line for each malformed request."""
    logging.getLogger("uvicorn.error").addFilter(_is_no_flood)  # the same one twice is one


def _is_no_flood(record: logging.LogRecord) -> bool:
    return record.msg not in FLOODS
