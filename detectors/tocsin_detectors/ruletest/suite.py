"""A file of rule tests, read: what runs go through and what is to be said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingLike
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from tocsin_detectors.alerts import Severity
from tocsin_detectors.entries import RunConfig
from tocsin_detectors.rulefile.problems import Problems
from tocsin_detectors.rulefile.tree import Mapping, Node, Scalar, read_tree
from tocsin_detectors.rulefile.values import Reading
from tocsin_detectors.ruletest.notation import NotationError, Pattern

__all__ = ["ALL", "Case", "Expectation", "Span", "Suite", "read_suite"]

MOST_CASES = 500
MOST_SERIES = 100
MOST_VALUES = 2_000_000  # of all series of a file
LARGEST_STEP = 2**53
ALL = "all"
CASE_KEYS = ("name", "config", "changes", "seed", "steps", "series", "expect", "quiet")
EXPECT_KEYS = ("rule", "incident", "metric", "members", "severity", "fires", "resolved")
CONFIG_KEYS = tuple(one.name for one in fields(RunConfig) if one.name not in {"labels", "link"})
LARGEST_SETTING = 1_000_000_000
SPAN = re.compile(r"(?:(?P<compare><=|>=)\s*)?(?P<low>\d{1,15})(?:\s*\.\.\s*(?P<high>\d{1,15}))?")


@dataclass(frozen=True, slots=True)
class Span:
    """Steps, both ends counted."""

    low: int
    high: int
    text: str

    def __contains__(self, step: object) -> bool:
        return isinstance(step, int) and self.low <= step <= self.high

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Expectation:
    """An alert, or an incident, that has to come.

    Attributes:
        line: where it stands.
        rule: the rule's name.
        incident: an incident of this rule is meant, not an alert.
        metric: canonical name of the alert's metric; None: any.
        members: rules that the incident has to have among its alerts.
        severity: at its highest; None: any.
        fires: when it begins (an incident: when it becomes one of this rule).
        resolved: when it ends; None: not asked.
        never: it must not end.
    """

    line: int
    rule: str
    incident: bool = False
    metric: str | None = None
    members: tuple[str, ...] = ()
    severity: Severity | None = None
    fires: Span | None = None
    resolved: Span | None = None
    never: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One run and what is to be said of it.

    Attributes:
        name: a sentence.
        line: where it begins.
        config: what is known of the run from the start.
        changes: what becomes known of it right before a step.
        steps: the step number of every row.
        series: value of every metric at every row; None: absent.
        expect: what has to come.
        quiet: rules that must say nothing beside that; empty: not asked.
        all_quiet: no rule may.
    """

    name: str
    line: int
    config: RunConfig
    changes: MappingLike[int, RunConfig]
    steps: tuple[int, ...]
    series: MappingLike[str, tuple[float | None, ...]]
    expect: tuple[Expectation, ...]
    quiet: frozenset[str]
    all_quiet: bool

    def strictly(self) -> Case:
        """The case with nothing allowed beside what it expects."""
        return replace(self, all_quiet=True)


@dataclass(frozen=True, slots=True)
class Suite:
    """A file of rule tests.

    Attributes:
        source: its name.
        rules: path of the rule file to test, as written; None: the shipped rules.
    """

    source: str
    rules: str | None
    cases: tuple[Case, ...]


def read_suite(text: str, source: str) -> Suite:
    """The cases of a file of rule tests.

    Args:
        text: of the file.
        source: the file's name, for messages.

    Raises:
        RuleFileError: something in it can't be read; it lists everything, each with its line.
    """
    problems = Problems(source)
    reading = Reading(problems)
    tree = read_tree(text, problems)
    root = None if tree is None else reading.mapping(tree, "a file of rule tests", ("version", "rules", "cases"))
    cases: list[Case] = []
    rules = None
    if root is not None:
        reading.version(root)
        if (node := root.entries.get("rules")) is not None:
            rules = reading.value(node, str, "rules")
        if (node := root.entries.get("cases")) is None:
            problems.add(root.line, "`cases` is missing: a list of cases, each with name, series, expect or quiet")
        else:
            items = reading.sequence(node, "cases")
            if not 1 <= len(items) <= MOST_CASES:
                problems.add(node.line, f"cases: {len(items)} of them; a file has 1 to {MOST_CASES}")
            reader = _CaseReader(reading)
            cases = [case for item in items[:MOST_CASES] if (case := reader.read(item)) is not None]
    problems.settle()
    return Suite(source, rules, tuple(cases))


