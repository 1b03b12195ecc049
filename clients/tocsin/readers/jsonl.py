"""Tocsin's own JSON lines: ``{"step": 12, "metrics": {"reward": 0.5}, "time": 1767225600.0}``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tocsin.readers._records import Record
from tocsin.readers._rows import nested
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector

__all__ = ["fits", "vectors"]


def fits(data: Mapping[str, object]) -> bool:
    """Whether ``data``, the first object of a log, is of this format."""
    return isinstance(data.get("metrics"), dict)


def vectors(records: Iterable[Record], source: Source) -> Iterator[Vector]:
    """One vector for every object."""
    return nested(records, "metrics", source)
