"""The connection to Redis: bounded waits, one retry of a lost connection, and one error for all that goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from tocsin_service.store import StoreRefused, StoreUnavailable
from tocsin_service.store.redis.scripts import Script

__all__ = ["Address", "Argument", "Command", "Connection", "connect", "failures"]

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0  # longer than the longest script; a Redis that hangs must not hang everybody
RETRY_SECONDS = 0.05
IDLE_SECONDS = 30  # a connection idle for longer is tried before it is used

Argument: TypeAlias = str | int
Command: TypeAlias = tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Redis is, and who asks.

    Attributes:
        url: ``redis://``, ``rediss://`` (TLS) or ``unix://``.
        user: user of Redis's access control; None: the one in the URL, else "default".
        password: None: the one in the URL, if any. Secret.
        ca_file: certificates to trust with ``rediss://``; None: those of the system.
    """

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None

    def __str__(self) -> str:
        """The URL as it may be shown: without user, password and options."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return "store"
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def connect(address: Address, *, text: bool = True) -> redis.Redis:
    """A client that connects when it is used first; may be shared by threads.

    Args:
        address: which Redis.
        text: answers are texts, bytes that are no UTF-8 in them as lone surrogates; False: answers are bytes.

    Raises:
        StoreRefused: the address is none.
    """
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": ANSWER_SECONDS,
        "health_check_interval": IDLE_SECONDS,
        # A connection that was lost while it was idle says nothing about Redis. An answer that doesn't come does.
        "retry": Retry(ConstantBackoff(RETRY_SECONDS), 1, (redis.ConnectionError,)),
        "protocol": 2,
        "encoding_errors": "surrogateescape",
        "decode_responses": text,
    }
    if address.user is not None:
        options["username"] = address.user
    if address.password is not None:
        options["password"] = address.password
    if address.ca_file is not None:
        options["ssl_ca_certs"] = str(address.ca_file)
    try:
        return redis.Redis.from_url(address.url, **options)
    except (ValueError, TypeError):  # their text may repeat the password
        raise StoreRefused(f"{address}: is no address of a Redis; write redis://HOST:PORT/DB or unix:///PATH") from None


@contextmanager
def failures() -> Iterator[None]:
    """Makes everything that Redis or the way to it refuses a :class:`StoreUnavailable`."""
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis can't be used now: {type(error).__name__}: {error}") from error


class Connection:
    """What the store asks of Redis: commands, several commands at once, and scripts."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client  # answers depend on the command
        self._closed = False

    def ask(self, *command: Argument) -> Any:
        """The answer to one command.

        Raises:
            StoreUnavailable: there is none, or an error.
        """
        with self._open():
            return self._client.execute_command(*command)

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to several commands, in one round trip. Others' commands may come between them.

        Raises:
            StoreUnavailable: there are none, or one of them is an error.
        """
        if not commands:
            return []
        with self._open(), self._client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return list(pipe.execute())

    def run(self, script: Script, *arguments: Argument) -> Any:
        """What a script returns. A script that Redis has forgotten is sent again.

        Raises:
            StoreUnavailable: there is no answer, or an error.
        """
        (answer,) = self.run_all(script, [arguments])
        if isinstance(answer, Exception):
            with failures():
                raise answer
        return answer

    def run_all(self, script: Script, calls: Sequence[Sequence[Argument]]) -> list[Any]:
        """What a script returns for each of ``calls``, in one round trip: a call that fails is its error.

        Raises:
            StoreUnavailable: there are no answers; it is unknown which calls took place.
        """
        with self._open():
            answers = self._run_all(script, calls)
            forgotten = [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if forgotten:
                self._client.execute_command("SCRIPT LOAD", script.text)
                again = self._run_all(script, [calls[number] for number in forgotten])
                for number, answer in zip(forgotten, again, strict=True):
                    answers[number] = answer
        return answers

    def _run_all(self, script: Script, calls: Sequence[Sequence[Argument]]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            for arguments in calls:
                pipe.execute_command("EVALSHA", script.sha, 0, *arguments)
            return list(pipe.execute(raise_on_error=False))

    @contextmanager
    def _open(self) -> Iterator[None]:
        if self._closed:  # the client would connect again
            raise StoreUnavailable("the store is closed")
        with failures():
            yield

    def close(self) -> None:
        """Lets go of all sockets."""
        self._closed = True
        self._client.close()
