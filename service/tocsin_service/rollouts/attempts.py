"""Which rows are of which attempt. A resume repeats steps, and a row says its attempt only if the trainer does.

Rows have times, and so has the log of steps, which tells attempts apart: a row belongs to the attempt in whose time it
was written. Rollouts come before the metrics of their step, so the first of an attempt are older than its first vector:
between the last vector of an attempt and the first of the next, rows of steps below the last one's are of the next. And
where rollouts were sent before any step was logged, what was computed of them opens an attempt that is none of the
trainer's: its rows are of the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin_service.lives import Life

__all__ = ["Seam", "Within", "line", "within"]


@dataclass(frozen=True, slots=True)
class Seam:
    """Between an attempt and the next.

    Attributes:
        ended: Unix time in seconds of the last vector before it; ``begun``: of the first behind it.
        last: the greatest step before it.
    """

    ended: float
    last: int
    begun: float


@dataclass(frozen=True, slots=True)
class Within:
    """Rows of one attempt.

    Attributes:
        told: the trainer's own number of it: rows that name one belong to it, or don't. None: it gives none.
        after, before: between which seams the other rows were written; None: there is none, or none is known.
    """

    told: int | None = None
    after: Seam | None = None
    before: Seam | None = None

    def condition(self) -> tuple[str, list[Any]]:
        """In SQL, with its values."""
        parts, values = list[str](), list[Any]()
        for seam, sign in ((self.after, ""), (self.before, "NOT ")):
            if seam is not None:
                parts.append(f"{sign}(time >= ? OR (time > ? AND step < ?))")
                values += [seam.begun, seam.ended, seam.last]
        by_time = " AND ".join(parts) or "TRUE"
        if self.told is None:
            return f"({by_time})", values
        return f"CASE WHEN attempt IS NULL THEN {by_time} ELSE attempt = ? END", [*values, self.told]


def within(lives: Sequence[Life], attempt: int) -> Within:
    """The rows of an attempt (the engine's count); of one that the log tells nothing of, as well as can be said."""
    lives = [one for one in lives if one.logged]
    place = next((index for index, one in enumerate(lives) if one.attempt >= attempt), None)
    if place is None:
        return Within()
    life = lives[place]
    if life.attempt != attempt:  # it went before all that is left of the log
        return Within(before=None if life.begun is None else Seam(float("inf"), 0, life.begun))
    after = _seam(lives[place - 1], life) if place else None
    before = _seam(life, lives[place + 1]) if place + 1 < len(lives) else None
    return Within(life.told, after, before)


def line(lives: Sequence[Life], attempt: int, step: int) -> Iterator[tuple[int, int]]:
    """The steps before ``step`` that led there, as attempts and the step below which theirs count, the nearest first.

    Those of an earlier attempt count up to where the next one took over.
    """
    yield attempt, step
    attempts = [one for one in lives if one.logged and one.attempt <= attempt]
    for life in reversed(attempts):
        if life.attempt < attempt:
            yield life.attempt, step
        step = min(step, life.first)
    if attempts and attempts[0].attempt > 0:
        yield attempts[0].attempt - 1, step  # its log is gone


def _seam(life: Life, following: Life) -> Seam | None:
    if life.ended is None or following.begun is None:
        return None
    return Seam(life.ended, life.last, following.begun)
