"""The attempts of a run as its log tells of them: which steps each went through, and when."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Life"]


@dataclass(slots=True)
class Life:
    """One attempt.

    Attributes:
        attempt: the engine's count, from 0.
        told: the trainer's own number of it, None if it gives none.
        first: step of its first vector; ``last``: its greatest step.
        begun: Unix time in seconds of its first vector; None if the log doesn't say.
        ended: the same of its latest, without what Tocsin has computed, which may be of the next attempt already.
        logged: whether the trainer itself has logged a step; else there is only what Tocsin has computed.
    """

    attempt: int
    told: int | None
    first: int
    last: int
    begun: float | None
    ended: float | None
    logged: bool = True
