"""Where the rollouts of a run lie. Asked also by those who read none of them: nothing here needs pyarrow or duckdb."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

__all__ = ["NAME", "any_kept", "folder_of"]

NAME = re.compile(r"(\d{16})-(\d{16})-([0-9a-f]{32})\.parquet")
"""Of a file: the least and the greatest step in it, and its key."""


def folder_of(root: Path, run: str) -> Path:
    """The folder with the files of a run; ``root`` is the setting ``rollout_dir``."""
    return root / hashlib.blake2b(run.encode(errors="backslashreplace"), digest_size=16).hexdigest()


def any_kept(root: Path, run: str) -> bool:
    """Whether anything is kept that the run's model wrote; False too where that can't be seen."""
    with suppress(OSError), os.scandir(folder_of(root, run)) as entries:
        return any(NAME.fullmatch(entry.name) for entry in entries)
    return False
