"""Rank shift: the last values rank lower (or higher) than those before them, by the test of Mann and Whitney.

    U      how many pairs (earlier, later) are in the direction asked for, ties half
    far:   (U - n k / 2) / sigma >= z,    n earlier values, k later ones, N = n + k, t values in a tie
           sigma^2 = n k / 12 * (N + 1 - sum(t^3 - t) / (N (N - 1)))
    large: the trimmed means differ by `relative` sizes of the earlier level (on any scale)

Finds the shift that hides in the noise of single values: ranks don't care how heavy the tails are, and many values
speak together. It is slow (it needs most of its `later` values) and lies where neighbours depend on one another, as
after a change of the data's difficulty; so it warns, and leaves paging to tests of more than one metric. Judged at
every fourth value.

Measured in the two ways in which rules use it (`python benchmarks/noise.py`), with noise of a tenth of the level: no
false alarm in 72,000 values each of white noise, AR(1) 0.6 and Student-t(3) noise; a change by one and a half times
what it asks for is found 13 values after its first (median) by the last 20 values, and 25 by the last 40.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from tocsin_detectors.algorithms.base import QUIET, UNDECIDED, Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import Series

__all__ = ["RankShift"]

EVERY = 4  # values between looks: neighbouring looks see nearly the same values

_RISEN = Form(
    "mean of the last {later:d} values {new:.4g}, of the {earlier:d} before {old:.4g} (outer tenths left out); "
    "{share:.0%} of all pairs go up; z {z:.1f}, abnormal from {least:g}"
)
_FALLEN = Form(
    "mean of the last {later:d} values {new:.4g}, of the {earlier:d} before {old:.4g} (outer tenths left out); "
    "{share:.0%} of all pairs go down; z {z:.1f}, abnormal from {least:g}"
)


@dataclass(frozen=True, slots=True)
class RankShift(Test):
    """Parameters of the rank-shift test.

    Attributes:
        direction: "up" or "down".
        z: least standardised U, > 0.
        relative: least difference of the two trimmed means in sizes of the earlier one, > 0.
        later: newest values, 5 to 40.
        earlier: values before them, `later` to 120.
    """

    direction: Literal["up", "down"] = "down"
    z: float = 4.0
    relative: float = 0.35
    later: int = 20
    earlier: int = 60

    def __post_init__(self) -> None:
        if self.z <= 0 or self.relative <= 0 or not 5 <= self.later <= 40 or not self.later <= self.earlier <= 120:
            raise ValueError(f"out of range: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("reading", "seen", "test", "values")
    values: deque[float]
    seen: int
    reading: Reading

    def __init__(self, test: RankShift) -> None:
        self.test = test
        self.restore({})

    def update(self, point: Point, series: Series) -> Reading:
        self.values.append(point.x)
        self.seen += 1
        if self.seen % EVERY == 0 and len(self.values) >= 2 * self.test.later:
            self.reading = self._judge(series)
        return self.reading

    def _judge(self, series: Series) -> Reading:
        test = self.test
        n, k = len(self.values) - test.later, test.later
        before = sorted(islice(self.values, n))
        after = sorted(islice(self.values, n, None))
        level, now = _trimmed_mean(before), _trimmed_mean(after)
        size = max(abs(level), 0.5 * abs(before[n // 10]), 0.5 * abs(before[-1 - n // 10]))
        change = now - level if test.direction == "up" else level - now
        if change < test.relative * size or change <= 0:
            return QUIET if change <= 0.5 * test.relative * size else UNDECIDED
        below = sum(0.5 * (bisect_left(before, x) + bisect_right(before, x)) for x in after)  # earlier ones below later
        pairs = below if test.direction == "up" else n * k - below
        total = n + k
        ties = sum(count**3 - count for count in Counter([*before, *after]).values())
        z = (pairs - n * k / 2) / math.sqrt(n * k / 12 * (total + 1 - ties / (total * (total - 1))))
        if z < test.z:
            return UNDECIDED
        old, new = series.scale.inverse(level), series.scale.inverse(now)
        return Reading(
            sign=True,
            sure=True,
            baseline=old,
            score=z,
            limit=series.scale.inverse(level + (1 if test.direction == "up" else -1) * test.relative * size),
            window=n,
            detail=(_RISEN if test.direction == "up" else _FALLEN)(
                later=k, new=new, earlier=n, old=old, share=pairs / (n * k), z=z, least=test.z
            ),
        )

    def resume(self) -> None:
        self.restart()

    def snapshot(self) -> dict[str, Any]:
        return {"values": list(self.values), "seen": self.seen, "reading": self.reading.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.values = deque(state.get("values", ()), maxlen=self.test.earlier + self.test.later)
        self.seen = state.get("seen", 0)
        self.reading = Reading.restored(state["reading"]) if state else QUIET


def _trimmed_mean(order: list[float]) -> float:
    tail = len(order) // 10
    inner = order[tail : len(order) - tail]
    return math.fsum(inner) / len(inner)