class _CaseReader:
    def __init__(self, reading: Reading) -> None:
        self._reading, self._problems = reading, reading.problems
        self._values = 0
        hints = get_type_hints(RunConfig)
        self._settings = {key: hints[key] for key in CONFIG_KEYS}

    def read(self, node: Node) -> Case | None:
        """The case; None, with notes, if it can't be read."""
        written = self._reading.mapping(node, "a case", CASE_KEYS)
        if written is None:
            return None
        noted = len(self._problems.found)
        for key, why in (("name", "a sentence that says what happens"), ("series", "what the metrics do")):
            if key not in written.entries:
                self._problems.add(written.line, f"a case needs `{key}`: {why}")
        if "expect" not in written.entries and "quiet" not in written.entries:
            self._problems.add(written.line, "a case needs `expect` (what fires) or `quiet` (what doesn't)")
        name = self._get(written, "name", str) or ""
        config, changes = self._read_config(written.entries.get("config")), self._read_changes(written)
        steps, series = self._read_series(written)
        expect, quiet = self._read_expect(written), self._read_quiet(written)
        for step in sorted(changes.keys() - set(steps)):
            self._problems.add(written.lines["changes"], f"changes: no row has step {step}")
        if len(self._problems.found) > noted:
            return None
        return Case(name, written.line, config, changes, steps, series, expect, quiet - {ALL}, ALL in quiet)

    def _get(self, written: Mapping, key: str, hint: Any, most: int = LARGEST_SETTING) -> Any:
        node = written.entries.get(key)
        return None if node is None else self._reading.value(node, hint, key, most)

    def _read_config(self, node: Node | None) -> RunConfig:
        written = None if node is None else self._reading.mapping(node, "config", CONFIG_KEYS)
        if written is None:
            return RunConfig()
        given = {key: self._get(written, key, hint) for key, hint in self._settings.items()}
        return RunConfig(**{key: value for key, value in given.items() if value is not None})

    def _read_changes(self, written: Mapping) -> dict[int, RunConfig]:
        node = written.entries.get("changes")
        mapping = None if node is None else self._reading.mapping(node, "changes")
        changes = {}
        for step, config in mapping.entries.items() if mapping is not None else ():
            if step.isdecimal() and len(step) <= 15:
                changes[int(step)] = self._read_config(config)
            else:
                self._problems.add(config.line, f"changes: {step!r} is no step; write 60: {{temperature: 0.6}}")
        return changes

    def _read_series(self, written: Mapping) -> tuple[tuple[int, ...], dict[str, tuple[float | None, ...]]]:
        node = written.entries.get("series")
        mapping = None if node is None else self._reading.mapping(node, "series")
        if mapping is None:
            return (), {}
        if not 1 <= len(mapping.entries) <= MOST_SERIES:
            self._problems.add(mapping.line, f"series: a case has 1 to {MOST_SERIES} of them")
            return (), {}
        patterns = {name: self._read_pattern(item, name) for name, item in mapping.entries.items()}
        known = {name: pattern for name, pattern in patterns.items() if pattern is not None}
        rows = self._agree(mapping.line, known)
        self._values += rows * len(known)
        if self._values > MOST_VALUES:
            self._problems.add(mapping.line, f"series: the file has more than {MOST_VALUES} values by here; split it")
            return (), {}
        seed = self._get(written, "seed", int) or 0
        series = {name: tuple(pattern.values(rows, f"{seed} {name}")) for name, pattern in known.items() if rows}
        return self._read_steps(written, rows), series

    def _read_pattern(self, node: Node, what: str) -> Pattern | None:
        if not isinstance(node, Scalar) or not node.text:
            self._problems.add(node.line, f"{what} has to be a series such as 0.5~0.02x40")
            return None
        try:
            return Pattern(node.text)
        except NotationError as error:
            self._problems.add(node.line, f"{what}: {error}")
            return None

    def _agree(self, line: int, patterns: MappingLike[str, Pattern]) -> int:
        """The number of rows, on which all series have to agree; 0, with a note, if they don't."""
        lengths = {name: pattern.rows for name, pattern in patterns.items() if not pattern.open}
        rows = max(lengths.values(), default=0)
        if not lengths:
            self._problems.add(line, "series: one at least has to have a length of its own, without x*")
        elif len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {count}" for name, count in lengths.items())
            self._problems.add(line, f"series: all need the same number of values ({told}); fill up with _x10, or x*")
        elif any(pattern.rows > rows for pattern in patterns.values()):
            self._problems.add(line, f"series: one that ends with x* is longer than the others, which have {rows}")
        else:
            return rows
        return 0

    def _read_steps(self, written: Mapping, rows: int) -> tuple[int, ...]:
        node = written.entries.get("steps")
        if node is None:
            return tuple(range(1, rows + 1))
        pattern = self._read_pattern(node, "steps")
        if pattern is None or not rows:
            return ()
        if pattern.rows > rows or (pattern.rows < rows and not pattern.open):
            self._problems.add(node.line, f"steps: {pattern.rows} of them for {rows} rows; 1+1x* counts them all")
            return ()
        steps = [-1.0 if step is None else step for step in pattern.values(rows, "steps")]
        if not all(0 <= step < LARGEST_STEP and step == int(step) for step in steps):
            self._problems.add(node.line, "steps: have to be whole numbers from 0, such as 1000+5x*")
            return ()
        return tuple(map(int, steps))

    def _read_expect(self, written: Mapping) -> tuple[Expectation, ...]:
        node = written.entries.get("expect")
        items = () if node is None else self._reading.sequence(node, "expect")
        found = (self._read_expectation(item) for item in items)
        return tuple(expectation for expectation in found if expectation is not None)

    def _read_expectation(self, node: Node) -> Expectation | None:
        written = self._reading.mapping(node, "an expectation", EXPECT_KEYS)
        if written is None:
            return None
        incident = "incident" in written.entries
        if incident == ("rule" in written.entries):
            self._problems.add(written.line, "an expectation needs `rule` (an alert) or `incident`, one of them")
            return None
        for key in ("metric",) if incident else ("members",):
            if key in written.entries:
                self._problems.add(written.lines[key], f"{key} goes with {'rule' if incident else 'incident'}")
        resolved = written.entries.get("resolved")
        never = isinstance(resolved, Scalar) and resolved.text == "never"
        return Expectation(
            line=written.line,
            rule=self._get(written, "incident" if incident else "rule", str) or "",
            incident=incident,
            metric=self._get(written, "metric", str),
            members=self._get(written, "members", tuple[str, ...]) or (),
            severity=self._get(written, "severity", Severity),
            fires=self._read_span(written.entries.get("fires"), "fires", ""),
            resolved=None if never else self._read_span(resolved, "resolved", ", or never"),
            never=never,
        )

    def _read_span(self, node: Node | None, what: str, other: str) -> Span | None:
        if node is None:
            return None
        match = SPAN.fullmatch(node.text) if isinstance(node, Scalar) else None
        if match is None or (match["compare"] and match["high"]):
            self._problems.add(node.line, f"{what} has to be a step (63), '<= 64', '>= 60' or 61..64{other}")
            return None
        low = int(match["low"])
        high = int(match["high"] or low)
        if match["compare"]:
            low, high = (0, low) if match["compare"] == "<=" else (low, LARGEST_STEP)
        if high < low:
            self._problems.add(node.line, f"{what}: no step is in {match[0]}")
        return Span(low, high, match[0])

    def _read_quiet(self, written: Mapping) -> frozenset[str]:
        return self._get(written, "quiet", frozenset[str]) or frozenset()
