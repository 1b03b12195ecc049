"""The log of a process: lines that say when, and that nobody else can write.

Names come from clients. None of them can begin a line that looks like one of ours, or steer a terminal.
"""

from __future__ import annotations

import logging

__all__ = ["LineFormatter", "set_up"]

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """One line per record, without control characters; the lines of a traceback are indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class calls it so
        return _plain(super().formatMessage(record).rstrip())

    def formatException(self, ei: object) -> str:  # noqa: N802 - same
        return _indented(super().formatException(ei))  # type: ignore[arg-type] # as it was given

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - same
        return _indented(super().formatStack(stack_info))


def set_up() -> None:
    """Lets this process write its log to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _indented(text: str) -> str:
    return "\n".join(f"    {_plain(line)}" for line in text.splitlines())


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
