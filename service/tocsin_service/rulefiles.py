"""Rule files and files of rule tests on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tocsin_detectors.rulefile import RuleFileError, load
from tocsin_detectors.rules import RuleSet, shipped_rules
from tocsin_detectors.ruletest import read_suite, run_suite

__all__ = ["RulesError", "read_rules", "run_tests"]


class RulesError(ValueError):
    """A file can't be read, or not as what it should be; the message tells every problem with its file and line."""


def read_rules(path: str | Path | None) -> RuleSet:
    """The rule set that a rule file makes; the shipped rules without one.

    Raises:
        RulesError: see there.
    """
    if path is None:
        return shipped_rules()
    try:
        return load(_read(Path(path)), str(path))
    except RuleFileError as error:
        raise RulesError(str(error)) from None


def run_tests(path: Path) -> Iterator[tuple[bool, str]]:
    """Run a file of rule tests: for each case whether it passed, and the lines to print.

    A rule file that it names is looked for beside it.

    Raises:
        RulesError: the file of tests, or its rule file, is broken.
    """
    try:
        suite = read_suite(_read(path), str(path))
        rules = read_rules(None if suite.rules is None else path.parent / suite.rules)
        outcomes = run_suite(suite, rules)
    except RuleFileError as error:
        raise RulesError(str(error)) from None
    for outcome in outcomes:
        lines = [f"{'ok  ' if outcome.passed else 'FAIL'} {path}:{outcome.case.line}: {outcome.case.name}"]
        lines += [f"       {difference}" for difference in outcome.differences]
        yield outcome.passed, "\n".join(lines)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RulesError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RulesError(f"{path}: is no UTF-8 text (byte {error.start}); save it as UTF-8") from None
