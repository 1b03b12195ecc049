"""Text for a terminal: printable whatever was sent, and in tables that fit."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["CannotError", "columns", "printable", "say", "table"]

GAP = "  "
NARROWEST = 6  # columns of a cell that had to be cut
WIDE = 10_000  # columns of what isn't a terminal


class CannotError(Exception):
    """The command can't be done, for a reason that the user can mend."""


def printable(text: object) -> str:
    """Text without control characters: a run name must not be able to move the cursor or change colours."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def columns(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def say(*lines: str) -> None:
    """Prints lines, made printable."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], whole: Sequence[str] = ()) -> Iterator[str]:
    """Lines of a table that fits the terminal; where there is none, nothing is cut.

    Args:
        head: names of its columns.
        rows: cells, as many as there are names.
        whole: names of columns that are never cut, as somebody has to copy what stands there.
    """
    cells = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    room = (shutil.get_terminal_size((WIDE, 24)).columns or WIDE) - len(GAP) * (len(head) - 1)
    _shrink(widths, room, [number for number, name in enumerate(head) if name not in whole])
    for row in cells:
        yield GAP.join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _shrink(widths: list[int], room: int, cuttable: Sequence[int]) -> None:
    """Takes from the widest columns until all of them fit, or nothing more can be taken."""
    while (excess := sum(widths) - room) > 0:
        widest = max(cuttable, key=lambda number: widths[number])
        others = [widths[number] for number in cuttable if number != widest]
        target = max(NARROWEST, min(widths[widest] - 1, max([NARROWEST, *others])), widths[widest] - excess)
        if target >= widths[widest]:
            return
        widths[widest] = target


def _padded(text: str, width: int) -> str:
    if columns(text) <= width:
        return text + " " * (width - columns(text))
    cut = ""
    for char in text:
        if columns(cut + char) >= width:
            break
        cut += char
    return f"{cut}…{' ' * (width - columns(cut) - 1)}"
