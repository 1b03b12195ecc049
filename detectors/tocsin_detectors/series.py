"""A series: the online view of one canonical metric of one run.

It keeps a window of the last *ordinary* values and answers for their median and robust spread. Values that stand
far off are suspects: they stay out of the window, so that neither a spike nor the shift that a rule should report is
swallowed by the baseline; only when they last does the window move to the new level.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from itertools import islice, pairwise
from typing import Any

from tocsin_detectors.scale import Scale

__all__ = ["Baseline", "Series"]

WINDOW = 64  # ordinary values that make a baseline: long against noise, short against the drift of a healthy run
PATIENCE = 24  # suspects in a row that become the new level
FEWEST = 6  # values before any can be a suspect
HABIT = 4  # far values among the last 32, apart from the present run of them, that make far values ordinary
SUSPECT_Z = 5.0  # robust z from which a value is a suspect
MAD_TO_SIGMA = 1.4826  # makes the median absolute deviation of normal noise its standard deviation
TAILS_TO_SIGMA = 2.563  # 90th minus 10th percentile of normal noise in standard deviations
NEAR = 5  # values that say where a drifting metric is just now
RECENT = 16  # last values as they came, for smoothing and for conditions between metrics

# Least spread, in the unit of the transformed values. Without it the spread of a very quiet series goes to 0 and every
# wiggle looks infinitely far: 5 % of a symlog level, 2 % of a linear one, half a point of a share.
FLOORS = {"symlog": 0.05, "linear": 0.02, "logit": 0.005}


class Baseline:
    """What is normal now, in the unit of the transformed values.

    Attributes:
        median: of the window.
        count: values in the window.
        size: the size of the level, for effects relative to it: the largest of |median| and the absolute 10th and 90th
            percentiles (so that a level near 0 doesn't make every wiggle large).
        least: a lower bound of the spread, at no cost: the tails' share of it and the floor.
    """

    __slots__ = ("_order", "_spread", "count", "least", "median", "size")

    def __init__(self, median: float, spread: float | None, count: int, size: float) -> None:
        self.median = median
        self.count = count
        self.size = size
        self.least = spread or 0.0
        self._spread = spread
        self._order: list[float] = []

    @classmethod
    def of(cls, order: list[float], scale: Scale) -> Baseline:
        """The baseline of a sorted window; whoever keeps it while the window changes asks for its spread first."""
        count = len(order)
        median = order[count // 2] if count % 2 else 0.5 * (order[count // 2 - 1] + order[count // 2])
        # Of a series around 0 either tail may be the larger one. Of few values the outermost may be a first outlier.
        tail = count // 10 or int(count >= 5)
        low, high = order[tail], order[-1 - tail]
        baseline = cls(median, None, count, max(abs(median), abs(low), abs(high)))
        floor = FLOORS[scale.kind] * (baseline.size if scale.kind == "linear" else 1.0)
        baseline.least = max((high - low) / TAILS_TO_SIGMA, floor, 1e-12)
        baseline._order = order
        return baseline

    @property
    def spread(self) -> float:
        """The larger of 1.4826 * MAD and (q90 - q10) / 2.563, floored.

        Both are the standard deviation of normal noise; the second grows where one value in ten is far out, which the
        MAD doesn't see. Computed when first asked for: most values are judged without it.
        """
        if self._spread is None:
            self._spread = max(MAD_TO_SIGMA * _median_distance(self._order, self.median), self.least)
            self._order = []
        return self._spread

    def snapshot(self) -> list[float]:
        """The arguments that make the same baseline."""
        return [self.median, self.spread, self.count, self.size]


class Series:
    """Window, baseline and last values of one metric. All times are rows: values of this series.

    Args:
        scale: how to look at the metric: "symlog" for heavy-tailed positive ones (a difference of transformed values
            is a log ratio), "logit" for fractions in [0, 1], "linear" for the rest.
    """

    __slots__ = (
        "_baseline", "_far", "_moved", "_order", "_transformed", "_window", "count", "last", "last_step", "recent",
        "scale", "suspects",
    )  # fmt: skip

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.count = 0  # finite values ever seen
        self.last = math.nan  # last finite value, untransformed
        self.last_step = -1
        self.recent: deque[float] = deque(maxlen=RECENT)  # untransformed
        self._transformed: deque[float] = deque(maxlen=RECENT)  # the same on the scale
        self.suspects: list[float] = []
        self._far = 0  # which of the last 32 values were far off, as bits, the newest lowest
        self._moved = -1  # step at which the window last moved to a new level
        self._window: deque[float] = deque()
        self._order: list[float] = []  # the window, sorted
        self._baseline: Baseline | None = None

    @property
    def baseline(self) -> Baseline | None:
        """The baseline before the newest value; None while the window is empty."""
        if self._baseline is None and self._order:
            self._baseline = Baseline.of(self._order, self.scale)
        return self._baseline

    def is_ordinary(self, x: float) -> bool:
        """Whether a transformed value lies between the window's 10th and 90th percentile: then it is far by no measure.

        The quickest of all questions: it needs no baseline.
        """
        order = self._order
        count = len(order)
        if count < FEWEST:
            return False
        tail = count // 10 or 1
        return order[tail] <= x <= order[-1 - tail]

    def local_baseline(self, x: float, least: float) -> Baseline | None:
        """Median of the last five values with the spread of single steps; None if ``x`` is nearer to it than ``least``.

        Unlike the window it follows a drift at once, and takes in a lasting shift after three values.
        """
        values = self._transformed
        count = len(values)
        if count < FEWEST:
            return None
        median = sorted(islice(values, count - NEAR, None))[NEAR // 2]
        if abs(x - median) < least and self.scale.kind == "symlog":
            return None
        size = max(map(abs, values))
        floor = FLOORS[self.scale.kind] * (size if self.scale.kind == "linear" else 1.0)
        return Baseline(median, max(self.step_noise(), floor, 1e-12), count, size)

    def step_noise(self) -> float:
        """Standard deviation of a value as its last single steps tell it, drifts left out; 0 without two values."""
        steps = sorted(abs(after - before) for before, after in pairwise(self._transformed))
        return MAD_TO_SIGMA * steps[len(steps) // 2] / math.sqrt(2) if steps else 0.0

    def push(self, step: int, value: float, x: float) -> None:
        """Take in a finite value: ``x`` is ``scale.transform(value)``."""
        self.count += 1
        self.last = value
        self.last_step = step
        self.recent.append(value)
        self._transformed.append(x)
        far = len(self._order) >= FEWEST and not self.is_ordinary(x) and self._is_far(x)
        # Far values that keep coming and going are no shift but the way this metric is (two modes, heavy tails): they
        # belong to its baseline. Only those before the present run of far ones count, since that may be a shift.
        before = self._far >> (~self._far & (self._far + 1)).bit_length() - 1
        self._far = (self._far << 1 | far) & 0xFFFFFFFF
        if not far or before.bit_count() >= HABIT:
            self.suspects.clear()
            self._admit(x)
            return
        middle = self._order[len(self._order) // 2]
        if self.suspects and (self.suspects[-1] > middle) != (x > middle):
            for level in self.suspects:  # now the other side: no shift, but more noise than the window has seen yet
                self._admit(level)
            self.suspects.clear()
        self.suspects.append(x)
        if len(self.suspects) >= min(PATIENCE, 2 * len(self._order)):  # a short window has less to say against them
            window = self.suspects.copy()
            self._forget_window()
            self._moved = step
            for level in window:
                self._admit(level)

    def restart(self) -> None:
        """Forget what is normal: the metric begins anew (change of temperature, phase, "new normal")."""
        self._forget_window()
        self.recent.clear()
        self._transformed.clear()

    def resume(self, step: int) -> None:
        """The run goes back to ``step``: what came after it is no longer the metric's past.

        The window stays, unless it has moved to a level of the steps that are undone.
        """
        self.recent.clear()
        self._transformed.clear()
        self.suspects.clear()
        self._far = 0
        if self._moved >= step:
            self._forget_window()
        self._moved = -1

    def _forget_window(self) -> None:
        self._window.clear()
        self._order.clear()
        self.suspects.clear()
        self._far = 0
        self._baseline = None

    def smoothed(self, rows: int) -> float:
        """Median of the last ``rows`` values (at most 16), untransformed; NaN before the first."""
        if not self.recent:
            return math.nan
        values = sorted(list(self.recent)[-rows:])
        return values[len(values) // 2]

    def smoothed_with(self, x: float, rows: int) -> float:
        """Median of the newest value ``x`` and the ``rows`` - 1 before it, on the scale."""
        values = self._transformed
        order = sorted(islice(values, max(0, len(values) - rows + 1), None))
        insort(order, x)
        return order[len(order) // 2]

    def snapshot(self) -> dict[str, Any]:
        """The state as strict JSON."""
        return {
            "count": self.count,
            "last": self.last if self.count else None,
            "last_step": self.last_step,
            "recent": list(self.recent),
            "suspects": self.suspects.copy(),
            "far": self._far,
            "moved": self._moved,
            "window": list(self._window),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` gave."""
        self.count = state["count"]
        self.last = math.nan if state["last"] is None else state["last"]
        self.last_step = state["last_step"]
        self.recent = deque(state["recent"], maxlen=RECENT)
        self._transformed = deque(map(self.scale.transform, self.recent), maxlen=RECENT)
        self.suspects = list(state["suspects"])
        self._far, self._moved = state["far"], state["moved"]
        self._window = deque(state["window"])
        self._order = sorted(self._window)
        self._baseline = None

    def _is_far(self, x: float) -> bool:
        baseline = self.baseline
        if baseline is None:
            return False
        distance = abs(x - baseline.median)
        return distance > SUSPECT_Z * baseline.least and distance > SUSPECT_Z * baseline.spread

    def _admit(self, x: float) -> None:
        self._window.append(x)
        insort(self._order, x)
        if len(self._window) > WINDOW:
            del self._order[bisect_left(self._order, self._window.popleft())]
        self._baseline = None


def _median_distance(order: list[float], median: float) -> float:
    """Median of |x - median| over a sorted list, by merging its two halves from the middle: no second sort."""
    right = bisect_left(order, median)
    left = right - 1
    count = len(order)
    distance = 0.0
    for _ in range((count + 1) // 2):
        to_left = median - order[left] if left >= 0 else math.inf
        to_right = order[right] - median if right < count else math.inf
        if to_left <= to_right:
            distance = to_left
            left -= 1
        else:
            distance = to_right
            right += 1
    return distance
