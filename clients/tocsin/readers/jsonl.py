"""Tocsin's own JSON lines: ``{"step": 12, "metrics": {"reward": 0.5}, "time": 1767225600.0}``."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.readers._fields import Steps
from tocsin.readers._rows import Record, nested
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector

__all__ = ["fits", "framework", "vector"]

framework: str | None = None


def fits(data: Mapping[str, object]) -> bool:
    """Whether ``data``, the first object of a log, is of this format."""
    return isinstance(data.get("metrics"), dict)


def vector(record: Record, steps: Steps, source: Source) -> Vector | None:
    """The vector of one object."""
    return nested(record, "metrics", steps, source)
