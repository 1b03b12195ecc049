"""Frozen: the metric hasn't moved at all for many values.

    sign:  the last `rows` values are exactly equal (to `at`, if that is given)

Exact equality is the point: a metric that converges still flickers in its last digits, one that is no longer computed
or that nothing feeds does not. It lies on metrics that are constants by nature (coefficients, limits).

Measured in the 3 ways in which rules use it (`python benchmarks/noise.py`), no false alarm in 108,000 values each of
white noise, AR(1) 0.6 and Student-t(3) noise; a series that stands still is found 15 values after its first (median).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.algorithms.base import Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import Series

__all__ = ["Frozen"]

_STOOD = Form("exactly {value:.6g} for {count:d} values in a row, since step {step:d}")


@dataclass(frozen=True, slots=True)
class Frozen(Test):
    """Parameters of the frozen test.

    Attributes:
        rows: equal values in a row that make a sign, >= 2.
        at: only this value counts; None: any.
    """

    rows: int = 20
    at: float | None = None

    def __post_init__(self) -> None:
        if self.rows < 2 or (self.at is not None and not math.isfinite(self.at)):
            raise ValueError(f"out of range: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("count", "onset", "test", "value")
    value: float | None
    count: int  # equal values in a row
    onset: int  # step of the first of them

    def __init__(self, test: Frozen) -> None:
        self.test = test
        self.restore({})

    def update(self, point: Point, series: Series) -> Reading:
        del series  # only the values themselves count
        if point.value == self.value:
            self.count += 1
        else:
            self.value, self.count, self.onset = point.value, 1, point.step
        if self.count < self.test.rows or (self.test.at is not None and self.value != self.test.at):
            return Reading(sign=False, clear=self.count == 1 or self.value != self.test.at)
        return Reading(
            sign=True,
            sure=True,
            baseline=self.value,
            score=float(self.count),
            window=self.count,
            onset=self.onset,
            detail=_STOOD(value=point.value, count=self.count, step=self.onset),
        )

    def resume(self) -> None:
        self.restart()

    def snapshot(self) -> dict[str, Any]:
        return {"value": self.value, "count": self.count, "onset": self.onset}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.value = state.get("value")
        self.count = state.get("count", 0)
        self.onset = state.get("onset", -1)
