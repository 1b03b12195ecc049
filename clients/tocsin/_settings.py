"""What the client is told: arguments first, then the environment, then defaults."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import quote

from tocsin._guard import Mistake, debugging, guarded, logger
from tocsin._transport import Address

__all__ = ["Settings", "settings"]

_DEFAULT_URL = "http://127.0.0.1:8765"
_LONGEST_RUN = 128


@dataclass(frozen=True, slots=True)
class Options:
    """What ``tocsin.init`` takes beside the run, the server and the config.

    Attributes:
        attempt: the trainer's restart counter, >= 0; unset, a step that goes back tells of a restart.
        max_vectors: how many vectors wait at most while the server is away.
        max_bytes: about how many bytes they may hold.
        timeout: seconds that connecting, and every wait for the server's bytes, may take.
        exit_timeout: seconds that ``finish`` and the end of the process wait at most for what isn't sent yet.
    """

    attempt: int | None = None
    max_vectors: int = 10_000
    max_bytes: int = 32 * 1024 * 1024
    timeout: float = 10.0
    exit_timeout: float = 5.0


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
    address: Address
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
    known = {option.name for option in fields(Options)}
    unknown = sorted(options.keys() - known)
    if unknown:
        message = f"unknown options {unknown} are ignored; there are {sorted(known)}"
        if debugging():
            raise Mistake(message)
        logger.warning("tocsin.init: %s", message)
    given = {name: value for name, value in options.items() if name in known}
    exit_timeout = os.environ.get("TOCSIN_EXIT_TIMEOUT")
    if exit_timeout and "exit_timeout" not in given:
        given["exit_timeout"] = float(exit_timeout)
    wanted = str(os.environ.get("TOCSIN_RUN", "") if run is None else run)
    return Settings(
        run=_accepted(wanted) if wanted.strip() else _default_run(),
        address=Address.parse(
            url or os.environ.get("TOCSIN_URL") or _DEFAULT_URL, token or os.environ.get("TOCSIN_TOKEN")
        ),
        config=dict(config or {}),
        options=Options(**given),
        disabled=os.environ.get("TOCSIN_DISABLED", "0") not in {"", "0"},
    )


def _accepted(run: str) -> str:
    """The id with everything that the server refuses replaced, so that a name with a path in it still works."""
    accepted = "".join(c if c.isprintable() and c not in "/\\" else "_" for c in run)[:_LONGEST_RUN]
    if accepted in {".", ".."}:
        accepted = "_" * len(accepted)
    if accepted != run:
        logger.warning("run id %.200r is not allowed (no slashes, 1-128 printable characters): using %r", run, accepted)
    return accepted


def _default_run() -> str:
    started = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return _accepted(f"{socket.gethostname()[:64]}-{started}-{os.getpid()}")
