"""One rule of a rule file: what a shipped one becomes, or a new one."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any, get_type_hints

from tocsin_detectors.catalogue import Catalogue
from tocsin_detectors.entries import RunConfig
from tocsin_detectors.expressions import Expression, ExpressionError
from tocsin_detectors.rulefile.parameters import read_tests
from tocsin_detectors.rulefile.problems import nearest
from tocsin_detectors.rulefile.tree import Mapping, Node, Scalar
from tocsin_detectors.rulefile.values import Reading
from tocsin_detectors.rules import Rule, shipped_rules
from tocsin_detectors.rules.incident import MODEL_COLLAPSE
from tocsin_detectors.scale import Scale

__all__ = ["RuleReader"]

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
RESERVED = frozenset({"test"})  # `tocsin rules test` is a command
PLACEHOLDER = re.compile(r"\{\w+\}")
MOST_PLACEHOLDERS = 2  # each more makes matching a long name dearer by a power
LONGEST_NAME = 256
# The rest of a rule's fields is read by type.
SPECIAL = ("metrics", "expression", "scale", "tests")
NEEDED = ("severity", "title", "tests")
NUMBERS_OF_CONFIG = tuple(
    one.name for one in fields(RunConfig) if re.search(r"\b(?:int|float|bool)\b", str(one.type)) is not None
)


class RuleReader:
    """Reads the rules of one file.

    Args:
        reading: notes what is wrong.
        source: the file's name, told as the source of own rules.
        rules: all that the file says of rules.
    """

    def __init__(self, reading: Reading, source: str, rules: Mapping) -> None:
        self._reading, self._source, self._rules = reading, source, rules
        self._problems = reading.problems
        self._catalogue = Catalogue()
        self._names = frozenset({*(rule.name for rule in shipped_rules()), *rules.entries})
        hints = get_type_hints(Rule)
        self._plain = {
            one.name: hints[one.name] for one in fields(Rule) if one.name not in {*SPECIAL, "name", "source"}
        }
        self._families = {rule.family for rule in shipped_rules()} | {"custom"} | set(self._own_families())

    def read(self, name: str) -> Rule | None:
        """The rule of that name; None, with notes, if it can't be made."""
        node, line = self._rules.entries[name], self._rules.lines[name]
        base = next((rule for rule in shipped_rules() if rule.name == name), None)
        if base is MODEL_COLLAPSE:
            self._problems.add(line, f"{name} is what incidents become when signs come together; it can't be changed")
            return None
        written = self._reading.mapping(node, name, {*self._plain, *SPECIAL})
        if written is None or (base is None and not self._allow_new(name, line, written)):
            return None
        noted = len(self._problems.found)
        changes = self._read_plain(name, written)
        changes |= self._read_subject(name, written, base)
        if base is not None and not base.tests:
            self._refuse_of_engine(name, written)
        elif (tests := written.entries.get("tests")) is not None:
            changes["tests"] = read_tests(self._reading, tests, name, base.tests if base else ())
        if len(self._problems.found) > noted:
            return None
        return self._make(name, written, base, changes)

    def _make(self, name: str, written: Mapping, base: Rule | None, changes: dict[str, Any]) -> Rule | None:
        try:
            if base is not None:
                return replace(base, **changes)
            own = {"family": "custom", "meaning": "", "remedies": (), "source": f"rule file {self._source}"}
            return Rule(name=name, **{**own, **changes})
        except ValueError as error:
            line = next((written.lines[key] for key in ("signs", "among") if key in written.lines), written.line)
            self._problems.add(line, str(error))
            return None

    def _refuse_of_engine(self, name: str, written: Mapping) -> None:
        """The engine's own checks have no tests, and look at more than the metrics that a rule could name."""
        for key in ("tests", "metrics", "expression", "scale", "first_of", "skip_zero", "critical_with", "unless"):
            if key in written.entries:
                line = written.lines[key]
                self._problems.add(line, f"{name} is looked after by the engine itself: its {key} can't be changed")

    def _allow_new(self, name: str, line: int, written: Mapping) -> bool:
        missing = [key for key in NEEDED if key not in written.entries]
        if "metrics" not in written.entries and "expression" not in written.entries:
            missing.append("metrics (or expression)")
        if missing:
            self._problems.add(
                line,
                f"no shipped rule is called {name!r} ({nearest(name, self._names - {name})}), "
                f"and a new rule needs {', '.join(missing)}",
            )
        elif NAME.fullmatch(name) is None or name in RESERVED:
            self._problems.add(
                line, f"{name!r} is no name for a rule; use small letters, digits and _, like kl_too_high"
            )
        elif name in {metric for rule in shipped_rules() if rule.expression is not None for metric in rule.metrics}:
            self._problems.add(line, f"{name!r} is what a shipped rule calls its expression's value; use another name")
        else:
            return True
        return False

    def _read_plain(self, name: str, written: Mapping) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for key, hint in self._plain.items():
            node = written.entries.get(key)
            if node is not None:
                changes[key] = self._reading.value(node, hint, f"{name}: {key}")
        for key in ("recovery", "critical_after"):
            if changes.get(key) == 0:
                self._problems.add(written.lines[key], f"{name}: {key} has to be at least 1")
        for other in sorted(changes.get("unless") or ()):
            if other not in self._names or other == name:
                self._problems.add(
                    written.lines["unless"],
                    f"{name}: unless names other rules; {other!r}: {nearest(other, self._names)}",
                )
        for key in ("family", "critical_with"):
            given = changes.get(key) or ()
            for family in [given] if isinstance(given, str) else sorted(given):
                if family not in self._families:
                    self._problems.add(
                        written.lines[key], f"{name}: no family is called {family!r}; {nearest(family, self._families)}"
                    )
        return changes

    def _read_subject(self, name: str, written: Mapping, base: Rule | None) -> dict[str, Any]:
        """What the rule looks at: metrics, or an expression and its scale."""
        metrics, text, scale = (written.entries.get(key) for key in ("metrics", "expression", "scale"))
        changes: dict[str, Any] = {}
        computed = text is not None or (base is not None and base.expression is not None)
        if metrics is not None and computed:
            self._problems.add(
                metrics.line, f"{name}: a rule has metrics or an expression, not both; the expression names its metrics"
            )
        elif metrics is not None:
            changes["metrics"] = self._read_metrics(name, metrics, first_of=self._asks_first_of(written, base))
        elif base is not None and not computed and self._asks_first_of(written, base):
            self._check_first_of(name, written.line, base.metrics)
        if text is not None:
            changes["expression"] = self._read_expression(name, text)
            if base is None or base.expression is None:
                changes["metrics"] = (name,)
        if scale is not None and not computed:
            self._problems.add(
                scale.line,
                f"{name}: scale goes with an expression, since a metric has the catalogue's scale; "
                "to choose another, write expression: '{the/metric}'",
            )
        elif scale is not None:
            changes["scale"] = self._read_scale(name, scale)
        return changes

    def _read_metrics(self, name: str, node: Node, *, first_of: bool) -> tuple[str, ...]:
        metrics: tuple[str, ...] = self._reading.value(node, tuple[str, ...], f"{name}: metrics") or ()
        if not 1 <= len(metrics) <= 32:
            self._problems.add(node.line, f"{name}: metrics has to have 1 to 32 names")
        for metric in metrics:
            rest = PLACEHOLDER.sub("", metric)
            if "{" in rest or "}" in rest or len(PLACEHOLDER.findall(metric)) > MOST_PLACEHOLDERS:
                self._problems.add(
                    node.line,
                    f"{name}: braces in {metric!r} have to hold one word ({{name}} matches any text), "
                    f"{MOST_PLACEHOLDERS} times at most",
                )
            elif len(metric) > LONGEST_NAME:
                self._problems.add(node.line, f"{name}: the name of a metric has at most {LONGEST_NAME} characters")
            elif rest == metric:
                self._check_known(name, node.line, metric)
        if first_of:
            self._check_first_of(name, node.line, metrics)
        return metrics

    def _check_first_of(self, name: str, line: int, metrics: tuple[str, ...]) -> None:
        if any("{" in metric for metric in metrics):
            self._problems.add(line, f"{name}: first_of needs whole names; {{...}} can't be put in an order")

    def _check_known(self, name: str, line: int, metric: str) -> None:
        """A name that the catalogue reads as another metric would never be seen under its own."""
        canonical = self._catalogue.resolve(metric).canonical
        if canonical != metric:
            self._problems.add(line, f"{name}: {metric!r} is called {canonical!r} here; write that")

    def _read_expression(self, name: str, node: Node) -> Expression | None:
        text = self._reading.value(node, str, f"{name}: expression")
        if text is None:
            return None
        try:
            expression = Expression(text)
        except ExpressionError as error:
            self._problems.add(node.line, f"{name}: expression: {error}")
            return None
        metrics = [one for one in expression.names if not one.startswith("config.")]
        for one in expression.names:
            setting = one.removeprefix("config.")
            if setting == one:
                self._check_known(name, node.line, one)
            elif setting not in NUMBERS_OF_CONFIG:
                self._problems.add(
                    node.line,
                    f"{name}: the run's configuration has no number {setting!r}; {nearest(setting, NUMBERS_OF_CONFIG)}",
                )
        if not metrics:
            self._problems.add(node.line, f"{name}: the expression names no metric, so it would never be computed")
        return expression

    def _read_scale(self, name: str, node: Node) -> Scale | None:
        hints = get_type_hints(Scale)
        if isinstance(node, Scalar):
            kind = self._reading.value(node, hints["kind"], f"{name}: scale")
            return None if kind is None else Scale(kind)
        written = self._reading.mapping(node, f"{name}: scale", hints)
        if written is None:
            return None
        given = {
            key: self._reading.value(written.entries[key], hints[key], f"{name}: {key}")
            for key in hints
            if key in written.entries
        }
        linear = given.get("linear", 1.0)
        if linear is not None and linear <= 0:
            self._problems.add(written.lines["linear"], f"{name}: linear has to be more than 0")
        return Scale(**given)

    def _asks_first_of(self, written: Mapping, base: Rule | None) -> bool:
        node = written.entries.get("first_of")
        return node.value is True if isinstance(node, Scalar) else base is not None and base.first_of

    def _own_families(self) -> set[str]:
        """The families that new rules of this file found."""
        found = set()
        for name, node in self._rules.entries.items():
            family = node.entries.get("family") if isinstance(node, Mapping) and name not in shipped_rules() else None
            if isinstance(family, Scalar) and NAME.fullmatch(family.text):
                found.add(family.text)
        return found
