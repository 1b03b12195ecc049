"""Mappings as Python prints them: ``{'loss': 0.5, 'kl': nan, 'x': np.float64(0.1)}``."""

from __future__ import annotations

import ast
from collections.abc import Mapping

__all__ = ["mapping"]

_LONGEST = 100_000
_NUMBERS: Mapping[str, float] = {"nan": float("nan"), "inf": float("inf")}


def mapping(text: str) -> dict[str, object] | None:
    """The mapping that ``text`` is the repr of; None if it is none. Values that are no literals are left as texts."""
    if len(text) > _LONGEST:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _mapping(tree) if isinstance(tree, ast.Dict) else None


def _mapping(tree: ast.Dict) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in zip(tree.keys, tree.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found[key.value] = _value(value)
    return found


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        return _mapping(node)
    if isinstance(node, ast.Name) and node.id in _NUMBERS:
        return _NUMBERS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)
        return -value if isinstance(value, (int, float)) else ast.unparse(node)
    return ast.unparse(node)
