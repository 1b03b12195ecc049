"""Which state a file is in: how those notice that it has changed who read it again."""

from __future__ import annotations

from pathlib import Path

__all__ = ["identity"]


def identity(file: Path) -> tuple[int, ...]:
    """Is another one whenever the file has been written or replaced; empty while it can't be looked at."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
