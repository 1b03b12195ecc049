"""Values of a file's nodes, checked against the Python types that they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from tocsin_detectors.rulefile.problems import Problems, nearest
from tocsin_detectors.rulefile.tree import Mapping, Node, Scalar, Sequence, describe

__all__ = ["LARGEST_COUNT", "Reading", "WrongError"]

LARGEST_COUNT = 10_000  # of what a rule counts: values, steps, signs
LONGEST_TEXT = 4_000


class WrongError(ValueError):
    """A value isn't what it has to be; the message says what that is."""


class Reading:
    """Reads nodes, and notes what is wrong with them."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def mapping(self, node: Node, what: str, known: Collection[str] | None = None) -> Mapping | None:
        """The node as a mapping of known keys; unknown ones are noted."""
        if not isinstance(node, Mapping):
            self.problems.add(node.line, f"{what} has to be a mapping (key: value), not {describe(node)}")
            return None
        for key in node.entries if known is not None else ():
            if key not in (known or ()):
                self.problems.add(node.lines[key], f"{what} has no {key!r}; {nearest(key, known or ())}")
        return node

    def sequence(self, node: Node, what: str) -> tuple[Node, ...]:
        """The node's items; empty, with a note, if it is no list."""
        if isinstance(node, Sequence):
            return node.items
        self.problems.add(node.line, f"{what} has to be a list, not {describe(node)}")
        return ()

    def value(self, node: Node, hint: Any, what: str, most: int = LARGEST_COUNT) -> Any:
        """The node as a value of a type; None, with a note, if it isn't one.

        Args:
            node: what was written.
            hint: int, float, bool, str, a Literal, a StrEnum, a tuple or frozenset of one of these, or one of these
                or None.
            what: its name in a message.
            most: the largest whole number allowed.
        """
        try:
            return convert(node, hint, most)
        except WrongError as error:
            self.problems.add(node.line, f"{what} has to be {error}")
            return None

    def version(self, root: Mapping) -> None:
        """The file's own version: this is the first."""
        node = root.entries.get("version")
        if node is None:
            self.problems.add(root.line, "`version` is missing; write `version: 1`")
        elif not isinstance(node, Scalar) or node.value != 1 or isinstance(node.value, bool):
            self.problems.add(node.line, f"version has to be 1, the only one there is, not {describe(node)}")


def convert(node: Node, hint: Any, most: int) -> Any:
    """See :meth:`Reading.value`.

    Raises:
        WrongError: it isn't one.
    """
    origin, options = get_origin(hint), get_args(hint)
    if origin in {UnionType, Union}:
        if isinstance(node, Scalar) and node.value is None and type(None) in options:
            return None
        return convert(node, next(option for option in options if option is not type(None)), most)
    if origin in {tuple, frozenset}:
        items = node.items if isinstance(node, Sequence) else (node,)
        return origin(convert(item, options[0], most) for item in items)
    if origin is Literal:
        return _choose(node, options)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(_choose(node, tuple(member.value for member in hint)))
    if not isinstance(node, Scalar):
        raise WrongError(f"{_NAMES[hint]}, not {describe(node)}")
    return _CONVERTERS[hint](node, most)


def _choose(node: Node, options: tuple[str, ...]) -> str:
    if isinstance(node, Scalar) and node.text in options:
        return node.text
    hint = nearest(node.text, options) if isinstance(node, Scalar) and len(options) > 4 else ""
    listed = f"; {hint}" if hint.startswith("did") else ""
    raise WrongError(f"one of {', '.join(options)}, not {describe(node)}{listed}")


def _integer(node: Scalar, most: int) -> int:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongError(f"a whole number, not {describe(node)}{_unquote(value)}")
    if not 0 <= value <= most:
        raise WrongError(f"a whole number from 0 to {most}, not {node.text[:20]}")
    return value


def _number(node: Scalar, _: int) -> float:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongError(f"a number, not {describe(node)}{_unquote(value)}")
    if not math.isfinite(value) or abs(value) > 1e100:
        raise WrongError(f"a number between -1e100 and 1e100, not {node.text[:20]}")
    return value


def _boolean(node: Scalar, _: int) -> bool:
    if not isinstance(node.value, bool):
        raise WrongError(f"true or false, not {describe(node)}")
    return node.value


def _text(node: Scalar, _: int) -> str:
    if not isinstance(node.value, str) or not node.value.strip():
        quoted = "" if node.value is None or isinstance(node.value, str) else f"; quote it: '{node.text}'"
        raise WrongError(f"a text that isn't empty, not {describe(node)}{quoted}")
    if len(node.value) > LONGEST_TEXT:
        raise WrongError(f"at most {LONGEST_TEXT} characters long")
    return " ".join(node.value.split())


def _unquote(value: object) -> str:
    try:
        return "; remove the quotes" if isinstance(value, str) and math.isfinite(float(value)) else ""
    except ValueError:
        return ""


_NAMES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_CONVERTERS: dict[type, Callable[[Scalar, int], Any]] = {int: _integer, float: _number, bool: _boolean, str: _text}
