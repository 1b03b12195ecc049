"""A log as it is named in messages, and what is said of its broken rows."""

from __future__ import annotations

import logging
from typing import NamedTuple

__all__ = ["Line", "ReadError", "Source"]

_logger = logging.getLogger("tocsin.readers")
_MOST_WARNINGS = 20


class ReadError(ValueError):
    """A log can't be read.

    Attributes:
        path: the log as it was named.
        line: where, from 1; None if it is the whole log.
    """

    def __init__(self, path: str, line: int | None, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")
        self.path = path
        self.line = line


class Line(NamedTuple):
    """One line of a log.

    Attributes:
        number: from 1.
        text: without the line end.
        begin: where it begins in the file, in bytes.
        end: where the next one begins.
        checksum: of its bytes.
        last: nothing follows it, and nothing will.
    """

    number: int
    text: str
    begin: int = 0
    end: int = 0
    checksum: int = 0
    last: bool = False

    @property
    def mark(self) -> str:
        """Tells this line from every other one of its file."""
        return f"{self.begin:x}-{self.checksum:08x}"


class Source:
    """What the readers of one log have in common.

    Attributes:
        path: the log as it was named, "-" for standard input.
        skipped: how many values were no numbers.
    """

    def __init__(self, path: str, *, skip_broken: bool) -> None:
        self.path = path
        self.skipped = 0
        self._skip_broken = skip_broken
        self._warnings = 0

    def error(self, line: int | None, problem: str) -> ReadError:
        """The error to raise at ``line``."""
        return ReadError("standard input" if self.path == "-" else self.path, line, problem)

    def wrong(self, line: Line | None, problem: str) -> None:
        """Tells of a row that is complete but makes no sense: a warning if such are to be skipped.

        Raises:
            ReadError: otherwise.
        """
        number = line.number if line else None
        if not self._skip_broken:
            raise self.error(number, f"{problem} (skip_broken=True leaves such rows out)")
        self.warn(f"{self.error(number, problem)}; left out")

    def broken(self, line: Line, problem: str) -> None:
        """Tells of a row that was cut off: a warning if it is the last one, where a killed run leaves such.

        Raises:
            ReadError: it is another, and such are not to be skipped.
        """
        if line.last:
            self.warn(f"{self.error(line.number, problem)}; left out as the torn last line")
        else:
            self.wrong(line, problem)

    def warn(self, text: str) -> None:
        """Logs a warning; of very many only the first."""
        self._warnings += 1
        if self._warnings <= _MOST_WARNINGS:
            _logger.warning("%s", text)
        if self._warnings == _MOST_WARNINGS:
            _logger.warning("%s: what else is wrong with it is not said any more", self.path)
