"""CSV with a header, separated by commas, semicolons or tabs; an empty cell is a metric that the row doesn't have.

A last row with fewer cells than the header was cut off with its run. One that has them all is taken, with or without
a line end: whether its last number lacks digits can't be told.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any

from tocsin._numbers import number
from tocsin.readers import flat
from tocsin.readers._decoder import LineDecoder
from tocsin.readers._fields import Steps
from tocsin.readers._rows import Record
from tocsin.readers._source import Line, Source
from tocsin.readers._vector import Vector

__all__ = ["Table", "cells_of", "is_number"]

_MOST_LINES = 100
_UNFINISHED = "unexpected end of data"


def cells_of(text: str, delimiter: str | None = None) -> list[str]:
    """The cells of a header, by the separator that gives most of them unless told."""
    if delimiter is None:
        return max((cells_of(text, mark) for mark in ",;\t"), key=len)
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return []


def is_number(text: str) -> bool:
    """Whether a cell is a number, in any spelling."""
    try:
        number(text)
    except ValueError:
        return False
    return True


class Table(LineDecoder):
    """Decodes it. A quoted cell may hold line ends, so a row may span lines."""

    name = "table"

    def __init__(self, source: Source, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(source, state)
        given = state or {}
        self._header: list[str] = given.get("header", [])
        self._delimiter: str = given.get("delimiter", ",")
        self._steps = Steps(given.get("steps"))
        self._open: list[Line] = []

    def take(self, line: Line) -> Iterator[Vector]:
        """The vector of the row that ends with this line, if one does."""
        self._open.append(line)
        if not self._header and line.text.strip():
            self._delimiter = max(",;\t", key=lambda mark: len(cells_of(line.text, mark)))
        cells = self._cells()
        if cells is None:
            return
        lines, self._open = self._open, []
        if any(cells):
            yield from self._row(cells, lines[0], line)
        self.taken(line)

    def state(self) -> dict[str, Any]:
        """See :meth:`Decoder.state`."""
        known = {"header": self._header, "delimiter": self._delimiter, "steps": self._steps.state()}
        return {**super().state(), **known}

    def _cells(self) -> list[str] | None:
        """The stripped cells of the open lines; None if a quoted cell isn't closed yet."""
        last = self._open[-1]
        texts = [line.text + "\n" for line in self._open[:-1]] + [last.text]
        patient = not last.last and len(self._open) < _MOST_LINES
        try:
            rows = list(csv.reader(texts, delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            if patient and _UNFINISHED in str(error):
                return None
            rows = self._forgiving(texts, last)
        return [cell.strip() for row in rows[:1] for cell in row]

    def _forgiving(self, texts: list[str], last: Line) -> list[list[str]]:
        try:
            return list(csv.reader(texts, delimiter=self._delimiter))
        except csv.Error as error:
            self.source.wrong(last, f"is no CSV: {error}")
            return []

    def _row(self, cells: list[str], first: Line, line: Line) -> Iterator[Vector]:
        if not self._header:
            if all(is_number(name) for name in cells):
                problem = "is neither JSON nor CSV with a header: the first line must name the columns"
                raise self.source.error(line.number, problem)
            self._header = cells
            self._steps.expect(cells)
            return
        # A resumed run that appends to its file writes the header again.
        if cells == self._header:
            return
        if len(cells) != len(self._header):
            self.source.broken(line, f"has {len(cells)} cells where the header has {len(self._header)}")
            return
        named = {name: cell for name, cell in zip(self._header, cells, strict=True) if name and cell}
        vector = flat.vector(Record(line, dict(named), first.mark), self._steps, self.source)
        if vector is not None:
            yield vector
