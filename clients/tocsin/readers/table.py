"""CSV with a header, separated by commas, semicolons or tabs; an empty cell is a metric that the row doesn't have.

A last row with fewer cells than the header was cut off with its run. One that has them all is taken, with or without
a line end: whether its last number lacks digits can't be told.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain

from tocsin._numbers import number
from tocsin.readers import flat
from tocsin.readers._fields import Steps
from tocsin.readers._records import Record
from tocsin.readers._source import Line, Source
from tocsin.readers._vector import Vector

__all__ = ["vectors"]


def vectors(first: Line, rest: Iterator[Line], source: Source) -> Iterator[Vector]:
    """One vector for every row with a number in it, besides its step; ``first`` is the header.

    Raises:
        ReadError: the first line is no header, or a row has more or fewer cells than it.
    """
    rows = _rows(first, rest, source)
    header, _ = next(rows, ([], first))
    if all(_is_number(name) for name in header):
        raise source.error(first.number, "is neither JSON nor CSV with a header: the first line must name the columns")
    steps = Steps()
    steps.expect(header)
    return flat.vectors(_records(header, rows, source), source, steps)


def _rows(first: Line, rest: Iterator[Line], source: Source) -> Iterator[tuple[list[str], Line]]:
    """The stripped cells of each row that isn't blank, with the last line that it spans."""
    line = first

    def texts() -> Iterator[str]:
        nonlocal line
        for line in chain((first,), rest):
            yield line.text

    delimiter = max(",;\t", key=lambda mark: len(next(csv.reader([first.text], delimiter=mark))))
    try:
        for cells in csv.reader(texts(), delimiter=delimiter):
            if any(cell.strip() for cell in cells):
                yield [cell.strip() for cell in cells], line
    except csv.Error as error:
        raise source.error(line.number, f"is no CSV: {error}") from error


def _records(header: list[str], rows: Iterator[tuple[list[str], Line]], source: Source) -> Iterator[Record]:
    for cells, line in rows:
        # A resumed run that appends to its file writes the header again.
        if cells == header:
            continue
        if len(cells) != len(header):
            source.broken(line, f"has {len(cells)} cells where the header has {len(header)}")
            continue
        yield Record(line, {name: cell for name, cell in zip(header, cells, strict=True) if name and cell})


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True
