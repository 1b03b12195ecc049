"""What all formats have in common: bytes go in, in whatever pieces, and vectors come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tocsin.readers._lines import Lines
from tocsin.readers._source import Line, Source
from tocsin.readers._vector import Vector

__all__ = ["Decoder", "LineDecoder"]


class Decoder(ABC):
    """Turns the bytes of one log into vectors. However the bytes are cut into pieces, the vectors are the same.

    What is incomplete waits for more. :meth:`state` tells where the next row begins and what is known of the log; a
    decoder made from it, fed from there on, goes on as if nothing had happened.

    Attributes:
        name: of the format.
        framework: the training framework that writes such logs, None if several do.
        offset: where the first row begins that hasn't been taken, in bytes.
    """

    name: ClassVar[str]
    framework: str | None = None

    def __init__(self, source: Source, state: Mapping[str, Any] | None = None) -> None:
        self.source = source
        self.offset = int((state or {}).get("offset", 0))

    @abstractmethod
    def feed(self, data: bytes, *, last: bool = False) -> Iterator[Vector]:
        """The vectors of all rows that are complete now.

        Args:
            data: what follows in the file.
            last: nothing will follow: an incomplete row is taken as far as it can be, or told of.

        Raises:
            ReadError: see :class:`~tocsin.readers._source.Source`.
        """

    def flush(self) -> Iterator[Vector]:
        """The vectors that wait only because more of them may come."""
        yield from ()

    def state(self) -> dict[str, Any]:
        """What to make the decoder from that goes on at :attr:`offset`, as strict JSON."""
        return {"offset": self.offset}


class LineDecoder(Decoder):
    """A log of lines."""

    def __init__(self, source: Source, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(source, state)
        self._number = int((state or {}).get("line", 0))
        self._lines = Lines(source, self.offset, self._number)

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[Vector]:
        """See :meth:`Decoder.feed`."""
        for line in self._lines.feed(data, last=last):
            yield from self.take(line)

    @abstractmethod
    def take(self, line: Line) -> Iterator[Vector]:
        """The vectors of the next line; calls :meth:`taken` for every row that is done."""

    def taken(self, line: Line) -> None:
        """Everything up to the end of ``line`` is done."""
        self.offset, self._number = line.end, line.number

    def state(self) -> dict[str, Any]:
        """See :meth:`Decoder.state`."""
        return {"offset": self.offset, "line": self._number}
