"""Chooses the reader by content and runs it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tocsin.readers import flat, jsonl, table, trainer_state, verl
from tocsin.readers._records import Record, records
from tocsin.readers._source import ReadError, Source
from tocsin.readers._vector import Vector

__all__ = ["Reading"]

# The flat reader takes any object, so it comes last.
_JSON_READERS = (jsonl, verl, trainer_state, flat)


class Reading(Iterator[Vector]):
    """The vectors of one log, read as they are asked for.

    Attributes:
        vectors: how many were read so far.
    """

    def __init__(self, path: str, *, skip_broken: bool = False) -> None:
        self._source = Source(path, skip_broken=skip_broken)
        self._rows = self._read()
        self.vectors = 0

    @property
    def skipped(self) -> int:
        """How many values so far were no numbers."""
        return self._source.skipped

    def __next__(self) -> Vector:
        vector = next(self._rows)
        self.vectors += 1
        return vector

    def _read(self) -> Iterator[Vector]:
        with self._source as source:
            lines = source.lines()
            first = next((line for line in lines if line.text.strip()), None)
            if first is None:
                raise source.error(None, "is empty")
            if "\0" in first.text:
                raise source.error(None, "is no text: neither JSON nor CSV")
            if first.text.lstrip()[0] in "{[":
                yield from _from_json(records(first, lines, source), source)
            else:
                yield from table.vectors(first, lines, source)
        if not self.vectors:
            raise self._nothing()

    def _nothing(self) -> ReadError:
        return self._source.error(None, f"has no step with a number in it ({self.skipped} values were no numbers)")


def _from_json(objects: Iterator[Record], source: Source) -> Iterator[Vector]:
    first = next(objects, None)
    if first is not None:
        reader = next(reader for reader in _JSON_READERS if reader.fits(first.data))
        yield from reader.vectors(chain((first,), objects), source)
