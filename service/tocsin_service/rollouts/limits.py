"""Bounds of the rollout log that are no settings, and what is wrong with those that are."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["LONGEST_NAME", "LONGEST_TEXT", "MOST_PROBLEMS", "MOST_ROWS", "MOST_SCORES", "setting_problem"]

MOST_ROWS = 100_000  # in one request
MOST_SCORES = 32  # of a row: reward models and rules
LONGEST_NAME = 256  # characters of a group, a domain, a score's name, ...
LONGEST_TEXT = 2**20  # characters of a prompt or response that are kept: half from its beginning, half from its end
MOST_PROBLEMS = 20  # in one answer


def setting_problem(directory: Path | None, hook: str | None) -> str | None:
    """What is wrong with the settings ``rollout_dir`` and ``rollout_hook``; None if nothing is."""
    if directory is not None and set(str(directory)) & set("*?[]{}"):
        return "rollout_dir: has one of the characters *?[]{}, which mean a pattern where the files are read; rename it"
    if hook is not None and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", hook) is None:
        return "rollout_hook: write it as module:function"
    return None
