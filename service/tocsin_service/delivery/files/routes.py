"""Routes as a file writes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from tocsin_detectors.alerts import Severity
from tocsin_detectors.rulefile.problems import nearest
from tocsin_detectors.rulefile.tree import Mapping as Tree
from tocsin_detectors.rulefile.tree import Node
from tocsin_detectors.rulefile.values import Reading
from tocsin_service.delivery.routing import Route
from tocsin_service.silences import Matchers

__all__ = ["read_routes"]


def read_routes(reading: Reading, nodes: Sequence[Node], names: Collection[str]) -> Iterator[Route]:
    """The routes to receivers of those names; what is wrong is noted."""
    last: int | None = None  # line of the route behind which no other is looked at
    for number, node in enumerate(nodes, 1):
        what = f"route {number}"
        written = reading.mapping(node, what, ("match", "to", "continue"))
        if written is None:
            continue
        if last is not None:
            reading.problems.add(
                written.line,
                f"{what} is never looked at: the one in line {last} takes everything; put it before that",
            )
        noted = len(reading.problems.found)
        matchers = _matchers(reading, written.entries.get("match"), f"{what}: match")
        goes_on = False
        if "continue" in written.entries:
            goes_on = bool(reading.value(written.entries["continue"], bool, f"{what}: continue"))
        if matchers == Matchers() and not goes_on and len(reading.problems.found) == noted:
            last = written.line
        yield Route(matchers, _to(reading, written, what, names), goes_on)


def _matchers(reading: Reading, node: Node | None, what: str) -> Matchers:
    written = None if node is None else reading.mapping(node, what, ("run", "rule", "severity", "labels"))
    if written is None:
        return Matchers()
    patterns = {key: written.entries[key] for key in ("run", "rule") if key in written.entries}
    severity = None
    if "severity" in written.entries:  # an incident that is only info is told to nobody
        severity = reading.value(written.entries["severity"], Literal["warning", "critical"], f"{what}: severity")
    labels = reading.mapping(written.entries["labels"], f"{what}: labels") if "labels" in written.entries else None
    return Matchers(
        **{key: reading.value(value, str, f"{what}: {key}") or "" for key, value in patterns.items()},
        severity=None if severity is None else Severity(severity),
        labels={
            label: reading.value(value, str, f"{what}: label {label}") or ""
            for label, value in ({} if labels is None else labels.entries).items()
        },
    )


def _to(reading: Reading, written: Tree, what: str, names: Collection[str]) -> tuple[str, ...]:
    node = written.entries.get("to")
    if node is None:
        reading.problems.add(written.line, f"{what} needs `to`, names of receivers; `to: []` tells nobody")
        return ()
    to: tuple[str, ...] = reading.value(node, tuple[str, ...], f"{what}: to") or ()
    for name in to:
        if name not in names:
            known = f"; {nearest(name, names)}" if names else ""
            reading.problems.add(node.line, f"{what}: no receiver is called {name[:60]!r}{known}")
    return to
