"""What a worker keeps of a run: its engine, and what comes of a turn in which the run's news are folded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tocsin_detectors.alerts import Event
from tocsin_detectors.engine import Engine
from tocsin_service.store import Commit, Stored, StoreUnavailable

__all__ = ["Folded", "Tracked", "Turn"]


@dataclass(slots=True)
class Tracked:
    """An engine that has folded the log up to ``position``, which is committed."""

    engine: Engine
    position: int
    unsaved: int = 0  # entries folded since the last snapshot
    fed: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Folded:
    """What a fold of some entries has found: events, the position of the entry behind each, and what went wrong."""

    events: list[Event] = field(default_factory=list)
    causes: list[int] = field(default_factory=list)
    problem: str | None = None


@dataclass(slots=True)
class Turn:
    """The turn of a run.

    Attributes:
        since: when its oldest news was stored (monotonic).
        started: when the turn began (monotonic).
        entries: the news that were folded, with what was ``found``.
        change: what is to be committed; None if there is nothing.
        more: there may be more to do.
        trouble: why the store couldn't be used.
    """

    run: str
    since: float
    started: float = field(default_factory=time.monotonic)
    entries: Sequence[Stored] = ()
    found: Folded = field(default_factory=Folded)
    change: Commit | None = None
    more: bool = False
    trouble: StoreUnavailable | None = None
