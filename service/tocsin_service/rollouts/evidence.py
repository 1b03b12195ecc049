"""Which rollouts say most about an alert of a family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["EVIDENCE", "Extreme"]


@dataclass(frozen=True, slots=True)
class Extreme:
    """One end of a column."""

    words: str
    sort: Literal["reward", "advantage", "chars", "repetition"]
    order: Literal["asc", "desc"]


_LOWEST = Extreme("lowest reward", "reward", "asc")
_HIGHEST = Extreme("highest reward", "reward", "desc")
_LONGEST = Extreme("longest", "chars", "desc")
_SHORTEST = Extreme("shortest", "chars", "asc")
_REPETITIVE = Extreme("most repetitive", "repetition", "desc")
_DRIFT = (_REPETITIVE, _LOWEST, _HIGHEST)

EVIDENCE: Final[Mapping[str, tuple[Extreme, ...]]] = {
    "reward": (_LOWEST, _HIGHEST),
    "validation": (_HIGHEST, _LOWEST),  # a reward that is hacked is a high one
    "length": (_LONGEST, _SHORTEST),
    "advantage": (Extreme("lowest advantage", "advantage", "asc"), Extreme("highest advantage", "advantage", "desc")),
    **dict.fromkeys(("entropy", "kl", "actor", "gradient", "ratio", "mismatch"), _DRIFT),
}
"""By the alert's family; throughput, data quality and the like aren't seen in texts."""
