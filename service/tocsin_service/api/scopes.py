"""Which scope a request needs: a pure function of its method and path that refuses what it doesn't know."""

from __future__ import annotations

from tocsin_service.access.links import PREFIX
from tocsin_service.access.tokens import Scope
from tocsin_service.dashboard import SHELL

__all__ = ["is_linked", "is_shell", "needed", "written_run"]

OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # for probes, which have no token
LINKED = f"{PREFIX}/"
LINKED_METHODS = frozenset({"GET", "HEAD", "POST"})
RUN_LENGTH = 128  # a longer id is none, and is refused without being remembered


def needed(method: str, path: str) -> Scope | None:
    """The scope that a token must have for this; None: nobody is asked for one.

    Reading is reading; sending vectors, tensors and rollouts and describing a run is what trainers do; everything else,
    known or not, is for admins. What lies behind signed links is open here, because its routes check the signature.

    Args:
        method: of the request, in capitals.
        path: after percent-decoding, as it is routed.
    """
    if is_linked(path):
        return None if method in LINKED_METHODS else Scope.ADMIN
    if method in {"GET", "HEAD"}:
        return None if path in OPEN_PATHS or is_shell(path) else Scope.READ
    match (method, path.split("/")):
        case ("POST", ["", "v1", "runs", _, "steps" | "tensors" | "rollouts"]) | ("PUT", ["", "v1", "runs", _]):
            return Scope.INGEST
    return Scope.ADMIN


def is_linked(path: str) -> bool:
    """Whether the path lies behind signed links."""
    return path.startswith(LINKED)


def is_shell(path: str) -> bool:
    """Whether the path is of the dashboard's page or one of its files, which hold no data."""
    return path == "/" or path.startswith(SHELL)


def written_run(method: str, path: str) -> str | None:
    """The run that a request writes to; None if it doesn't write to one."""
    if method in {"GET", "HEAD"} or not path.startswith("/v1/runs/"):
        return None
    run = path.split("/", 4)[3]
    return run if 0 < len(run) <= RUN_LENGTH else None
