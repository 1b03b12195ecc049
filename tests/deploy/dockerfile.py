"""deploy/Dockerfile, read: as much of the language as that file uses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.deploy.native import DEPLOY

FILE = DEPLOY / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Its instructions in order: name and the rest, lines joined."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name.upper(), rest) for name, rest in (line.split(" ", 1) for line in joined.splitlines())]


def values(name: str) -> list[str]:
    """What stands behind each instruction of that name."""
    return [rest for found, rest in instructions() if found == name]


def copied() -> list[Path]:
    """What is copied from the repository, relative to it."""
    return [Path(source) for rest in values("COPY") if not rest.startswith("--from") for source in rest.split()[:-1]]


def environment() -> dict[str, str]:
    """The environment of every variant."""
    blocks, seen = {}, False
    for name, rest in instructions():
        if name == "FROM":
            seen = rest.endswith(" AS runtime")
        if seen and name == "ENV":
            blocks |= dict(pair.split("=", 1) for pair in shlex.split(rest))
    return blocks
