"""A log's lines, whatever the log is stored in, and what is said of the broken ones."""

from __future__ import annotations

import gzip
import io
import logging
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

__all__ = ["Line", "ReadError", "Source"]

_logger = logging.getLogger("tocsin.readers")
_GZIP = b"\x1f\x8b"


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
    """One line of a log: its number from 1, its text with the line end, and whether another follows."""

    number: int
    text: str
    last: bool


class Source:
    """An open log. A context manager: opens on entering, closes on leaving.

    Attributes:
        path: the log as it was named, "-" for standard input.
        skipped: how many values were no numbers.
    """

    def __init__(self, path: str, *, skip_broken: bool) -> None:
        self.path = path
        self.skipped = 0
        self._skip_broken = skip_broken

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            try:
                stored = opening.enter_context(_standard_input() if self.path == "-" else Path(self.path).open("rb"))
                packed = stored.peek(2)[:2] == _GZIP
            except OSError as error:
                raise self.error(None, f"can't be opened: {error.strerror}") from error
            unpacked = opening.enter_context(gzip.GzipFile(fileobj=stored)) if packed else stored
            # Whatever bytes a torn line ends with, they are not worth losing the lines before.
            text = io.TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace", newline="")
            self._text = opening.enter_context(text)
            self._opened = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def lines(self) -> Iterator[Line]:
        """All lines, blank ones too. A gzip file that ends early gives those that it still has."""
        number = 0
        before = ""
        while True:
            try:
                text = self._text.readline()
            except EOFError:
                _logger.warning("%s: ends in the middle of its gzip data", self.path)
                text = ""
            except (OSError, zlib.error) as error:
                raise self.error(number + 1, f"can't be read: {error}") from error
            if before:
                yield Line(number, before, last=not text)
            if not text:
                return
            number, before = number + 1, text

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
        _logger.warning("%s; left out", self.error(number, problem))

    def broken(self, line: Line, problem: str) -> None:
        """Tells of a row that was cut off: a warning if it is the last one, where a killed run leaves such.

        Raises:
            ReadError: it is another, and such are not to be skipped.
        """
        if line.last:
            _logger.warning("%s; left out as the torn last line", self.error(line.number, problem))
        else:
            self.wrong(line, problem)


def _standard_input() -> io.BufferedReader:
    """Standard input as bytes; closing it leaves the file open for others."""
    return open(0, "rb", closefd=False)
