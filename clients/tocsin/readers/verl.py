"""verl's file logger: ``{"step": 12, "data": {"actor/kl_loss": 0.01}}``, where null stands for NaN and infinities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tocsin.readers._records import Record
from tocsin.readers._rows import nested
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector

__all__ = ["fits", "vectors"]


def fits(data: Mapping[str, object]) -> bool:
    """Whether ``data``, the first object of a log, is of this format."""
    return isinstance(data.get("data"), dict)


def vectors(records: Iterable[Record], source: Source) -> Iterator[Vector]:
    """One vector for every object."""
    return nested(records, "data", source)
