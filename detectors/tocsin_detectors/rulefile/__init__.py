"""Rule files: a site's own thresholds and rules, in YAML. Text in, rule set out; docs/rules.md has the schema."""

from __future__ import annotations

from collections.abc import Iterable

from tocsin_detectors.rulefile.problems import Problem, Problems, RuleFileError, nearest
from tocsin_detectors.rulefile.rule import RuleReader
from tocsin_detectors.rulefile.tree import Mapping, Node, Scalar, read_tree
from tocsin_detectors.rulefile.values import Reading
from tocsin_detectors.rules import Rule, RuleSet, shipped_rules
from tocsin_detectors.rules.incident import MODEL_COLLAPSE

__all__ = ["Problem", "RuleFileError", "load"]

MOST_RULES = 500
KEYS = ("version", "off", "rules")


def load(text: str, source: str = "rules.yaml") -> RuleSet:
    """The shipped rules with the changes and the additions that a rule file makes.

    Args:
        text: of the file.
        source: the file's name, for messages.

    Raises:
        RuleFileError: something in it can't be read or doesn't fit; it lists everything, each with its line.
    """
    problems = Problems(source)
    reading = Reading(problems)
    tree = read_tree(text, problems)
    root = None if tree is None else reading.mapping(tree, "a rule file", KEYS)
    if root is None:
        problems.settle()
        return shipped_rules()
    reading.version(root)
    off = _read_off(reading, root)
    written = _read_rules(reading, root, off, source)
    problems.settle()
    kept = (written.pop(rule.name, rule) for rule in shipped_rules() if rule.name not in off)
    return RuleSet([*kept, *written.values()])


def _read_off(reading: Reading, root: Mapping) -> frozenset[str]:
    names: set[str] = set()
    for item in _items(reading, root.entries.get("off")):
        name = item.text if isinstance(item, Scalar) else ""
        if name not in shipped_rules():
            reading.problems.add(
                item.line, f"off: no shipped rule is called {name!r}; {nearest(name, _names(shipped_rules()))}"
            )
        elif name == MODEL_COLLAPSE.name:
            reading.problems.add(
                item.line,
                f"off: {name} is what incidents become when signs come together; "
                "to leave a rule out of it give that rule `collapse: false`",
            )
        names.add(name)
    return frozenset(names)


def _read_rules(reading: Reading, root: Mapping, off: frozenset[str], source: str) -> dict[str, Rule]:
    node = root.entries.get("rules")
    mapping = None if node is None or _is_nothing(node) else reading.mapping(node, "rules")
    if mapping is None:
        return {}
    if len(mapping.entries) > MOST_RULES:
        reading.problems.add(mapping.line, f"rules: {len(mapping.entries)} of them; at most {MOST_RULES} are read")
        return {}
    reader = RuleReader(reading, source, mapping)
    rules: dict[str, Rule] = {}
    for name in mapping.entries:
        if name in off:
            reading.problems.add(mapping.lines[name], f"{name} is turned off above and changed here; do one of both")
        rule = reader.read(name)
        if rule is not None:
            rules[name] = rule
    return rules


def _items(reading: Reading, node: Node | None) -> tuple[Node, ...]:
    return () if node is None or _is_nothing(node) else reading.sequence(node, "off")


def _is_nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _names(rules: Iterable[Rule]) -> list[str]:
    return [rule.name for rule in rules]
