"""What the readers yield."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Vector"]


@dataclass(frozen=True, slots=True)
class Vector:
    """The metrics of one step as one row of a log has them; several rows may carry the same step.

    Attributes:
        step: the trainer's step, >= 0.
        metrics: value by name as written; NaN and infinities are kept.
        time: Unix time in seconds, if the row has one.
        line: number of the row's line in its file, from 1; None inside a JSON document or a binary log.
        mark: where the row begins in its file and a checksum of it: the same whenever the row is read again.
    """

    step: int
    metrics: dict[str, float]
    time: float | None = None
    line: int | None = None
    mark: str = field(default="", compare=False)
