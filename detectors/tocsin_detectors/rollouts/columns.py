"""A step's rollouts as columns, and which of them belong together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Groups", "Numbers", "Rollouts", "Truths"]

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of numbers, some of which may be missing. A NaN that was given isn't missing: it is what went wrong.

    Attributes:
        values: ``[N]``; anything where nothing is known.
        known: ``[N]``, whether the row has a value.
    """

    values: Floats
    known: Truths

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Self:
        """The column with these values; None is a missing one."""
        known = np.array([value is not None for value in values], dtype=bool)
        return cls(np.array([np.nan if value is None else value for value in values], dtype=np.float64), known)

    @classmethod
    def none(cls, count: int) -> Self:
        """A column without any value."""
        return cls(np.full(count, np.nan), np.zeros(count, dtype=bool))

    @property
    def present(self) -> Floats:
        """The values of the rows that have one."""
        return self.values[self.known]


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The rollouts of one step, a column each, ``[N]``.

    Attributes:
        responses: what the model wrote.
        groups: what the rollouts of one prompt have in common: an id, or the prompt itself; None: it is not known.
        rewards: final rewards, after penalties.
        scores: of each reward model or rule, by its name.
        domains: the kind of task, None where it isn't known.
        lengths: of the responses, in tokens.
        finish_reasons: why the generation ended ("stop", "length", ...), None where it isn't known.
        advantages: of the whole response.
        repetition: share of each response that repeats itself, see :func:`~.repetition.repetition`.
    """

    responses: Sequence[str]
    groups: Sequence[Hashable | None] = ()
    rewards: Numbers = field(default_factory=lambda: Numbers.none(0))
    scores: Mapping[str, Numbers] = field(default_factory=dict)
    domains: Sequence[str | None] = ()
    lengths: Numbers = field(default_factory=lambda: Numbers.none(0))
    finish_reasons: Sequence[str | None] = ()
    advantages: Numbers = field(default_factory=lambda: Numbers.none(0))
    repetition: Floats | None = None

    @property
    def true_scores(self) -> Numbers:
        """What says how good the answers are: the score called "score", else the only score, else the reward."""
        if "score" in self.scores:
            return self.scores["score"]
        return next(iter(self.scores.values())) if len(self.scores) == 1 else self.rewards


class Groups:
    """Rows that share a key, numbered from 0 by first appearance; rows without a key are in none.

    Args:
        keys: of each row.
        counted: ``[N]``, the rows that count; the others are in no group.

    Attributes:
        rows: ``[M]``, indices of the rows that are in a group.
        index: ``[M]``, the number of each of these rows' group.
        sizes: ``[K]``, rows of each group.
    """

    def __init__(self, keys: Sequence[Hashable | None], counted: Truths) -> None:
        numbers: dict[Hashable, int] = {}
        pairs = [
            (row, numbers.setdefault(key, len(numbers)))
            for row, key in enumerate(keys)
            if key is not None and counted[row]
        ]
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self.rows, self.index = table[:, 0], table[:, 1]
        self.names = list(numbers)
        self.sizes = np.bincount(self.index, minlength=len(numbers))

    def means(self, values: Floats) -> Floats:
        """``[K]``: the mean of each group's ``values``, ``[N]``."""
        sums = np.bincount(self.index, weights=values[self.rows], minlength=len(self.sizes))
        return sums / self.sizes

    def extremes(self, values: Floats) -> tuple[Floats, Floats]:
        """``[K]`` each: the least and the greatest of each group's ``values``, ``[N]``; NaN where one is NaN."""
        least, most = np.full(len(self.sizes), np.inf), np.full(len(self.sizes), -np.inf)
        np.minimum.at(least, self.index, values[self.rows])
        np.maximum.at(most, self.index, values[self.rows])
        return least, most
