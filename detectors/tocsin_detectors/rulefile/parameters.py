"""The tests of a rule as a file writes them: an algorithm, its parameters, the conditions under which it counts."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingLike
from dataclasses import fields
from typing import Any, get_type_hints

from tocsin_detectors import algorithms
from tocsin_detectors.algorithms import Test
from tocsin_detectors.rulefile.problems import nearest
from tocsin_detectors.rulefile.tree import Mapping, Node, Scalar, Sequence
from tocsin_detectors.rulefile.values import Reading
from tocsin_detectors.rules import Condition, Guarded

__all__ = ["ALGORITHMS", "algorithm_name", "read_tests"]

MOST_TESTS = 16


def algorithm_name(algorithm: type[Test]) -> str:
    """An algorithm's name in a rule file: its class's name in snake case."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", algorithm.__name__).lower()


ALGORITHMS: MappingLike[str, type[Test]] = {
    algorithm_name(kind): kind
    for name in algorithms.__all__
    if isinstance(kind := getattr(algorithms, name), type) and issubclass(kind, Test) and kind is not Test
}


def read_tests(
    reading: Reading, node: Node, rule: str, base: tuple[Test | Guarded, ...]
) -> tuple[Test | Guarded, ...] | None:
    """A rule's tests: a list replaces them all, a mapping from their numbers changes some of their parameters.

    Args:
        reading: notes what is wrong.
        node: what was written.
        rule: the rule's name.
        base: the tests of the shipped rule of that name; empty for an own rule.
    """
    if isinstance(node, Sequence):
        return _read_list(reading, node, rule)
    if not base:
        reading.problems.add(node.line, f"{rule}: tests has to be a list of tests: - {{algorithm: bound, above: 1}}")
        return None
    mapping = reading.mapping(node, f"{rule}: tests")
    if mapping is None:
        return None
    tests = list(base)
    for number, change in mapping.entries.items():
        line = mapping.lines[number]
        if number not in map(str, range(1, len(base) + 1)):
            numbers = "1" if len(base) == 1 else f"1 to {len(base)}"
            reading.problems.add(
                line, f"{rule} has no test {number!r}; its tests have the numbers {numbers} (see `tocsin rules {rule}`)"
            )
            continue
        old = base[int(number) - 1]
        test, conditions = (old.test, old.conditions) if isinstance(old, Guarded) else (old, ())
        written = reading.mapping(change, f"{rule}: test {number}")
        if written is not None and "algorithm" in written.entries:
            reading.problems.add(
                written.lines["algorithm"],
                f"{rule}: to use another algorithm write tests as a list, which replaces all",
            )
        elif written is not None:
            tests[int(number) - 1] = _read_test(reading, written, rule, test, conditions) or old
    return tuple(tests)


def _read_list(reading: Reading, node: Sequence, rule: str) -> tuple[Test | Guarded, ...] | None:
    if not 1 <= len(node.items) <= MOST_TESTS:
        reading.problems.add(node.line, f"{rule}: tests has to have 1 to {MOST_TESTS} of them")
        return None
    tests: list[Test | Guarded] = []
    for item in node.items:
        written = reading.mapping(item, f"{rule}: a test")
        if written is None:
            continue
        kind = written.entries.get("algorithm")
        if kind is None:
            reading.problems.add(written.line, f"{rule}: a test needs `algorithm`, one of {', '.join(ALGORITHMS)}")
        elif not isinstance(kind, Scalar) or kind.text not in ALGORITHMS:
            said = kind.text if isinstance(kind, Scalar) else "that"
            reading.problems.add(kind.line, f"{rule}: no algorithm is called {said!r}; {nearest(said, ALGORITHMS)}")
        elif (test := _read_test(reading, written, rule, ALGORITHMS[kind.text], ())) is not None:
            tests.append(test)
    return tuple(tests) if len(tests) == len(node.items) else None


def _read_test(
    reading: Reading, written: Mapping, rule: str, base: Test | type[Test], conditions: tuple[Condition, ...]
) -> Test | Guarded | None:
    """A test with the parameters that were written; the others are the base's, or the defaults."""
    kind = base if isinstance(base, type) else type(base)
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    reading.mapping(written, f"{rule}: {algorithm_name(kind)}", {*names, "algorithm", "when"})
    before = {} if isinstance(base, type) else {name: getattr(base, name) for name in names}
    noted = len(reading.problems.found)
    given = {
        name: reading.value(written.entries[name], hints[name], f"{rule}: {name}")
        for name in names
        if name in written.entries
    }
    if "when" in written.entries:
        conditions = reading.value(written.entries["when"], tuple[Condition, ...], f"{rule}: when") or ()
    if len(reading.problems.found) > noted:
        return None
    try:
        test = kind(**{**before, **given})
    except ValueError as error:
        name = _culprit(kind, before, given)
        where = f"{name}: {given[name]!r:.40} doesn't fit ({_describe(kind, name)}): " if name else ""
        reading.problems.add(written.lines[name] if name else written.line, f"{rule}: {where}{error}")
        return None
    return Guarded(test, conditions) if conditions else test


def _culprit(kind: type[Test], before: dict[str, Any], given: dict[str, Any]) -> str | None:
    """The parameter without which the others would do."""
    for name in given:
        try:
            kind(**{**before, **{other: value for other, value in given.items() if other != name}})
        except ValueError:
            continue
        return name
    return None


def _describe(kind: type[Test], name: str) -> str:
    """What the algorithm's own documentation says of a parameter."""
    found = re.search(rf"^ +(?:\w+, )*{name}(?:, \w+)*: (.+(?:\n {{9,}}.+)*)", kind.__doc__ or "", re.MULTILINE)
    return " ".join(found[1].split()).rstrip(".") if found else algorithm_name(kind)
