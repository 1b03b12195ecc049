"""Vectors from rows that keep their metrics in a mapping of their own."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.readers._fields import Steps, metrics_of, time_of
from tocsin.readers._source import Line, Source
from tocsin.readers._vector import Vector

__all__ = ["Record", "nested"]


class Record(NamedTuple):
    """One object of a log, with its line if it has one of its own, and what tells it from the others."""

    line: Line | None
    data: dict[str, object]
    mark: str = ""

    @property
    def number(self) -> int | None:
        """The number of its line."""
        return self.line.number if self.line else None


def nested(record: Record, field: str, steps: Steps, source: Source) -> Vector | None:
    """The record's vector, its metrics being what stands under ``field``; None if it has none, which is told."""
    metrics = record.data.get(field)
    if not isinstance(metrics, dict):
        source.wrong(record.line, f"has no object under {field!r}")
        return None
    try:
        step, _ = steps.of(record.data)
    except ValueError as error:
        source.wrong(record.line, str(error))
        return None
    found, skipped = metrics_of(metrics)
    source.skipped += skipped
    time, _ = time_of(record.data)
    return Vector(step, found, time, record.number, record.mark)
