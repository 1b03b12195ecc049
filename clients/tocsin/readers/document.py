"""Logs that are one JSON document: a list of rows, ``trainer_state.json`` of Hugging Face trainers, or one object.

TRL, ms-swift, axolotl and Unsloth keep their rows in the ``log_history`` of a ``trainer_state.json``; rows of training
and of evaluation at one step stay apart.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tocsin.readers import flat
from tocsin.readers._decoder import Decoder
from tocsin.readers._fields import Steps
from tocsin.readers._lines import Lines, text_of
from tocsin.readers._rows import Record
from tocsin.readers._source import ReadError
from tocsin.readers._vector import Vector
from tocsin.readers.json_lines import _FORMATS, parse, row_format

__all__ = ["Document", "is_history"]

_HISTORY = "log_history"


def is_history(data: object) -> bool:
    """Whether an object is a ``trainer_state.json``."""
    return isinstance(data, dict) and isinstance(data.get(_HISTORY), list)


class Document(Decoder):
    """Decodes one, at its end: a document that grows is another one, and is to be read anew."""

    name = "document"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pieces: list[bytes] = []
        self._is_history = False
        self.offset = 0

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[Vector]:
        """See :meth:`Decoder.feed`."""
        self._pieces.append(data)
        if last:
            yield from self._vectors(b"".join(self._pieces))

    def _vectors(self, content: bytes) -> Iterator[Vector]:
        steps = Steps()
        form: ModuleType = flat
        for index, data in enumerate(self._rows(content)):
            if index == 0 and not self._is_history:
                form = _FORMATS[row_format(data)]
            checksum = zlib.crc32(json.dumps(data, sort_keys=True).encode())
            vector = form.vector(Record(None, data, f"{index:x}-{checksum:08x}"), steps, self.source)
            if vector is not None:
                yield vector

    def _rows(self, content: bytes) -> Iterator[dict[str, object]]:
        value = self._parse(content)
        where = "item {} of its list"
        if isinstance(value, dict) and is_history(value):
            self._is_history = True
            value, where = value[_HISTORY], _HISTORY + "[{}]"
        for index, row in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(row, dict):
                what = where.format(index) if isinstance(value, list) else "it"
                raise self.source.error(None, f"{what} is a {type(row).__name__}, not an object")
            yield row

    def _parse(self, content: bytes) -> object:
        text = text_of(content, 0)
        try:
            return parse(text)
        except ValueError as error:
            problem = self._problem(text, error)
        lines = list(Lines(self.source).feed(content, last=True))
        first = next((line for line in lines if line.text.strip()), None)
        try:
            value = parse(first.text) if first else None
        except ValueError:
            raise problem from None
        if not isinstance(value, list) or first is None:
            raise problem
        for line in lines[first.number :]:
            if line.text.strip():
                self.source.broken(line, "follows the JSON list that is the log")
        return value

    def _problem(self, text: str, error: ValueError) -> ReadError:
        before = len(text) - len(text.lstrip())
        line = getattr(error, "lineno", 1 + text[:before].count("\n"))
        return self.source.error(line, f"is neither JSON lines nor one JSON document: {error}")
