"""Trend: a steady rise or fall over many blocks, by Mann-Kendall's test and Theil-Sen's slope.

    blocks    b_1 ... b_n: medians of `block` values each, the last `blocks` of them
    far:      Mann-Kendall S = sum over i<j of sign(b_j - b_i);  z = (S -+ 1) / sqrt(n (n-1) (2n+5) / 18)  >= z_min
    large:    Theil-Sen slope (median of all (b_j - b_i) / (j - i)) times n >= log(ratio), or `relative` sizes

Both are of ranks and medians: a spike counts once. Autocorrelation makes the z of Mann-Kendall too large, which is why
the medians of blocks are tested, and why the change has to be large as well. It lies on a series that is still on its
way to its level (warm-up), so it waits for `skip` values first.

Measured in the 11 ways in which rules use it (`python benchmarks/noise.py`), with noise of a tenth of the level: no
false alarm in 396,000 values each of white noise, AR(1) 0.6 and Student-t(3) noise; a rise by one and a half times
what it asks for, over its blocks, is found 49 values after its first (median), and 31/75/16 of 660 such changes not
at all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from tocsin_detectors.algorithms.base import QUIET, Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import Series

__all__ = ["Trend"]

_MOVED = Form(
    "from {first:.4g} to {last:.4g} (medians of {block:d} values) over {count:d} values since step {step:d}; "
    "Mann-Kendall z {z:.1f}; abnormal beyond {limit:.4g}"
)


@dataclass(frozen=True, slots=True)
class Trend(Test):
    """Parameters of the trend test.

    Attributes:
        direction: "up" or "down".
        z: least Mann-Kendall z, > 0.
        ratio: least factor over the blocks on a symlog scale, > 1.
        relative: least change in sizes of the level on another scale, > 0.
        block: values per block, >= 3.
        blocks: blocks looked at, 6 to 40.
        skip: values at the start of a run that don't count.
        at_least: a rise counts only if its last block reaches this level, in the metric's unit; None: any.
        magnitude: look at |value| (for estimates that may be of either sign).
    """

    direction: Literal["up", "down"] = "up"
    z: float = 3.3
    ratio: float = 3.0
    relative: float = 0.5
    block: int = 5
    blocks: int = 16
    skip: int = 10
    magnitude: bool = False
    at_least: float | None = None

    def __post_init__(self) -> None:
        if self.z <= 0 or self.ratio <= 1 or self.block < 3 or not 6 <= self.blocks <= 40:
            raise ValueError(f"out of range: {self}")
        if self.z > _standardised(self.blocks * (self.blocks - 1) // 2, self.blocks):
            raise ValueError(f"so few blocks never reach this z, however steady the trend: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("block", "blocks", "reading", "seen", "steps", "test")
    block: list[float]
    blocks: deque[float]
    steps: deque[int]
    seen: int
    reading: Reading

    def __init__(self, test: Trend) -> None:
        self.test = test
        self.restore({})

    def update(self, point: Point, series: Series) -> Reading:
        self.seen += 1
        if self.seen <= self.test.skip:
            return QUIET
        self.block.append(abs(point.x) if self.test.magnitude else point.x)
        if len(self.block) < self.test.block:
            return self.reading  # what the last whole block said still holds
        self.blocks.append(sorted(self.block)[self.test.block // 2])
        self.steps.append(point.step)
        self.block = []
        self.reading = self._judge(series) if len(self.blocks) >= self.test.blocks // 2 else QUIET
        return self.reading

    def _judge(self, series: Series) -> Reading:
        blocks = list(self.blocks)
        n = len(blocks)
        sign = 1 if self.test.direction == "up" else -1
        size = max(map(abs, blocks))
        needed = math.log(self.test.ratio) if series.scale.kind == "symlog" else self.test.relative * size
        # A steady change shows in two thirds of its size between the first and the last third of the blocks. Most
        # series don't come near it, and need not be looked at pair by pair.
        third = n // 3
        seen = sign * (_median(blocks[-third:]) - _median(blocks[:third]))
        if seen < 0.4 * needed:
            return QUIET
        rises = [sign * (later - earlier) for earlier, later in combinations(blocks, 2)]
        s = sum((rise > 0) - (rise < 0) for rise in rises)
        z = _standardised(s, n)
        spans = [j - i for i, j in combinations(range(n), 2)]
        slope = sorted(rise / span for rise, span in zip(rises, spans, strict=True))[len(rises) // 2]
        change = slope * (n - 1)
        first, last = series.scale.inverse(blocks[0]), series.scale.inverse(blocks[-1])
        low = self.test.at_least is not None and last < self.test.at_least
        if z < self.test.z or change < needed or low:
            return Reading(sign=False, clear=change < 0.5 * needed)
        limit = series.scale.inverse(blocks[0] + sign * needed)
        return Reading(
            sign=True,
            sure=True,
            severe=change >= 2 * needed,
            baseline=first,
            score=z,
            limit=limit,
            window=n * self.test.block,
            onset=self.steps[0],
            detail=_MOVED(
                first=first,
                last=last,
                block=self.test.block,
                count=n * self.test.block,
                step=self.steps[0],
                z=z,
                limit=limit,
            ),
        )

    def resume(self) -> None:
        self.block = []
        self.blocks.clear()
        self.steps.clear()
        self.reading = QUIET

    def snapshot(self) -> dict[str, Any]:
        return {
            "seen": self.seen,
            "block": self.block.copy(),
            "blocks": list(self.blocks),
            "steps": list(self.steps),
            "reading": self.reading.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state.get("seen", 0)
        self.block = list(state.get("block", ()))
        self.blocks = deque(state.get("blocks", ()), maxlen=self.test.blocks)
        self.steps = deque(state.get("steps", ()), maxlen=self.test.blocks)
        self.reading = Reading.restored(state["reading"]) if state else QUIET


def _standardised(s: int, blocks: int) -> float:
    """Mann and Kendall's S in its standard deviations, with the correction for continuity; 0 if it isn't positive."""
    return (s - 1) / math.sqrt(blocks * (blocks - 1) * (2 * blocks + 5) / 18) if s > 0 else 0.0


def _median(values: list[float]) -> float:
    order = sorted(values)
    return 0.5 * (order[(len(order) - 1) // 2] + order[len(order) // 2])
