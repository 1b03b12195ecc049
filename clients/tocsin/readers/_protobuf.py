"""The wire format of protocol buffers, as far as logs need it: the fields of a message, without its schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Field", "doubles", "fields", "floats", "signed", "varints"]

_LARGEST = 2**64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: as the schema has it.
        integer: the value, if it is written as a varint; 0 otherwise.
        data: the value's bytes, if it is written in any other way; empty otherwise.
    """

    number: int
    integer: int
    data: bytes


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message, in its order.

    Raises:
        ValueError: the bytes are no message.
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            integer, position = _varint(message, position)
            yield Field(number, integer, b"")
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        elif kind == _FIXED64:
            size = 8
        elif kind == _FIXED32:
            size = 4
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        end = position + size
        if end > len(message):
            raise ValueError("a field is longer than its message")
        yield Field(number, 0, message[position:end])
        position = end


def varints(data: bytes) -> list[int]:
    """The integers of a packed field.

    Raises:
        ValueError: the bytes are none.
    """
    found = []
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        found.append(value)
    return found


def signed(integer: int) -> int:
    """An integer of a signed type, of which the wire format keeps the two's complement."""
    return integer - _LARGEST if integer >= _LARGEST // 2 else integer


def doubles(data: bytes) -> list[float]:
    """The numbers of a field of doubles, packed or single."""
    return list(struct.unpack(f"<{len(data) // 8}d", data[: len(data) // 8 * 8]))


def floats(data: bytes) -> list[float]:
    """The numbers of a field of floats, packed or single."""
    return list(struct.unpack(f"<{len(data) // 4}f", data[: len(data) // 4 * 4]))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _LARGEST, position
    raise ValueError("a number of more than 64 bits")
