"""The format of spooled vectors: one line each, with a checksum before it, so that a torn or damaged one is noticed.

    8 hexadecimal digits: CRC-32 of the JSON | one space | the vector's JSON, ASCII without line breaks | line feed

``cut -c10-`` turns such a file into NDJSON, as ``POST /v1/runs/{run}/steps`` takes it.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

__all__ = ["Record", "Scan", "encode_record", "record_size", "scan"]

_HEADER = 9


class Record(NamedTuple):
    """A vector and where its line ends, in bytes from the beginning of the file."""

    vector: bytes
    end: int


class Scan(NamedTuple):
    """The records of a piece of a file, where its last whole line ends, and how many lines were damaged."""

    records: list[Record]
    end: int
    damaged: int


def encode_record(vector: bytes) -> bytes:
    """One line. ``vector`` has no line break in it."""
    return b"%08x %b\n" % (zlib.crc32(vector), vector)


def scan(data: bytes, begin: int) -> Scan:
    """The whole lines in ``data``, which stands at ``begin`` in its file; a line's beginning at its end is left."""
    lines = data.split(b"\n")[:-1]
    end = begin
    records: list[Record] = []
    damaged = 0
    for line in lines:
        end += len(line) + 1
        vector = line[_HEADER:]
        if line[:_HEADER] == b"%08x " % zlib.crc32(vector):
            records.append(Record(vector, end))
        else:
            damaged += 1
    return Scan(records, end, damaged)


def record_size(vector: bytes) -> int:
    """How many bytes the line of a vector takes."""
    return _HEADER + len(vector) + 1
