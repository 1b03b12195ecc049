"""What the client is told: arguments first, then the environment, then defaults."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tocsin._guard import Mistake, debugging, guarded, say
from tocsin._redis import RedisAddress
from tocsin._transport import Address

__all__ = ["Settings", "settings"]

_DEFAULT_URL = "http://127.0.0.1:8765"
_LONGEST_RUN = 128
_FROM_ENVIRONMENT: Mapping[str, Callable[[str], object]] = {
    "exit_timeout": float,
    "spool": str,
    "spool_bytes": int,
    "token_file": str,
}


@dataclass(frozen=True, slots=True)
class Options:
    """What ``tocsin.init`` takes beside the run, the server and the config.

    Attributes:
        attempt: the trainer's restart counter, >= 0; unset, a step that goes back tells of a restart.
        max_vectors: how many vectors wait at most while the server is away.
        max_bytes: about how many bytes they may hold.
        timeout: seconds that connecting, and every wait for the server's bytes, may take.
        exit_timeout: seconds that ``finish`` and the end of the process wait at most for what isn't sent yet.
        spool: directory for vectors until the server has them; None keeps them in memory alone.
        spool_bytes: how many bytes this process may have there, with what it has taken over from dead ones.
        max_tensor_bytes: how many bytes of tensors, packed, may be held until the server has them.
        max_rollout_bytes: how many bytes of rollouts may be held until the server has them.
        token_file: file that holds the token, or the password of a Redis.
    """

    attempt: int | None = None
    max_vectors: int = 10_000
    max_bytes: int = 32 * 1024 * 1024
    timeout: float = 10.0
    exit_timeout: float = 5.0
    spool: Path | None = None
    spool_bytes: int = 256 * 1024 * 1024
    max_tensor_bytes: int = 512 * 1024 * 1024
    max_rollout_bytes: int = 256 * 1024 * 1024
    token_file: str | os.PathLike[str] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a run needs to know.

    Attributes:
        run: the run's id, in a form that the server accepts.
        address: the server.
        config: fields of the run's configuration, sent before its first vectors; empty for none.
        options: bounds and waits.
        disabled: TOCSIN_DISABLED is set: nothing is sent or counted.
        faulty: a setting was wrong: nothing is sent, and counted as dropped.
    """

    run: str
    address: Address | RedisAddress
    config: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    disabled: bool = False
    faulty: bool = False

    @property
    def path(self) -> str:
        """The run's path under the server's address."""
        return f"/v1/runs/{quote(self.run, safe='')}"


def _unusable() -> Settings:
    return Settings(_default_run(), Address.parse(_DEFAULT_URL), faulty=True)


@guarded(_unusable)
def settings(
    run: object, url: str | None, config: Mapping[str, Any] | None, token: str | None, options: Mapping[str, Any]
) -> Settings:
    """Settings from arguments and environment; ``faulty`` ones, said once, if they can't be used."""
    chosen = _options(options)
    wanted = str(os.environ.get("TOCSIN_RUN", "") if run is None else run)
    return Settings(
        run=_accepted(wanted) if wanted.strip() else _default_run(),
        address=_address(url or os.environ.get("TOCSIN_URL") or _DEFAULT_URL, _token(token, chosen.token_file)),
        config=dict(config or {}),
        options=chosen,
        disabled=os.environ.get("TOCSIN_DISABLED", "0") not in {"", "0"},
    )


def _options(options: Mapping[str, Any]) -> Options:
    known = {option.name for option in fields(Options)}
    unknown = sorted(options.keys() - known)
    if unknown:
        message = f"unknown options {unknown} are ignored; there are {sorted(known)}"
        if debugging():
            raise Mistake(message)
        say("tocsin.init: %s", message)
    given = {name: value for name, value in options.items() if name in known}
    for name, kind in _FROM_ENVIRONMENT.items():
        value = os.environ.get(f"TOCSIN_{name.upper()}")
        if value and name not in given:
            given[name] = kind(value)
    if given.get("spool") is not None:
        # The trainer may change its directory before anything is written.
        given["spool"] = Path(given["spool"]).expanduser().absolute()
    return Options(**given)


def _address(url: str, token: str | None) -> Address | RedisAddress:
    redis = urlsplit(url.strip()).scheme in {"redis", "rediss", "unix"}
    return RedisAddress.parse(url, token) if redis else Address.parse(url, token)


def _token(token: str | None, file: str | os.PathLike[str] | None) -> str | None:
    if token:
        return token
    if file is None:
        return os.environ.get("TOCSIN_TOKEN")
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Mistake(f"the token's file can't be read: {error} (TOCSIN_TOKEN_FILE or token_file=)") from error


def _accepted(run: str) -> str:
    """The id with everything that the server refuses replaced, so that a name with a path in it still works."""
    accepted = "".join(c if c.isprintable() and c not in "/\\" else "_" for c in run)[:_LONGEST_RUN]
    if accepted in {".", ".."}:
        accepted = "_" * len(accepted)
    if accepted != run:
        say("run id %.200r is not allowed (no slashes, 1-128 printable characters): using %r", run, accepted)
    return accepted


def _default_run() -> str:
    started = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return _accepted(f"{socket.gethostname()[:64]}-{started}-{os.getpid()}")
