"""Repeated spikes: single values far above the baseline that fall back, again and again.

    spike:  x - median >= z * (1 + 2 / n) * spread  and  x - median >= log(ratio) (or `absolute` on another scale),
            after a value that was none
    sign:   at least `count` spikes among the last `rows` values, and no more than half of those values far out

A lone spike heals and says nothing; a habit of them does. It lies where the spikes are so many that they are the level:
the baseline takes them in then, and a level-shift test has spoken before.

Measured in the 2 ways in which rules use it (`python benchmarks/noise.py`), with noise of a tenth of the level: no
false alarm in 72,000 values each of white noise, AR(1) 0.6 and Student-t(3) noise; spikes at every eighth value are
found 24 values after its first (median).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.algorithms.base import QUIET, Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import Series

__all__ = ["RepeatedSpikes"]

_SPIKED = Form(
    "spike {spikes:d} among the last {rows:d} values: {value:.4g} against a baseline of {level:.4g}; "
    "a spike is above {limit:.4g}"
)


@dataclass(frozen=True, slots=True)
class RepeatedSpikes(Test):
    """Parameters of the repeated-spikes test.

    Attributes:
        count: spikes that make a sign, >= 2.
        rows: among so many last values, 8 to 128.
        z: least distance of a spike in robust standard deviations, > 0.
        ratio: least factor of a spike on a symlog scale, > 1.
        absolute: least distance in the metric's unit on another scale, > 0.
        min_rows: values in the baseline before a spike counts.
    """

    uses_baseline = True

    count: int = 4
    rows: int = 64
    z: float = 8.0
    ratio: float = 5.0
    absolute: float = 0.1
    min_rows: int = 16

    def __post_init__(self) -> None:
        if self.count < 2 or not 8 <= self.rows <= 128 or self.z <= 0 or self.ratio <= 1 or self.absolute <= 0:
            raise ValueError(f"out of range: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("far", "test")
    far: int  # which of the last values were far out, as bits, the newest lowest

    def __init__(self, test: RepeatedSpikes) -> None:
        self.test = test
        self.far = 0

    def update(self, point: Point, series: Series) -> Reading:
        test, baseline = self.test, series.baseline
        if baseline is None or baseline.count < test.min_rows:
            return QUIET
        distance = point.x - baseline.median
        needed = math.log(test.ratio) if series.scale.kind == "symlog" else test.absolute
        z = test.z * (1 + 2 / baseline.count)
        far = distance >= needed and distance >= z * baseline.least and distance >= z * baseline.spread
        self.far = (self.far << 1 | far) & ((1 << test.rows) - 1)
        spikes = (self.far & ~(self.far << 1)).bit_count()  # each run of far values counts once
        # Only a new spike is a sign: between spikes nothing is wrong, and nothing is clear either.
        if spikes < test.count or self.far.bit_count() > test.rows // 2:
            return Reading(sign=False, clear=spikes < max(test.count // 2, 1))
        if not far:
            return Reading(sign=False)
        level = series.scale.inverse(baseline.median)
        limit = series.scale.inverse(baseline.median + max(needed, z * baseline.spread))
        return Reading(
            sign=True,
            sure=True,
            baseline=level,
            score=float(spikes),
            limit=limit,
            window=test.rows,
            detail=_SPIKED(spikes=spikes, rows=test.rows, value=point.value, level=level, limit=limit),
        )

    def snapshot(self) -> dict[str, Any]:
        return {"far": self.far}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.far = state.get("far", 0)
