"""The Lua scripts: each one runs in Redis as a whole, with nothing else between its commands.

They name their keys themselves, from the run's id: there is one Redis, not a cluster.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

__all__ = [
    "ACKNOWLEDGE",
    "ADMIT",
    "AHEAD",
    "APPEND",
    "CLAIM",
    "COMMIT",
    "REMOVE",
    "SEEK_LAST",
    "SETTLE",
    "TRIM",
    "Script",
]


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the name that Redis knows it by once it has been sent."""

    text: str
    sha: str


def _load(name: str) -> Script:
    folder = resources.files(__package__) / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("common", name))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


ACKNOWLEDGE = _load("acknowledge")
ADMIT = _load("admit")
AHEAD = _load("ahead")
APPEND = _load("append")
CLAIM = _load("claim")
COMMIT = _load("commit")
REMOVE = _load("remove")
SEEK_LAST = _load("seek_last")
SETTLE = _load("settle")
TRIM = _load("trim")
