"""verl's file logger: ``{"step": 12, "data": {"actor/kl_loss": 0.01}}``, where null stands for NaN and infinities."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.readers._fields import Steps
from tocsin.readers._rows import Record, nested
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector

__all__ = ["fits", "framework", "vector"]

framework: str | None = "verl"


def fits(data: Mapping[str, object]) -> bool:
    """Whether ``data``, the first object of a log, is of this format."""
    return isinstance(data.get("data"), dict)


def vector(record: Record, steps: Steps, source: Source) -> Vector | None:
    """The vector of one object."""
    return nested(record, "data", steps, source)
