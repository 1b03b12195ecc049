"""The one number in a TensorFlow ``TensorProto``, which is how newer writers log a scalar."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tocsin.readers._protobuf import doubles, fields, floats, signed, varints

__all__ = ["scalar_of"]

_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_FLOATS, _DOUBLES, _HALVES = 5, 6, 13
_INTEGERS = {7, 10, 11}  # int_val, int64_val, bool_val
_BFLOAT16, _HALF = 14, 19
# Formats of struct by DataType, for tensors whose values stand as raw bytes.
_CONTENTS: Mapping[int, str] = {
    1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", _HALF: "e", 22: "I", 23: "Q",
}  # fmt: skip


def scalar_of(message: bytes) -> float | None:
    """The number of a tensor that holds exactly one; None if it holds none, several or a text.

    Raises:
        ValueError: the bytes are no tensor.
    """
    dtype = 0
    found: list[float] = []
    for field in fields(message):
        if field.number == _DTYPE:
            dtype = field.integer
        elif field.number == _SHAPE and _size(field.data) != 1:
            return None
        elif field.number == _CONTENT:
            found += _content(field.data, dtype)
        elif field.number == _FLOATS:
            found += floats(field.data)
        elif field.number == _DOUBLES:
            found += doubles(field.data)
        elif field.number == _HALVES:
            found += [_half(value, dtype) for value in varints(field.data) or [field.integer]]
        elif field.number in _INTEGERS:
            found += [float(signed(value)) for value in varints(field.data) or [field.integer]]
    return found[0] if len(found) == 1 else None


def _size(shape: bytes) -> int:
    size = 1
    for dimension in fields(shape):
        if dimension.number == 2:
            size *= sum(field.integer for field in fields(dimension.data) if field.number == 1)
    return size


def _content(data: bytes, dtype: int) -> list[float]:
    if dtype == _BFLOAT16 and len(data) == 2:
        return [_half(int.from_bytes(data, "little"), dtype)]
    form = _CONTENTS.get(dtype)
    if form is None or struct.calcsize(f"<{form}") != len(data):
        return []
    return [float(struct.unpack(f"<{form}", data)[0])]


def _half(bits: int, dtype: int) -> float:
    if dtype == _BFLOAT16:
        return float(struct.unpack("<f", (bits << 16 & 0xFFFFFFFF).to_bytes(4, "little"))[0])
    return float(struct.unpack("<e", (bits & 0xFFFF).to_bytes(2, "little"))[0])
