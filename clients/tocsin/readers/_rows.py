"""Vectors from rows that keep their metrics in a mapping of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tocsin.readers._fields import Steps, metrics_of, time_of
from tocsin.readers._records import Record
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector

__all__ = ["nested"]


def nested(records: Iterable[Record], field: str, source: Source) -> Iterator[Vector]:
    """One vector for every record, its metrics being what stands under ``field``."""
    steps = Steps()
    for record in records:
        metrics = record.data.get(field)
        if not isinstance(metrics, dict):
            source.wrong(record.line, f"has no object under {field!r}")
            continue
        try:
            step, _ = steps.of(record.data)
        except ValueError as error:
            source.wrong(record.line, str(error))
            continue
        found, skipped = metrics_of(metrics)
        source.skipped += skipped
        time, _ = time_of(record.data)
        yield Vector(step, found, time, record.line.number if record.line else None)
