"""Files of receivers: who can be told, how each wants it, and who is told of what. docs/receivers.md has the schema."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from tocsin_detectors.rulefile.problems import Problem, Problems, RuleFileError
from tocsin_service.delivery import Receiver
from tocsin_service.delivery.files.plan import Plan
from tocsin_service.delivery.files.reading import read
from tocsin_service.delivery.making import Described, Surroundings, make

__all__ = ["Plan", "ReceiversError", "make_receiver", "read_plan"]


class ReceiversError(ValueError):
    """A file of receivers can't be used; the message tells every problem with its line and what to write instead."""


def read_plan(path: Path, made: Collection[str] = (), others: Collection[str] = ()) -> Plan:
    """The receivers and routes that a file describes. Files with secrets aren't read yet.

    Args:
        path: of the file; the files with secrets that it names are looked for beside it.
        made: names of receivers that there are anyway.
        others: names of receivers that there may be.

    Raises:
        ReceiversError: see there.
    """
    problems = Problems(str(path))
    try:
        plan = read(path.read_text(encoding="utf-8"), problems, path.parent, made, others)
        problems.settle()
    except OSError as error:
        raise ReceiversError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ReceiversError(f"{path}: is no UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except RuleFileError as error:
        raise ReceiversError(str(error)) from None
    return plan


def make_receiver(described: Described, around: Surroundings, path: Path | None) -> Receiver:
    """The receiver that ``path`` describes, or the settings if it has no line there.

    Raises:
        ReceiversError: a file with a secret can't be read, or holds something else.
    """
    try:
        return make(described, around)
    except ValueError as error:
        message = f"{described.name}: {error}"
        raise ReceiversError(
            message if described.line is None else str(Problem(str(path), described.line, message))
        ) from None
