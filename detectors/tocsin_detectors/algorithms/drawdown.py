"""Drawdown: how far the smoothed level has fallen below its best.

    fall = best - level,  level = median of the last k values,  best = the best level so far
    sign: fall >= share * size(best)  and  fall >= z * noise,  noise = 1.4826 * median |neighbours' difference| / sqrt 2

Finds the slow slide that a level-shift test follows without a word (a reward that degenerates over 50 steps). It lies
on a metric that has no business staying at its best: use it for what should rise or hold, such as rewards. The noise
comes from differences of neighbours, so the slide itself doesn't enter it.

Measured in the 3 ways in which rules use it (`python benchmarks/noise.py`), with noise of a tenth of the level: 3
false alarms in 108,000 values of white noise, 382 of AR(1) 0.6, 12 of Student-t(3); a change by one and a half times
what it asks for is found 2 values after its first (median), and 0/22/0 of 180 such changes not at all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.algorithms.base import QUIET, Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import MAD_TO_SIGMA, Series

__all__ = ["Drawdown"]

DIFFERENCES = 32  # neighbours' differences kept for the noise

_LOST = Form(
    "median of the last {smooth:d} values {now:.4g}, against the best such level {best:.4g} at step {step:d}: "
    "lost {share:.0%} of its size; abnormal below {limit:.4g}"
)


@dataclass(frozen=True, slots=True)
class Drawdown(Test):
    """Parameters of the drawdown test (for metrics that should not fall).

    Attributes:
        share: least fall as a share of the best level's size, > 0.
        z: least fall in standard deviations of the noise of one value, > 0.
        smooth: values per level (odd), 3 to 15.
        min_rows: values seen before the test speaks.
    """

    share: float = 0.5
    z: float = 3.0
    smooth: int = 9
    min_rows: int = 20

    def __post_init__(self) -> None:
        if self.share <= 0 or self.z <= 0 or not 3 <= self.smooth <= 15 or self.smooth % 2 == 0:
            raise ValueError(f"out of range: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("best", "best_step", "differences", "previous", "size", "test", "values")
    values: deque[float]
    differences: deque[float]
    previous: float
    best: float | None
    best_step: int
    size: float

    def __init__(self, test: Drawdown) -> None:
        self.test = test
        self.restore({})

    def update(self, point: Point, series: Series) -> Reading:
        test = self.test
        x = point.x
        if not math.isnan(self.previous):
            self.differences.append(abs(x - self.previous))
        self.previous = x
        self.values.append(x)
        if len(self.values) < test.smooth:
            return QUIET
        level = sorted(self.values)[test.smooth // 2]
        if self.best is None or level > self.best:
            self.best, self.best_step = level, point.step
        fall = self.best - level
        self.size = max(self.size, abs(level))
        if series.count < test.min_rows:
            return QUIET
        needed = test.share * self.size
        if fall < needed or fall == 0:
            return Reading(sign=False, clear=fall <= 0.5 * needed)
        noise = MAD_TO_SIGMA * sorted(self.differences)[len(self.differences) // 2] / math.sqrt(2)
        if fall < test.z * noise:
            return Reading(sign=False)
        return self._evidence(series, level, fall, needed, noise)

    def _evidence(self, series: Series, level: float, fall: float, needed: float, noise: float) -> Reading:
        assert self.best is not None  # noqa: S101 - a level was seen, so there is a best one
        best = series.scale.inverse(self.best)
        now = series.scale.inverse(level)
        limit = series.scale.inverse(self.best - needed)
        score = fall / noise if noise > 0 else None
        return Reading(
            sign=True,
            sure=True,
            baseline=best,
            score=score,
            limit=limit,
            window=self.test.smooth,
            detail=_LOST(
                smooth=self.test.smooth, now=now, best=best, step=self.best_step, share=fall / self.size, limit=limit
            ),
        )

    def resume(self) -> None:
        self.values.clear()
        self.previous = math.nan

    def snapshot(self) -> dict[str, Any]:
        return {
            "values": list(self.values),
            "differences": list(self.differences),
            "previous": None if math.isnan(self.previous) else self.previous,
            "best": self.best,
            "best_step": self.best_step,
            "size": self.size,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.values = deque(state.get("values", ()), maxlen=self.test.smooth)
        self.differences = deque(state.get("differences", ()), maxlen=DIFFERENCES)
        previous = state.get("previous")
        self.previous = math.nan if previous is None else previous
        self.best = state.get("best")
        self.best_step = state.get("best_step", -1)
        self.size = state.get("size", 0.0)
