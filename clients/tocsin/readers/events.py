"""TensorBoard's event files: TFRecords of ``Event`` messages, read without TensorFlow.

    record: length (8 bytes) | masked CRC-32C of it (4) | Event (length) | masked CRC-32C of it (4)

Writers log every scalar as an event of its own; events that follow each other at one step become one vector, with the
time of the last of them. Scalars stand as ``simple_value`` or as a tensor of one element; everything else (texts,
histograms, images, hyper-parameters) is passed over.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from tocsin._values import numbers
from tocsin.readers._crc32c import masked_crc32c
from tocsin.readers._decoder import Decoder
from tocsin.readers._fields import plausible
from tocsin.readers._protobuf import doubles, fields, floats, signed
from tocsin.readers._tensor import scalar_of
from tocsin.readers._vector import Vector

__all__ = ["Events"]

_HEADER = 12
_FOOTER = 4
_LARGEST_EVENT = 64 * 1024 * 1024
# An image's checksum would cost more than it is worth: nothing of it is read.
_LARGEST_CHECKED = 4096
_MOST_METRICS = 5000
# Fields of Event, Summary, Summary.Value.
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE = 1
_TAG, _SIMPLE, _TENSOR = 1, 2, 8


class Event(NamedTuple):
    """The scalars of one event; none for events of other kinds."""

    step: int
    time: float
    scalars: dict[str, float]


class Events(Decoder):
    """Decodes one event file."""

    name = "events"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._buffer = b""
        self._position = self.offset
        self._damaged = False
        self._begin = self.offset
        self._group = Event(0, 0.0, {})
        self._checksum = 0

    @classmethod
    def fits(cls, head: bytes) -> bool:
        """Whether a file that begins with these bytes is an event file."""
        return len(head) >= _HEADER and _is_sound(head[:8], head[8:_HEADER])

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[Vector]:
        """See :meth:`Decoder.feed`."""
        self._buffer += data
        used = 0
        while (payload := self._payload(used)) is not None:
            begin = self._position + used
            used += _HEADER + len(payload) + _FOOTER
            event = self._event(payload, begin)
            if event is not None:
                yield from self._take(event, payload, begin)
            if not self._group.scalars:
                self.offset = self._position + used
        self._buffer = self._buffer[used:]
        self._position += used
        if last:
            yield from self.flush()
            if self._buffer and not self._damaged:
                self.source.warn(f"{self.source.path}: ends in the middle of an event; left out")

    def flush(self) -> Iterator[Vector]:
        """The vector of the step that more events may come of."""
        if self._group.scalars:
            yield from self._end(self._position)

    def _payload(self, at: int) -> bytes | None:
        """The event that begins there in the buffer; None if it isn't complete, or never will be."""
        head = self._buffer[at : at + _HEADER]
        if self._damaged or len(head) < _HEADER:
            return None
        size = int.from_bytes(head[:8], "little")
        if size > _LARGEST_EVENT or not _is_sound(head[:8], head[8:]):
            self._damaged = True
            where = self._position + at
            self.source.wrong(None, f"is damaged at byte {where}: where the next event begins can't be told")
            return None
        payload = self._buffer[at + _HEADER : at + _HEADER + size + _FOOTER]
        return payload[:-_FOOTER] if len(payload) == size + _FOOTER else None

    def _event(self, payload: bytes, begin: int) -> Event | None:
        at = begin - self._position + _HEADER + len(payload)
        try:
            sound = len(payload) > _LARGEST_CHECKED or _is_sound(payload, self._buffer[at : at + _FOOTER])
            event = _read(payload) if sound else None
        except ValueError as error:
            self.source.wrong(None, f"has a damaged event at byte {begin}: {error}")
            return None
        if event is None:
            self.source.wrong(None, f"has a damaged event at byte {begin}: its checksum is wrong")
            return None
        if event.scalars and event.step < 0:
            self.source.wrong(None, f"has an event at the step {event.step} (byte {begin})")
            return None
        found, refused = numbers(dict(event.scalars))
        self.source.skipped += len(refused)
        return event._replace(scalars=found)

    def _take(self, event: Event, payload: bytes, begin: int) -> Iterator[Vector]:
        if not event.scalars:
            return
        group = self._group
        same = event.step == group.step and not group.scalars.keys() & event.scalars.keys()
        if group.scalars and not (same and len(group.scalars) < _MOST_METRICS):
            yield from self._end(begin)
        if not self._group.scalars:
            self._begin, self._checksum = begin, 0
        self._checksum = zlib.crc32(payload, self._checksum)
        self._group = Event(event.step, event.time, {**self._group.scalars, **event.scalars})

    def _end(self, offset: int) -> Iterator[Vector]:
        group, self._group = self._group, Event(0, 0.0, {})
        self.offset = offset
        mark = f"{self._begin:x}-{self._checksum:08x}"
        yield Vector(group.step, group.scalars, plausible(group.time), None, mark)


def _is_sound(data: bytes, checksum: bytes) -> bool:
    return masked_crc32c(data).to_bytes(4, "little") == checksum


def _read(payload: bytes) -> Event:
    step, time = 0, 0.0
    scalars: dict[str, float] = {}
    for field in fields(payload):
        if field.number == _WALL_TIME and len(field.data) == 8:
            [time] = doubles(field.data)
        elif field.number == _STEP:
            step = signed(field.integer)
        elif field.number == _SUMMARY:
            scalars.update(_scalars(field.data))
    return Event(step, time, scalars)


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    for value in fields(summary):
        if value.number != _VALUE:
            continue
        tag, number = "", None
        for field in fields(value.data):
            if field.number == _TAG:
                tag = field.data.decode("utf-8", errors="replace")
            elif field.number == _SIMPLE and len(field.data) == 4:
                [number] = floats(field.data)
            elif field.number == _TENSOR:
                number = scalar_of(field.data)
        if number is not None:
            yield tag, number
