"""Arithmetic expressions of metrics, for rules that compare one metric with another.

    abs({critic/advantages/mean} - {critic/score/mean})
    {config.temperature} * sqrt(2 * abs({rollout_corr/kl}))

Names stand in braces, as metric names hold slashes and more; ``{config.NAME}`` is a number of the run's configuration.
Allowed are numbers, + - * / **, comparisons (1 or 0), and abs, min, max, sqrt, log, exp. Whatever has no value (a
division by 0, the root of a negative number, an unknown configuration) makes the whole expression NaN: not computed.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

__all__ = ["Expression", "ExpressionError"]

_NAME = re.compile(r"\{([^{}]+)\}")
_LONGEST = 500
_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,  # never an exact integer power, which could be huge
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
}

_Node = Callable[[Mapping[str, float]], float]


class ExpressionError(ValueError):
    """The text is no expression of this kind; the message says where it goes wrong."""


class Expression:
    """A parsed expression. Equal texts make equal expressions.

    Attributes:
        text: as written.
        names: the metrics and configuration values in it, in order of appearance, each once.

    Raises:
        ExpressionError: it can't be parsed, or names no metric at all.
    """

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.names = tuple(dict.fromkeys(_NAME.findall(text)))
        if not self.names:
            raise ExpressionError(f"{text!r} names no metric; write metric names in braces: {{actor/kl_loss}}")
        if len(text) > _LONGEST:
            raise ExpressionError(f"longer than {_LONGEST} characters")
        variables = {name: f"_v{number}" for number, name in enumerate(self.names)}
        source = _NAME.sub(lambda match: f"({variables[match[1]]})", text)
        try:
            tree = ast.parse(source.strip(), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise ExpressionError(f"{text!r} is no arithmetic expression") from None
        self._evaluate = _compile(tree.body, {variable: name for name, variable in variables.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __call__(self, values: Mapping[str, float]) -> float:
        """The value; NaN if it has none.

        Args:
            values: a number for every one of ``names``.
        """
        try:
            value = self._evaluate(values)
        except (ArithmeticError, ValueError):
            return math.nan
        return float(value)


def _compile(node: ast.expr, names: Mapping[str, str]) -> _Node:
    """A closure for a node of the tree; anything that isn't arithmetic is refused here, not when it runs."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            try:
                constant = float(number)
            except OverflowError:
                raise ExpressionError("a number in it is too large") from None
            return lambda _: constant
        case ast.Name(id=variable) if variable in names:
            name = names[variable]
            return lambda values: values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compile(operand, names)
            return lambda values: -inner(values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            first, second, combine = _compile(left, names), _compile(right, names), _BINARY[type(op)]
            return lambda values: combine(first(values), second(values))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            first, second, compare = _compile(left, names), _compile(right, names), _COMPARE[type(op)]
            return lambda values: float(compare(first(values), second(values)))
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in _FUNCTIONS and arguments:
            call, compiled = _FUNCTIONS[function], [_compile(argument, names) for argument in arguments]
            if function not in {"min", "max"} and len(compiled) != 1:
                raise ExpressionError(f"{function} takes one argument")
            if len(compiled) == 1:
                only = compiled[0]
                return only if function in {"min", "max"} else lambda values: call(only(values))
            return lambda values: call(*(argument(values) for argument in compiled))
        case _:
            known = ", ".join(sorted(_FUNCTIONS))
            raise ExpressionError(f"only numbers, metric names in braces, + - * / ** < > and {known} are allowed")
