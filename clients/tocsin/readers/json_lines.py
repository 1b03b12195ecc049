"""JSON lines: one object a line; what the objects look like is settled by the first of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from tocsin.readers import flat, jsonl, verl
from tocsin.readers._decoder import LineDecoder
from tocsin.readers._fields import Steps
from tocsin.readers._rows import Record
from tocsin.readers._source import Line, Source
from tocsin.readers._vector import Vector

__all__ = ["JsonLines", "parse", "row_format"]

# The flat format takes any object, so it comes last.
_FORMATS: Mapping[str, ModuleType] = {"jsonl": jsonl, "verl": verl, "flat": flat}


def row_format(data: Mapping[str, object]) -> str:
    """The name of the format of a log whose first object is ``data``."""
    return next(name for name, module in _FORMATS.items() if module.fits(data))


def parse(text: str) -> object:
    """A JSON value.

    Raises:
        ValueError: it is none.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except ValueError:
        return False


class JsonLines(LineDecoder):
    """Decodes them."""

    name = "json_lines"

    def __init__(self, source: Source, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(source, state)
        given = state or {}
        self._steps = Steps(given.get("steps"))
        self._format: ModuleType | None = None
        if given.get("rows") in _FORMATS:
            self._choose(given["rows"])

    def take(self, line: Line) -> Iterator[Vector]:
        """The vector of one line."""
        record = self._record(line)
        if record is not None:
            if self._format is None:
                self._choose(row_format(record.data))
            assert self._format is not None  # noqa: S101 - chosen just now
            vector = self._format.vector(record, self._steps, self.source)
            if vector is not None:
                yield vector
        self.taken(line)

    def flush(self) -> Iterator[Vector]:
        """The vector of a line without its end: an object that is whole can't go on."""
        line = self._lines.unfinished()
        if line is not None and _is_object(line.text):
            self._lines.take_unfinished()
            yield from self.take(line)

    def state(self) -> dict[str, Any]:
        """See :meth:`Decoder.state`."""
        rows = next((name for name, module in _FORMATS.items() if module is self._format), None)
        return {**super().state(), "rows": rows, "steps": self._steps.state()}

    def _choose(self, name: str) -> None:
        self._format = _FORMATS[name]
        self.framework = self._format.framework

    def _record(self, line: Line) -> Record | None:
        if not line.text.strip():
            return None
        try:
            data = parse(line.text)
        except ValueError as error:
            self.source.broken(line, f"is no JSON: {error}")
            return None
        if not isinstance(data, dict):
            self.source.broken(line, f"is a {type(data).__name__}, where an object was expected")
            return None
        return Record(line, data, line.mark)
