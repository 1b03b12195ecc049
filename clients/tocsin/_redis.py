"""Vectors into a Redis that the service reads from: one stream per run, and a stream of nudges for its workers."""

from __future__ import annotations

import socket
import ssl
import zlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from tocsin._courier import Outcome
from tocsin._guard import Mistake
from tocsin._policy import UNREACHABLE, Action, Verdict, judge_redis
from tocsin._resp import ErrorReply, Parser, Reply, Unreadable, encode, first_error
from tocsin._transport import Unreachable, told_error

__all__ = ["RedisAddress", "RedisConnection", "RedisCourier"]

_NUDGE_STREAMS = 16
_NUDGES_KEPT = b"100000"
_SHAPE = "redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket?db=0"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis is.

    Attributes:
        scheme: "redis", "rediss" (encrypted) or "unix".
        host: name or address without brackets; for "unix" the path of the socket.
        port: 1-65535; 0 for "unix".
        db: number of the database, >= 0.
        user: "" for Redis's default user.
        password: "" for none. Never shown.
    """

    scheme: str
    host: str
    port: int
    db: int = 0
    user: str = ""
    password: str = ""

    @classmethod
    def parse(cls, url: str, token: str | None = None) -> RedisAddress:
        """The address that ``url`` names; ``token`` is its password and comes before one in the URL.

        Raises:
            Mistake: it names no Redis.
        """
        parts = urlsplit(url.strip())
        unix = parts.scheme == "unix"
        host = unquote(parts.path) if unix else parts.hostname
        if parts.scheme not in {"redis", "rediss", "unix"} or not host:
            raise Mistake(f"the address of a Redis must look like {_SHAPE} (TOCSIN_URL or url=)")
        port = 0 if unix else parts.port or 6379
        password = (token or "").strip() or unquote(parts.password or "")
        return cls(parts.scheme, host, port, _database(parts), unquote(parts.username or ""), password)

    def __str__(self) -> str:
        """The URL without credentials."""
        if self.scheme == "unix":
            return f"unix://{self.host}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.db}"


def _database(parts: SplitResult) -> int:
    path = "" if parts.scheme == "unix" else parts.path.strip("/")
    text = path or parse_qs(parts.query).get("db", ["0"])[0]
    if not (text.isascii() and text.isdigit()):
        raise Mistake(f"the address of a Redis must look like {_SHAPE}: its database is a number >= 0")
    return int(text)


class RedisConnection:
    """One kept-open connection; not for use by several threads.

    Args:
        address: the Redis.
        timeout: seconds that connecting, and every wait for bytes, may take.
    """

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._parser = Parser()
        self._replies: deque[Reply] = deque()

    def run(self, commands: Sequence[tuple[bytes, ...]]) -> list[Reply]:
        """Sends commands in one go and reads one reply to each; to a failed login, that reply alone.

        Raises:
            Unreachable: not all replies came.
        """
        reused = self._socket is not None
        try:
            return self._login() or self._exchange(commands)
        except (OSError, Unreadable) as error:
            self.close()
            # An idle connection may have been closed by the other side: that says nothing about the server.
            if not reused or isinstance(error, TimeoutError):
                raise Unreachable(told_error(error)) from error
        return self.run(commands)

    def close(self) -> None:
        """Closes the connection; the next command opens another."""
        open_socket, self._socket = self._socket, None
        if open_socket is not None:
            with suppress(OSError):
                open_socket.close()

    def _login(self) -> list[Reply]:
        """Connects if that is to be done. Returns the error if Redis refuses us, else nothing."""
        if self._socket is not None:
            return []
        address = self._address
        self._socket = _connected(address, self._timeout)
        self._parser = Parser()
        self._replies.clear()
        user = (address.user.encode(),) if address.user else ()
        commands = [(b"AUTH", *user, address.password.encode())] if address.password else []
        if address.db:
            commands.append((b"SELECT", b"%d" % address.db))
        refused = first_error(self._exchange(commands))
        if refused is None:
            return []
        self.close()
        return [refused]

    def _exchange(self, commands: Sequence[tuple[bytes, ...]]) -> list[Reply]:
        connection = self._socket
        if connection is None or not commands:
            return []
        connection.sendall(b"".join(encode(*command) for command in commands))
        while len(self._replies) < len(commands):
            data = connection.recv(65536)
            if not data:
                raise ConnectionError("the connection was closed")
            self._parser.feed(data)
            self._replies.extend(self._parser.replies())
        return [self._replies.popleft() for _ in commands]


def _connected(address: RedisAddress, timeout: float) -> socket.socket:
    if address.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            connection.connect(address.host)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection((address.host, address.port), timeout)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.scheme == "redis":
            return connection
        # The default context heeds SSL_CERT_FILE and SSL_CERT_DIR.
        return ssl.create_default_context().wrap_socket(connection, server_hostname=address.host)
    except BaseException:
        connection.close()
        raise


class RedisCourier:
    """A :class:`tocsin._courier.Courier` into the run's stream.

    A batch and its nudge are one transaction, so an error in its middle can't change the order.

    Args:
        address: the Redis.
        run: the run's id.
        timeout: seconds that connecting, and every wait for bytes, may take.
    """

    def __init__(self, address: RedisAddress, run: str, timeout: float) -> None:
        self._connection = RedisConnection(address, timeout)
        name = run.encode()
        self._log = b"tocsin:{%b}:log" % name
        nudges = b"tocsin:nudges:%d" % (zlib.crc32(name) % _NUDGE_STREAMS)
        self._nudge = (b"XADD", nudges, b"MAXLEN", b"~", _NUDGES_KEPT, b"*", b"run", name)

    def configure(self, config: bytes) -> Outcome:
        """An entry with the field "config"."""
        return self._add(b"config", [config])

    def deliver(self, vectors: Sequence[bytes]) -> Outcome:
        """One entry with the field "vector" for each."""
        return self._add(b"vector", vectors)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _add(self, field: bytes, values: Sequence[bytes]) -> Outcome:
        entries = [(b"XADD", self._log, b"*", field, value) for value in values]
        try:
            replies = self._connection.run([(b"MULTI",), *entries, self._nudge, (b"EXEC",)])
        except Unreachable as error:
            return Outcome(UNREACHABLE, str(error), answered=False)
        outcome = _outcome(replies)
        if outcome.verdict.action is not Action.DELIVERED:
            # After a failover the name may lead to another server, and nothing of a transaction must be left open.
            self.close()
        return outcome


def _outcome(replies: list[Reply]) -> Outcome:
    error = first_error(replies)
    if error is None and not isinstance(replies[-1], list):
        error = ErrorReply("the transaction was not carried out")
    if error is None:
        return Outcome(Verdict(Action.DELIVERED))
    text = " ".join(error.text.split())[:500]
    return Outcome(judge_redis(error.text), f"Redis: {text}")
