"""Reads logs from their beginning to their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tocsin.readers._open import pieces
from tocsin.readers._sniffer import Sniffer
from tocsin.readers._source import ReadError, Source
from tocsin.readers._vector import Vector

__all__ = ["Reading"]


class Reading(Iterator[Vector]):
    """The vectors of one log, read as they are asked for.

    Attributes:
        vectors: how many were read so far.
        framework: the training framework that writes such logs, None if that can't be told (yet).
    """

    def __init__(self, paths: Sequence[str], *, skip_broken: bool = False) -> None:
        self._sources = [Source(path, skip_broken=skip_broken) for path in paths]
        self._rows = self._read()
        self.vectors = 0
        self.framework: str | None = None

    @property
    def skipped(self) -> int:
        """How many values so far were no numbers."""
        return sum(source.skipped for source in self._sources)

    def __next__(self) -> Vector:
        vector = next(self._rows)
        self.vectors += 1
        return vector

    def _read(self) -> Iterator[Vector]:
        for source in self._sources:
            sniffer = Sniffer(source)
            before = b""
            for piece in pieces(source):
                yield from self._told(sniffer, before)
                before = piece
            yield from self._told(sniffer, before, last=True)
        if not self.vectors:
            raise self._nothing()

    def _told(self, sniffer: Sniffer, data: bytes, *, last: bool = False) -> Iterator[Vector]:
        for vector in sniffer.feed(data, last=last):
            if sniffer.chosen is not None and self.framework is None:
                self.framework = sniffer.chosen.framework
            yield vector

    def _nothing(self) -> ReadError:
        problem = f"has no step with a number in it ({self.skipped} values were no numbers)"
        return self._sources[0].error(None, problem)
