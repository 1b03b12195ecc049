"""The header of a safetensors body: what is in it and where, believed only after everything about it was checked.

The format, as its authors describe it (https://huggingface.co/docs/safetensors): 8 bytes, the length of the header as
an unsigned little-endian integer; the header, a JSON object of tensor name to dtype, shape and span, padded with
spaces; the data. Spans count from the first byte of the data, and cover all of it, without holes or overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tocsin_service.receiving import json_texts
from tocsin_service.receiving.json_texts import shorten
from tocsin_service.tensors.errors import HeaderError

__all__ = [
    "DTYPES",
    "LONGEST_HEADER",
    "PREFIX",
    "Header",
    "TensorSpan",
    "parse_header",
    "read_length",
]

PREFIX = 8  # bytes that hold the length of the header
LONGEST_HEADER = 2**18  # the known tensors need 4 KiB; the names of domains need the rest
MOST_DIMENSIONS = 2
LARGEST = 2**50  # extent or offset, beyond every memory: larger ones are only there to overflow somebody's arithmetic
METADATA = "__metadata__"
FIELDS = frozenset({"dtype", "shape", "data_offsets"})

# Bytes of an item. What is left out: unsigned and complex types that torch computes with only in part, and 8-bit
# floats, in which a log-probability has no digits left.
DTYPES: Mapping[str, int] = MappingProxyType(
    {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
)


@dataclass(frozen=True, slots=True)
class TensorSpan:
    """One tensor of a body.

    Attributes:
        dtype: a name of :data:`DTYPES`.
        shape: extents, each >= 0; empty for a single number.
        begin, end: where its bytes lie, counted from the first byte of the data.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a body holds.

    Attributes:
        tensors: in the order of their spans, which lie one behind the other.
        size: bytes of the data.
        metadata: texts that the sender added.
    """

    tensors: tuple[TensorSpan, ...]
    size: int
    metadata: Mapping[str, str]


def read_length(prefix: bytes, body: int) -> int:
    """The length of the header in bytes.

    Args:
        prefix: the first 8 bytes of the body.
        body: length of the whole body in bytes.

    Raises:
        HeaderError: there is no such header in a body of this length, or it is too long.
    """
    if len(prefix) < PREFIX:
        raise HeaderError(f"the body has {len(prefix)} bytes; send tensors in the safetensors format")
    length = int.from_bytes(prefix[:PREFIX], "little")
    if length > LONGEST_HEADER:
        raise HeaderError(
            f"the body says that its header has {length} bytes, more than the {LONGEST_HEADER} that are allowed: "
            "is it safetensors?"
        )
    if not 2 <= length <= body - PREFIX:
        raise HeaderError(f"the body says that its header has {length} bytes, which a body of {body} bytes can't have")
    return length


def parse_header(data: bytes, size: int, names: Iterable[str]) -> Header:
    """The header in ``data``, which is followed by exactly ``size`` bytes of tensors.

    Args:
        data: the header's bytes, without the prefix.
        size: bytes behind it.
        names: tensors that may be there.

    Raises:
        HeaderError: broken JSON; a tensor that is unknown, of another dtype, or whose shape and span don't agree; spans
            that overlap, leave holes, or don't cover all of the data.
    """
    values = _parse(data)
    metadata = _metadata(values.pop(METADATA, None))
    known = frozenset(names)
    spans = sorted(
        (_tensor(name, value, known) for name, value in values.items()), key=lambda one: (one.begin, one.end)
    )
    if not spans:
        raise HeaderError("the body holds no tensor")
    _check_cover(spans, size)
    return Header(tuple(spans), size, metadata)


def _parse(data: bytes) -> dict[str, Any]:
    if not data.startswith(b"{"):
        raise HeaderError("the header is no JSON object: is it safetensors?")
    try:
        values: dict[str, Any] = json_texts.parse(data.decode())
    except UnicodeDecodeError as error:
        raise HeaderError(f"the header is not UTF-8 (byte {error.start})") from None
    except json_texts.JsonError as error:
        raise HeaderError(f"the header can't be read: {error}") from None
    return values


def _metadata(value: Any) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise HeaderError(f"{METADATA} must be an object of texts")
    return value


def _tensor(name: str, value: Any, known: frozenset[str]) -> TensorSpan:
    shown = shorten(name)
    if name not in known:
        raise HeaderError(f"there is no tensor {shown}; send any of: {', '.join(sorted(known))}")
    if not isinstance(value, dict) or value.keys() != FIELDS:
        raise HeaderError(f"tensor {shown} must have exactly the fields {', '.join(sorted(FIELDS))}")
    dtype = value["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise HeaderError(f"tensor {shown} is of dtype {shorten(dtype)}; send any of: {', '.join(DTYPES)}")
    shape = _whole_numbers(value["shape"])
    if shape is None or len(shape) > MOST_DIMENSIONS:
        raise HeaderError(
            f"tensor {shown} has the shape {shorten(value['shape'])}; "
            f"send at most {MOST_DIMENSIONS} extents, each a whole number from 0"
        )
    offsets = _whole_numbers(value["data_offsets"])
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise HeaderError(
            f"tensor {shown} has the offsets {shorten(value['data_offsets'])}; send two whole numbers, begin <= end"
        )
    begin, end = offsets
    if math.prod(shape) * DTYPES[dtype] != end - begin:
        raise HeaderError(
            f"tensor {shown} of shape {list(shape)} and dtype {dtype} has {math.prod(shape) * DTYPES[dtype]} bytes, "
            f"but its offsets span {end - begin}"
        )
    if begin % DTYPES[dtype]:
        raise HeaderError(
            f"tensor {shown} begins at byte {begin}, which is no multiple of its item's {DTYPES[dtype]} bytes; "
            "send the tensors with the largest items first, as the safetensors library does"
        )
    return TensorSpan(name, dtype, shape, begin, end)


def _whole_numbers(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(type(one) is int and 0 <= one <= LARGEST for one in value):
        return tuple(value)
    return None


def _check_cover(spans: list[TensorSpan], size: int) -> None:
    reached = 0
    for span in spans:
        if span.begin < reached:
            raise HeaderError(f"tensor {shorten(span.name)} overlaps the one before it: it begins at byte {span.begin}")
        if span.begin > reached:
            raise HeaderError(f"bytes {reached} to {span.begin} of the data belong to no tensor")
        reached = span.end
    if reached > size:
        raise HeaderError(f"the tensors need {reached} bytes, but the body has only {size} behind its header")
    if reached < size:
        raise HeaderError(f"the body has {size - reached} bytes behind its last tensor")
