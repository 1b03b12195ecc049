"""The file of a Weights & Biases run, as offline runs leave it: ``run-ID.wandb``, read without wandb.

    file: ":W&B" | 0xBEE1 (2 bytes) | version (1), then blocks of 32 KiB (the first of them includes these 7 bytes)
    piece: CRC-32 (4) | length (2) | kind (1): whole, first, middle, last | data; zeros fill a block that has no room

The pieces make up ``Record`` messages; those with a history item are the rows that the run logged. One that spans
blocks waits until its last piece is there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tocsin.readers._decoder import Decoder
from tocsin.readers._fields import metrics_of, time_of
from tocsin.readers._protobuf import doubles, fields, signed
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector
from tocsin.readers.json_lines import parse

__all__ = ["Wandb"]

_MAGIC = b":W&B\xe1\xbe"
_START = 7
_BLOCK = 32768
_HEADER = 7
_MOST_PIECES = 2048
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# Fields of Record, HistoryRecord, HistoryStep, HistoryItem.
_HISTORY = 2
_ITEM, _STEP = 1, 2
_STEP_NUMBER = 1
_KEY, _NESTED_KEY, _NONE, _BOOLEAN, _INTEGER, _NUMBER, _JSON = 1, 2, 3, 4, 5, 6, 16
# wandb's own, beside the time: no metrics of the training.
_OWN = ("_step", "_timestamp", "_runtime", "_wandb")


class Piece(NamedTuple):
    """A piece of a record, and how many bytes it takes with its header."""

    kind: int
    data: bytes
    size: int
    sound: bool


class Wandb(Decoder):
    """Decodes one."""

    name = "wandb"

    def __init__(self, source: Source, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(source, state)
        self._buffer = b""
        self._position = self.offset
        self._open: list[bytes] = []

    @classmethod
    def fits(cls, head: bytes) -> bool:
        """Whether a file that begins with these bytes is one."""
        return head.startswith(_MAGIC)

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[Vector]:
        """See :meth:`Decoder.feed`."""
        self._buffer += data
        used = 0
        while True:
            skip = self._skip(self._position + used)
            if used + skip > len(self._buffer):
                break
            piece = self._piece(used + skip, self._position + used + skip)
            if piece is None:
                break
            used += skip + piece.size
            record = self._join(piece, self._position + used)
            if record is not None:
                begin, self.offset = self.offset, self._position + used
                yield from self._vectors(record, begin)
        self._buffer = self._buffer[used:]
        self._position += used
        if last and (self._open or self._buffer.strip(b"\0")):
            self.source.warn(f"{self.source.path}: ends in the middle of a record; left out")

    def _skip(self, position: int) -> int:
        """How many bytes before the next piece mean nothing."""
        if position == 0:
            return _START
        left = _BLOCK - position % _BLOCK
        return left if left < _HEADER else 0

    def _piece(self, at: int, position: int) -> Piece | None:
        """The piece that begins there in the buffer; None if it isn't complete."""
        head = self._buffer[at : at + _HEADER]
        if len(head) < _HEADER:
            return None
        checksum, size, kind = struct.unpack("<IHB", head)
        room = _BLOCK - position % _BLOCK - _HEADER
        if size > room or not _WHOLE <= kind <= _LAST:
            # Damaged: on with the next block, where a piece begins for sure.
            return Piece(kind, b"", _HEADER + room, sound=False) if len(self._buffer) >= at + _HEADER + room else None
        data = self._buffer[at + _HEADER : at + _HEADER + size]
        if len(data) < size:
            return None
        return Piece(kind, data, _HEADER + size, sound=zlib.crc32(head[6:] + data) == checksum)

    def _join(self, piece: Piece, end: int) -> bytes | None:
        """The record that the piece completes; None if it doesn't."""
        fits = bool(self._open) == (piece.kind in {_MIDDLE, _LAST})
        if not piece.sound or not fits:
            self._open.clear()
            self.source.wrong(None, f"is damaged before byte {end}")
            if not piece.sound or piece.kind in {_MIDDLE, _LAST}:
                self.offset = end
                return None
        self._open.append(piece.data)
        if len(self._open) > _MOST_PIECES:
            self._open.clear()
            self.source.wrong(None, f"has a record of more than {_MOST_PIECES} blocks before byte {end}")
        if piece.kind not in {_WHOLE, _LAST}:
            return None
        record = b"".join(self._open)
        self._open.clear()
        return record

    def _vectors(self, record: bytes, begin: int) -> Iterator[Vector]:
        try:
            row = _history(record)
            step = row.get("_step") if row else None
        except ValueError as error:
            self.source.wrong(None, f"has a damaged record at byte {begin}: {error}")
            return
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            return
        metrics, skipped = metrics_of(row, _OWN)
        self.source.skipped += skipped
        if metrics:
            time, _ = time_of(row)
            yield Vector(step, metrics, time, None, f"{begin:x}-{zlib.crc32(record):08x}")


def _history(record: bytes) -> dict[str, object]:
    """The row of a record that has one, else nothing."""
    row: dict[str, object] = {}
    for history in fields(record):
        if history.number != _HISTORY:
            continue
        for field in fields(history.data):
            if field.number == _ITEM:
                name, value = _item(field.data)
                row[name] = value
            elif field.number == _STEP:
                for number in fields(field.data):
                    if number.number == _STEP_NUMBER:
                        row.setdefault("_step", signed(number.integer))
    return row


def _item(data: bytes) -> tuple[str, object]:
    key, nested = "", []
    value: object = "no value"
    for field in fields(data):
        if field.number == _KEY:
            key = field.data.decode("utf-8", errors="replace")
        elif field.number == _NESTED_KEY:
            nested.append(field.data.decode("utf-8", errors="replace"))
        elif field.number == _JSON:
            value = parse(field.data.decode("utf-8", errors="replace"))
        elif field.number in {_BOOLEAN, _INTEGER}:
            value = signed(field.integer)
        elif field.number == _NUMBER:
            value = next(iter(doubles(field.data)), value)
        elif field.number == _NONE:
            value = None
    return "/".join(nested) or key, value
