"""Why rollouts are refused or can't be kept: always with what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["RolloutsRefused", "RolloutsUnavailable"]


class RolloutsRefused(ValueError):  # noqa: N818 - reads as what happened
    """The body can't be taken as it stands.

    Args:
        text: what is wrong and what to send instead.
        problems: one mapping each for what is wrong where.
    """

    def __init__(self, text: str, problems: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(text)
        self.problems = problems


class RolloutsUnavailable(RuntimeError):  # noqa: N818
    """Nothing can be kept or read now: a full disk, a folder that can't be written, a redaction hook that fails."""
