"""Problems of a file that a person wrote: where, what is wrong, what to write instead. All of them, not the first."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

__all__ = ["Problem", "Problems", "RuleFileError", "nearest"]

MOST = 100  # problems told; a file with more has one cause


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend.

    Attributes:
        source: the file's name.
        line: counted from 1.
        message: what is wrong and what to write instead.
    """

    source: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.message}"


class RuleFileError(ValueError):
    """A rule file, or a file of rule tests, can't be used.

    Attributes:
        problems: everything that is wrong, in the order of the lines.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.source, problem.line)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass
class Problems:
    """Collects the problems of one file."""

    source: str
    found: list[Problem] = field(default_factory=list)

    def add(self, line: int, message: str) -> None:
        """Take note of a problem."""
        if len(self.found) < MOST:
            self.found.append(Problem(self.source, line, message))

    def settle(self) -> None:
        """All has been read.

        Raises:
            RuleFileError: there were problems.
        """
        if self.found:
            raise RuleFileError(self.found)


def nearest(word: str, known: Collection[str]) -> str:
    """What was probably meant, as the end of a sentence; a short list if nothing is near."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(sorted(known))}" if len(known) <= 40 else "`tocsin rules` lists them"
