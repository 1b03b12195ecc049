"""Bytes, in whatever pieces they come, to lines."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from tocsin.readers._source import Line, Source

__all__ = ["Lines", "text_of"]

_LONGEST = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


def text_of(line: bytes, begin: int) -> str:
    """A line's text; whatever bytes a torn one has in it, they are not worth losing the others."""
    if begin == 0 and line.startswith(_BOM):
        line = line[len(_BOM) :]
    return line.rstrip(b"\r\n").decode("utf-8", errors="replace")


class Lines:
    """Splits what it is fed into lines; the beginning of one waits for its end.

    Args:
        source: where it is said that a line is too long.
        offset: where in the file the first byte stands.
        number: how many lines stand before it.
    """

    def __init__(self, source: Source, offset: int = 0, number: int = 0) -> None:
        self._source = source
        self._rest: list[bytes] = []
        self._size = 0
        self._offset = offset
        self._number = number
        self._dropping = False
        self._taken = 0

    def feed(self, data: bytes, *, last: bool) -> Iterator[Line]:
        """The lines that are whole now; with ``last`` also one without a line end, as nothing more will come."""
        *whole, rest = data.split(b"\n")
        for index, line in enumerate(whole):
            ended = last and not rest and index == len(whole) - 1
            yield from self._end(line + b"\n", last=ended)
        if rest:
            self._keep(rest)
        if last and self._rest:
            yield from self._end(b"", last=True)

    def unfinished(self) -> Line | None:
        """The line whose end has not come yet; None if there is none."""
        rest = b"".join(self._rest)
        if not rest or self._dropping:
            return None
        begin = self._offset
        return Line(self._number + 1, text_of(rest, begin), begin, begin + len(rest), zlib.crc32(rest.rstrip(b"\r")))

    def take_unfinished(self) -> None:
        """Takes what :meth:`unfinished` gave for a line; what is left of it is its end."""
        self._offset += self._size
        self._taken = 1
        self._number += 1
        self._rest.clear()
        self._size = 0

    def _keep(self, rest: bytes) -> None:
        self._size += len(rest)
        if self._size > _LONGEST and not self._dropping:
            self._dropping = True
            self._source.wrong(Line(self._number + 1, ""), f"is longer than {_LONGEST} bytes")
        if self._dropping:
            self._rest = [b"..."]
        else:
            self._rest.append(rest)

    def _end(self, line: bytes, *, last: bool) -> Iterator[Line]:
        whole = b"".join(self._rest) + line if self._rest else line
        size = self._size + len(line)
        dropped, self._dropping, self._size = self._dropping, False, 0
        self._rest.clear()
        self._number += 0 if self._taken and not whole.strip() else 1
        self._taken = 0
        begin, self._offset = self._offset, self._offset + size
        if not dropped:
            checksum = zlib.crc32(whole.rstrip(b"\r\n"))
            yield Line(self._number, text_of(whole, begin), begin, self._offset, checksum, last)
