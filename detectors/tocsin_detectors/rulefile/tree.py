"""YAML text to a tree that knows its lines. A narrow reading of YAML: whatever could surprise is refused.

Plain words are read as YAML 1.2 does: `1e-3` is a number, `yes`, `no` and `off` are texts. Not allowed are aliases
(a few of them can unfold to billions of nodes), tags, duplicate keys and several documents. Size and depth are bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from tocsin_detectors.rulefile.problems import Problems

__all__ = ["Mapping", "Node", "Scalar", "Sequence", "describe", "read_tree"]

LONGEST = 512 * 1024  # characters of a file
DEEPEST = 12
WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": math.nan, ".NaN": math.nan, ".NAN": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf,
}  # fmt: skip
INTEGER = re.compile(r"[-+]?[0-9]{1,300}")
NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word: what it stands for, and as it was written."""

    line: int
    value: str | float | bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys (as written) with their lines and values."""

    line: int
    entries: dict[str, Node]
    lines: dict[str, int]


Node: TypeAlias = Scalar | Sequence | Mapping


def read_tree(text: str, problems: Problems) -> Node | None:
    """The tree of a file; None, with the reason in ``problems``, if it has none."""
    if len(text) > LONGEST:
        problems.add(1, f"the file has {len(text)} characters; at most {LONGEST} are read: split it")
        return None
    builder = _Builder(YAML(typ="safe", pure=True).parse(text), problems)
    try:
        return builder.document()
    except _RefusedError:
        pass
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f" {error.context}" if error.context else ""
        problems.add(mark.line + 1 if mark else 1, f"this is no YAML: {error.problem}{context}")
    except ReaderError as error:
        problems.add(
            text.count("\n", 0, error.position) + 1, "a control character can't stand in a YAML file; remove it"
        )
    except YAMLError as error:
        problems.add(1, f"this is no YAML: {error}")
    return None


def describe(node: Node) -> str:
    """What somebody wrote, for a message."""
    match node:
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=str() as text):
            return f"the text {text[:60]!r}"
        case Scalar():
            return node.text


class _RefusedError(Exception):
    """The file goes beyond what is read; the problem is noted."""


class _Builder:
    """Makes the tree from the parser's events, one at a time, so that a bound stops the parser too."""

    def __init__(self, events: Iterator[Any], problems: Problems) -> None:
        self._events = events
        self._problems = problems

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent) and root is not None:
                self._refuse(event, "a second document begins here; write one document, without `---`")
            if isinstance(event, NodeEvent):
                root = self._node(event, 0)
        if root is None:
            self._problems.add(1, "the file is empty; begin it with `version: 1`")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            self._refuse(event, "aliases (*name) aren't read here; write the value itself")
        if event.anchor is not None:
            self._problems.add(line, "anchors (&name) aren't read here; remove it")
        if event.tag is not None:
            self._problems.add(line, f"tags ({event.tag}) aren't read here; remove it")
        if depth > DEEPEST:
            self._refuse(event, f"nested deeper than {DEEPEST} levels; nothing here needs that")
        match event:
            case MappingStartEvent():
                return self._mapping(line, depth)
            case SequenceStartEvent():
                items: list[Node] = []
                while not isinstance(event := next(self._events), SequenceEndEvent):
                    items.append(self._node(event, depth + 1))
                return Sequence(line, tuple(items))
            case ScalarEvent(value=text):
                plain = event.implicit[0]
                return Scalar(line, _meaning(text) if plain else text, text)
        raise AssertionError(event)  # the parser gives no other nodes

    def _mapping(self, line: int, depth: int) -> Mapping:
        mapping = Mapping(line, {}, {})
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, Scalar):
                self._problems.add(key.line, f"a key has to be a word, not {describe(key)}")
            elif key.text in mapping.entries:
                first = mapping.lines[key.text]
                self._problems.add(key.line, f"{key.text!r} stands here twice, first in line {first}; keep one")
            else:
                mapping.entries[key.text], mapping.lines[key.text] = value, key.line
        return mapping

    def _refuse(self, event: Any, message: str) -> None:
        self._problems.add(event.start_mark.line + 1, message)
        raise _RefusedError


def _meaning(text: str) -> str | float | bool | None:
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text
