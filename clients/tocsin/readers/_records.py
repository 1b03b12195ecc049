"""JSON objects from JSON lines or from one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from tocsin.readers._source import Line, Source

__all__ = ["Record", "records"]


class Record(NamedTuple):
    """One JSON object of a log, with its line if it has one of its own."""

    line: Line | None
    data: dict[str, object]


def records(first: Line, rest: Iterator[Line], source: Source) -> Iterator[Record]:
    """The objects of a log that begins with the line ``first``.

    Raises:
        ReadError: a line (not the last), or the document, is no JSON.
    """
    try:
        start = _parse(first.text)
    except ValueError:
        yield from _document_or_lines(first, rest, source)
        return
    if isinstance(start, list):
        yield from _items(start, source)
        _nothing_more(rest, source)
    else:
        yield from _lines(chain((first,), rest), source)


def _document_or_lines(first: Line, rest: Iterator[Line], source: Source) -> Iterator[Record]:
    """The first line is no JSON: that of a document over several lines, or a broken one."""
    lines = [first, *rest]
    try:
        document = _parse("".join(line.text for line in lines))
    except ValueError as error:
        if not any(_is_object(line.text) for line in lines[1:3]):
            line = first.number + getattr(error, "lineno", 1) - 1
            raise source.error(line, f"is neither JSON lines nor one JSON document: {error}") from error
        yield from _lines(iter(lines), source)
        return
    if isinstance(document, list):
        yield from _items(document, source)
    elif isinstance(document, dict):
        yield Record(None, document)


def _lines(lines: Iterator[Line], source: Source) -> Iterator[Record]:
    for line in lines:
        if not line.text.strip():
            continue
        try:
            data = _parse(line.text)
        except ValueError as error:
            source.broken(line, f"is no JSON: {error}")
            continue
        if isinstance(data, dict):
            yield Record(line, data)
        else:
            source.broken(line, f"is a {type(data).__name__}, where an object was expected")


def _items(items: list[object], source: Source) -> Iterator[Record]:
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise source.error(None, f"item {index} of its list is a {type(item).__name__}, not an object")
        yield Record(None, item)


def _nothing_more(rest: Iterator[Line], source: Source) -> None:
    for line in rest:
        if line.text.strip():
            source.broken(line, "follows the JSON list that is the log")


def _is_object(text: str) -> bool:
    try:
        return isinstance(_parse(text), dict)
    except ValueError:
        return False


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
