"""From start: the level is but a fraction, or a multiple, of what it was when the run began.

    early = median of the first `early` values (after `skip`),  level = median of the last `smooth` values
    sign:  level <= early * ratio  (ratio < 1),  or  level >= early * ratio  (ratio > 1)
           unless a fifth of the early values was more than half-way there (in ratio) already

For what has a natural level that only a fault takes away, such as the spread of a group's rewards. It lies where the
start is no level at all: on what has to change as the run learns.

Measured in the 3 ways in which rules use it (`python benchmarks/noise.py`), with noise of a tenth of the level: no
false alarm in 108,000 values each of white noise, AR(1) 0.6 and Student-t(3) noise; a change by one and a half times
what it asks for is found 7 values after its first (median), and 60/60/60 of 180 such changes not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.algorithms.base import QUIET, Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import Series

__all__ = ["FromStart"]

_FALLEN = Form(
    "median of the last {smooth:d} values {level:.4g}, {times:.2g} times what it was over the first {early:d} values "
    "({before:.4g}); abnormal below {limit:.4g}"
)
_GROWN = Form(
    "median of the last {smooth:d} values {level:.4g}, {times:.2g} times what it was over the first {early:d} values "
    "({before:.4g}); abnormal above {limit:.4g}"
)


@dataclass(frozen=True, slots=True)
class FromStart(Test):
    """Parameters of the from-start test, for positive metrics.

    Attributes:
        ratio: of the level to the early one, beyond which it is abnormal; > 0, not 1.
        early: values that make the early level, >= 3.
        smooth: values that make the level (odd), 3 to 15.
        at_least: the level counts only if it reaches this, in the metric's unit; None: any.
        skip: values at the start of a run that don't count.
    """

    ratio: float = 0.1
    early: int = 20
    smooth: int = 9
    skip: int = 0
    at_least: float | None = None

    def __post_init__(self) -> None:
        if self.ratio <= 0 or self.ratio == 1 or self.early < 3 or not 3 <= self.smooth <= 15 or self.skip < 0:
            raise ValueError(f"out of range: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("early", "first", "seen", "test", "values")
    seen: int
    first: list[float]
    early: float | None
    values: deque[float]

    def __init__(self, test: FromStart) -> None:
        self.test = test
        self.restore({})

    def update(self, point: Point, series: Series) -> Reading:
        del series  # it compares with the run's start, not with its recent past
        test = self.test
        self.seen += 1
        if self.seen <= test.skip:
            return QUIET
        if self.early is None:
            self.first.append(point.value)
            if len(self.first) == test.early:
                self._settle()
            return QUIET
        self.values.append(point.value)
        if len(self.values) < test.smooth or self.early <= 0:
            return QUIET
        level = sorted(self.values)[test.smooth // 2]
        limit = self.early * test.ratio
        beyond = level <= limit if test.ratio < 1 else level >= limit
        beyond = beyond and (test.at_least is None or level >= test.at_least)
        if not beyond:
            halfway = self.early * test.ratio**0.5
            return Reading(sign=False, clear=level > halfway if test.ratio < 1 else level < halfway)
        return Reading(
            sign=True,
            sure=True,
            baseline=self.early,
            score=level / self.early,
            limit=limit,
            window=test.early,
            detail=(_FALLEN if test.ratio < 1 else _GROWN)(
                smooth=test.smooth,
                level=level,
                times=level / self.early,
                early=test.early,
                before=self.early,
                limit=limit,
            ),
        )

    def _settle(self) -> None:
        """The early level; 0, so that nothing is ever said, if the start itself kept going that way."""
        order, ratio = sorted(self.first), self.test.ratio
        level = order[len(order) // 2]
        halfway = level * ratio**0.5
        steady = order[len(order) // 5] > halfway if ratio < 1 else order[-1 - len(order) // 5] < halfway
        self.early = level if steady else 0.0
        self.first = []

    def resume(self) -> None:
        self.values.clear()

    def snapshot(self) -> dict[str, Any]:
        return {"seen": self.seen, "first": self.first.copy(), "early": self.early, "values": list(self.values)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state.get("seen", 0)
        self.first = list(state.get("first", ()))
        self.early = state.get("early")
        self.values = deque(state.get("values", ()), maxlen=self.test.smooth)
