"""The names of Redis keys, and positions of a log as the ids of its stream's entries.

Everything of a run lies under ``tocsin:{RUN}:``, the braces being literal; see docs/redis.md for the whole layout.
"""

from __future__ import annotations

from tocsin_service.store.redis.partitions import partition_of

__all__ = [
    "ACKNOWLEDGED",
    "AUDIT",
    "COUNTS",
    "DEAD",
    "LOGS",
    "RECEIVERS",
    "RUNS",
    "SILENCES",
    "START",
    "entry_id",
    "is_position",
    "log",
    "nudges",
    "of",
    "position",
    "run_of",
    "seconds",
]

ACKNOWLEDGED = "tocsin:acknowledged"
AUDIT = "tocsin:audit"
COUNTS = "tocsin:counts"
DEAD = "tocsin:dead"
RECEIVERS = "tocsin:receivers"
SILENCES = "tocsin:silences"
RUNS = "tocsin:runs"
LOGS = "tocsin:{*}:log"  # a pattern
START = "0-0"  # the id before every entry

SEQUENCE_BITS = 20  # a million entries in one millisecond
TIME_BITS = 42  # milliseconds until the year 2109


def of(run: str, what: str) -> str:
    """The key of one part of a run."""
    return f"tocsin:{{{run}}}:{what}"


def log(run: str) -> str:
    """The stream that is the log of ``run``."""
    return of(run, "log")


def run_of(key: str) -> str:
    """The run whose log ``key`` is. It may be no run that the service would take."""
    return key.removeprefix("tocsin:{").removesuffix("}:log")


def nudges(run: str) -> str:
    """The stream that tells the workers of news of ``run``."""
    return f"tocsin:nudges:{partition_of(run)}"


def entry_id(position: int) -> str:
    """The stream id of ``position``."""
    return f"{position >> SEQUENCE_BITS}-{position & (1 << SEQUENCE_BITS) - 1}"


def is_position(entry: str) -> bool:
    """Whether a stream id has a position: Redis's own ids have, hand-made ones may be too large."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds) >> TIME_BITS == 0 == int(sequence) >> SEQUENCE_BITS


def seconds(entry: str) -> float:
    """Unix time in seconds at which an entry came in, by Redis's clock."""
    return int(entry.partition("-")[0]) / 1000


def position(entry: str) -> int:
    """The position of a stream id: it grows as the ids do, and fits into 62 bits."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds) << SEQUENCE_BITS | int(sequence)
