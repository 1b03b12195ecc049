"""What the columns of others' rows are called here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tocsin._rollouts import FIELDS

__all__ = ["Shape", "row_of", "shape_of"]

_MOST_SCORES = 32
_COMMON: Final = {"data_source": "domain", "uid": "group"}


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of file.

    Attributes:
        marks: columns that only this kind has.
        names: its name of a column to ours.
        apart: numbers that are no scores.
        reward: the final reward of a row, out of its scores.
        skips: whether a row is none of training.
    """

    marks: frozenset[str]
    names: Mapping[str, str]
    apart: frozenset[str]
    reward: Callable[[Mapping[str, float]], float | None]
    skips: Callable[[Mapping[str, Any]], bool] = lambda _: False


def _sum(scores: Mapping[str, float]) -> float | None:
    """TRL's reward with its default weights, all 1; a function that doesn't apply to a row counts as 0."""
    known = [score for score in scores.values() if not math.isnan(score)]
    return sum(known) if known else None


_SHAPES: Final = (
    # Source: verl trainer/ppo/ray_trainer.py: one row a rollout; whatever a reward function returns beside the score
    # is a column more.
    Shape(
        frozenset({"input", "output"}),
        {"input": "prompt", "output": "response", "gts": "ground_truth", **_COMMON},
        frozenset({"step"}),
        lambda scores: scores.get("reward", scores.get("score")),
    ),
    # Source: TRL trainer/grpo_trainer.py: a column for each reward function, those of log_extra, and the advantage.
    Shape(
        frozenset({"prompt", "completion"}),
        {"completion": "response", "prompt": "prompt", **_COMMON},
        frozenset({"step", "advantage"}),
        _sum,
        lambda row: row.get("mode") == "eval",
    ),
)
_OURS = Shape(frozenset({"response"}), {}, frozenset(), lambda _: None)


def shape_of(row: Mapping[str, Any]) -> Shape | None:
    """The kind of file in which there is such a row; None if it is none of rollouts."""
    return next((shape for shape in (*_SHAPES, _OURS) if shape.marks <= row.keys()), None)


def row_of(row: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """The row as :func:`tocsin.log_rollouts` takes it."""
    if shape is _OURS:
        ours = {name: value for name, value in row.items() if name in FIELDS and value is not None}
        if isinstance(ours.get("scores"), list):  # a map of Parquet
            ours["scores"] = dict(ours["scores"])
        return ours
    found = {ours: row[theirs] for theirs, ours in shape.names.items() if row.get(theirs) is not None}
    taken = shape.names.keys() | shape.apart
    numbers = {name: float(value) for name, value in row.items() if name not in taken and _is_number(value)}
    scores = dict(list(numbers.items())[:_MOST_SCORES])
    reward = shape.reward(scores)
    if reward is not None:
        found["reward"] = reward
    if scores:
        found["scores"] = scores
    if _is_number(row.get("advantage")):
        found["advantage"] = float(row["advantage"])
    found.setdefault("response", "")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not (isinstance(value, int) and abs(value) > 2**53)
