"""Level shift and spike: a value that is both statistically far from its baseline and materially large.

    y        the newest value, or the median of the last `smooth` values
    far:     |y - median| / spread >= z * (1 + 2 / n)
    large:   ratio (symlog), change relative to the level's size (linear), absolute change (share)
    sudden:  the same distance from the median of the `local` values before the first sign

With `by_steps` the baseline is the median of the last 5 values, and the spread that of the last 15 single steps,
1.4826 * median |x_i - x_(i-1)| / sqrt 2: what drifts has a wide window but small steps, so a jump stands out at once.

Each test alone lies: a quiet series makes every wiggle "far", a noisy one makes every wiggle "large", and a KL that has
grown slowly for 60 steps is both against its past, but not sudden. When it lies all the same: on a saw-tooth with a
period longer than the window it fires at the edge. A slow slide needs another algorithm (`Drawdown`, `Trend`).

One value beyond the limits is a sign; the rule says how many signs among how many values make an alert (a spike: one
of one; a level shift: two or three of three). From the first sign on, the baseline of that moment is the reference
until the episode ends, so that a lasting shift can't become its own baseline.

Measured in the 34 ways in which rules use it (`python benchmarks/noise.py`), with noise of a tenth of the level: one
false alarm in 1,224,000 values of white noise, 42 of AR(1) 0.6, 25 of Student-t(3); a change by one and a half times
what it asks for is found 2 values after its first (median), and 11/29/1 of 2040 such changes not at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.algorithms.base import QUIET, UNDECIDED, Algorithm, Direction, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import RECENT, Baseline, Series

__all__ = ["LevelShift"]

# Of one value and of the median of several, by whether there is a factor to tell, and whether it lies above.
_VALUE = {
    (True, True): Form(
        "{value:.4g} against a baseline of {level:.4g} (median of {count:d} values), {times:.3g} times that; "
        "robust z {score:.1f}; abnormal above {limit:.4g}"
    ),
    (True, False): Form(
        "{value:.4g} against a baseline of {level:.4g} (median of {count:d} values), {times:.3g} times that; "
        "robust z {score:.1f}; abnormal below {limit:.4g}"
    ),
    (False, True): Form(
        "{value:.4g} against a baseline of {level:.4g} (median of {count:d} values); "
        "robust z {score:.1f}; abnormal above {limit:.4g}"
    ),
    (False, False): Form(
        "{value:.4g} against a baseline of {level:.4g} (median of {count:d} values); "
        "robust z {score:.1f}; abnormal below {limit:.4g}"
    ),
}
_MEDIAN = {
    (True, True): Form(
        "median of the last {smooth:d} values {value:.4g} against a baseline of {level:.4g} (median of {count:d} "
        "values), {times:.3g} times that; robust z {score:.1f}; abnormal above {limit:.4g}"
    ),
    (True, False): Form(
        "median of the last {smooth:d} values {value:.4g} against a baseline of {level:.4g} (median of {count:d} "
        "values), {times:.3g} times that; robust z {score:.1f}; abnormal below {limit:.4g}"
    ),
    (False, True): Form(
        "median of the last {smooth:d} values {value:.4g} against a baseline of {level:.4g} (median of {count:d} "
        "values); robust z {score:.1f}; abnormal above {limit:.4g}"
    ),
    (False, False): Form(
        "median of the last {smooth:d} values {value:.4g} against a baseline of {level:.4g} (median of {count:d} "
        "values); robust z {score:.1f}; abnormal below {limit:.4g}"
    ),
}


@dataclass(frozen=True, slots=True)
class LevelShift(Test):
    """Parameters of the level-shift test.

    Attributes:
        direction: which way counts.
        z: how far, in robust standard deviations, > 0. Asked for more while the baseline has few values.
        ratio: least factor between value and baseline on a symlog scale, > 1.
        relative: least change in sizes of the level on a linear scale, > 0.
        absolute: least change in the metric's unit, >= 0: for shares, and beside the others.
        smooth: judge the median of so many last values (odd, 1 to 15; 1: the newest value itself).
        local: values before the first sign; the change from their median must be large too (0 to 16; 0: don't ask).
        by_steps: judge by the steps from value to value, not by the whole window; for metrics that drift while healthy.
        alone: one such value is enough for an alert, whatever the rule asks for beside it.
        severe_factor: a multiple of the least effect that is beyond doubt, > 1.
        min_rows: values in the baseline before the test speaks, >= 2.
    """

    uses_baseline = True

    direction: Direction = "both"
    z: float = 5.0
    ratio: float = 2.5
    relative: float = 0.35
    absolute: float = 0.0
    smooth: int = 1
    local: int = 0
    by_steps: bool = False
    alone: bool = False
    severe_factor: float = 3.0
    min_rows: int = 6

    def __post_init__(self) -> None:
        if self.z <= 0 or self.ratio <= 1 or self.relative <= 0 or self.absolute < 0 or self.min_rows < 2:
            raise ValueError(f"out of range: {self}")
        if not 1 <= self.smooth <= 15 or self.smooth % 2 == 0 or not 0 <= self.local <= RECENT:
            raise ValueError(f"out of range: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("least", "origin", "reference", "side", "test")
    adapts = True
    reference: Baseline | None  # what was normal before the first sign
    side: int  # +1 above, -1 below the reference
    least: float  # what the effect has to be at least on a symlog scale, whatever the level
    origin: float  # the local level before the first sign

    def __init__(self, test: LevelShift) -> None:
        self.test = test
        self.least = math.log(test.ratio)
        self.release()

    def update(self, point: Point, series: Series) -> Reading:
        test = self.test
        if len(series.recent) < test.smooth - 1:
            return QUIET
        x = point.x if test.smooth == 1 else series.smoothed_with(point.x, test.smooth)
        baseline = self._baseline(x, series)
        if baseline is None or baseline.count < test.min_rows:
            return QUIET
        distance = x - baseline.median
        side = 1 if distance > 0 else -1
        if self.side and side != self.side:
            return QUIET  # beyond the baseline on the other side: whatever it was, it's over
        if (test.direction == "up" and side < 0) or (test.direction == "down" and side > 0):
            return QUIET
        distance = abs(distance)
        if series.scale.kind == "symlog" and distance < 0.5 * self.least:
            return QUIET
        needed = self._least_effect(series, baseline)
        if distance < 0.5 * needed or needed == 0:  # a level of exactly 0 has no size to measure a change by
            return QUIET
        z = test.z * (1 + 2 / baseline.count)
        if distance < z * baseline.least:  # far from far, so the spread needn't be worked out
            return QUIET if distance < 0.5 * z * baseline.least and self.reference is None else UNDECIDED
        far = z * baseline.spread
        if distance < needed or distance < far:
            return QUIET if distance < 0.5 * far and self.reference is None else UNDECIDED
        if self.reference is None:
            origin = self._local(series) if test.local and series.recent else baseline.median
            if side * (x - origin) < needed:
                return UNDECIDED
            self.origin = origin
        elif side * (x - self.origin) < needed:
            return UNDECIDED
        self.reference, self.side = baseline, side
        severe = side * (x - self.origin) >= test.severe_factor * needed
        return self._evidence(x, series, baseline, max(needed, far), severe=severe)

    def _baseline(self, x: float, series: Series) -> Baseline | None:
        """What to judge by; None where one look tells that there is nothing to judge."""
        if self.reference is not None:
            return self.reference
        if self.test.by_steps:
            return series.local_baseline(x, self.least)
        return None if series.is_ordinary(x) else series.baseline

    def _local(self, series: Series) -> float:
        """Where the metric has been just before."""
        return series.scale.transform(series.smoothed(self.test.local))

    def _least_effect(self, series: Series, baseline: Baseline) -> float:
        match series.scale.kind:
            case "symlog":
                effect = self.least
                if self.test.absolute:
                    level = series.scale.inverse(baseline.median)
                    effect = max(effect, series.scale.transform(abs(level) + self.test.absolute) - abs(baseline.median))
                return effect
            case "logit":
                return self.test.absolute or self.test.relative
            case _:
                return max(self.test.relative * baseline.size, self.test.absolute)

    def _evidence(self, x: float, series: Series, baseline: Baseline, needed: float, *, severe: bool) -> Reading:
        value, level = series.scale.inverse(x), series.scale.inverse(baseline.median)
        limit = series.scale.inverse(baseline.median + self.side * needed)
        score = abs(x - baseline.median) / baseline.spread
        has_factor = series.scale.kind == "symlog" and level > 0
        detail = (_VALUE if self.test.smooth == 1 else _MEDIAN)[has_factor, self.side > 0]
        return Reading(
            sign=True,
            severe=severe,
            sure=self.test.alone or self.test.smooth > 1,
            baseline=level,
            score=score,
            limit=limit,
            window=baseline.count,
            detail=detail(
                smooth=self.test.smooth,
                value=value,
                level=level,
                count=baseline.count,
                times=value / level if has_factor else None,
                score=score,
                limit=limit,
            ),
        )

    def release(self) -> None:
        self.reference = None
        self.side = 0
        self.origin = 0.0

    def snapshot(self) -> dict[str, Any]:
        if self.reference is None:
            return {}
        return {"reference": self.reference.snapshot(), "side": self.side, "origin": self.origin}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.release()
        if state:
            self.reference = Baseline(*state["reference"])
            self.side, self.origin = state["side"], state["origin"]
