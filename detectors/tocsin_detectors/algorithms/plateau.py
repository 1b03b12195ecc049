"""Plateau: the smoothed level stays clearly above the level to which the metric had converged.

    level   = median of the last k values
    plateau = median of the last half of the critic's pretraining, if the data show one (critic metrics without actor
              metrics); else the lowest level, once no lower one has come for `settle` values
    sign:     level >= plateau * ratio  and  level - plateau >= z * spread
              (spread: that of the plateau's values, or of single steps now, whichever is larger)

With no pretraining to learn from, the lowest level may have been luck or an easy stretch of data: such a plateau has to
be exceeded by the square of the ratio.

Measured in the one way in which rules use it (`python benchmarks/noise.py`), with noise of a tenth of the level: no
false alarm in 36,000 values each of white noise, AR(1) 0.6 and Student-t(3) noise; a change by one and a half times
what it asks for is found 2 values after its first (median).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.algorithms.base import QUIET, Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import FLOORS, MAD_TO_SIGMA, Series

__all__ = ["Plateau"]

FALLING = 0.2  # a level lower than the lowest by so much (in log) is not converged yet
LEARN = 16  # values of the end of pretraining that are kept

_PRETRAINED = Form(
    "median of the last {smooth:d} values {now:.4g}, against a plateau of {plateau:.4g} (end of the critic's "
    "pretraining), {times:.3g} times; abnormal above {limit:.4g}"
)
_PRETRAINED_TO_ZERO = Form(
    "median of the last {smooth:d} values {now:.4g}, against a plateau of {plateau:.4g} (end of the critic's "
    "pretraining); abnormal above {limit:.4g}"
)
_SETTLED = Form(
    "median of the last {smooth:d} values {now:.4g}, against a plateau of {plateau:.4g} (lowest settled level), "
    "{times:.3g} times; abnormal above {limit:.4g}"
)
_SETTLED_AT_ZERO = Form(
    "median of the last {smooth:d} values {now:.4g}, against a plateau of {plateau:.4g} (lowest settled level); "
    "abnormal above {limit:.4g}"
)


@dataclass(frozen=True, slots=True)
class Plateau(Test):
    """Parameters of the plateau test (for positive metrics on a symlog scale that should stay down).

    Attributes:
        ratio: least factor between level and plateau, > 1.
        z: least distance in robust spreads of the plateau, > 0.
        smooth: values per level (odd), 3 to 15.
        settle: values without a lower level after which the metric counts as converged.
    """

    ratio: float = 1.5
    z: float = 4.0
    smooth: int = 5
    settle: int = 24

    def __post_init__(self) -> None:
        if self.ratio <= 1 or self.z <= 0 or not 3 <= self.smooth <= 15 or self.smooth % 2 == 0:
            raise ValueError(f"out of range: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("learned", "plateau", "pretrained", "spread", "test", "values", "waited")
    values: deque[float]
    learned: deque[float]
    pretrained: bool
    plateau: float | None
    spread: float
    waited: int

    def __init__(self, test: Plateau) -> None:
        self.test = test
        self.restore({})

    def update(self, point: Point, series: Series) -> Reading:
        if point.pretraining:
            self.learned.append(point.x)
            return QUIET
        if not self.pretrained and len(self.learned) >= self.test.smooth:
            self._settle(list(self.learned)[-max(self.test.smooth, len(self.learned) // 2) :])
            self.pretrained = True
        self.values.append(point.x)
        if len(self.values) < self.test.smooth:
            return QUIET
        level = sorted(self.values)[self.test.smooth // 2]
        if not self.pretrained:
            self._follow(level)
        if self.plateau is None or (not self.pretrained and self.waited < self.test.settle):
            return QUIET
        return self._judge(series, level)

    def _follow(self, level: float) -> None:
        """Without a pretraining: the lowest level so far, and for how long it has been the lowest."""
        self.waited += 1
        if self.plateau is None or level < self.plateau:
            if self.plateau is None or level < self.plateau - FALLING:
                self.waited = 0  # still on its way down
            self._settle(list(self.values))

    def _settle(self, values: list[float]) -> None:
        order = sorted(values)
        self.plateau = order[len(order) // 2]
        distances = sorted(abs(x - self.plateau) for x in order)
        self.spread = max(MAD_TO_SIGMA * distances[len(distances) // 2], FLOORS["symlog"])

    def _judge(self, series: Series, level: float) -> Reading:
        assert self.plateau is not None  # noqa: S101 - checked by the caller
        spread = max(self.spread, series.step_noise())
        needed = math.log(self.test.ratio) * (1 if self.pretrained else 2)
        needed = max(needed, self.test.z * spread)
        rise = level - self.plateau
        if rise < needed:
            return Reading(sign=False, clear=rise < 0.5 * needed)
        plateau, now = series.scale.inverse(self.plateau), series.scale.inverse(level)
        limit = series.scale.inverse(self.plateau + needed)
        told: dict[str, object] = {"smooth": self.test.smooth, "now": now, "plateau": plateau, "limit": limit}
        if plateau > 0:
            detail = (_PRETRAINED if self.pretrained else _SETTLED)(**told, times=now / plateau)
        else:
            detail = (_PRETRAINED_TO_ZERO if self.pretrained else _SETTLED_AT_ZERO)(**told)
        return Reading(
            sign=True,
            sure=True,
            severe=rise >= 2 * needed,
            baseline=plateau,
            score=rise / spread,
            limit=limit,
            window=self.test.smooth,
            detail=detail,
        )

    def resume(self) -> None:
        self.values.clear()

    def snapshot(self) -> dict[str, Any]:
        return {
            "values": list(self.values),
            "learned": list(self.learned),
            "pretrained": self.pretrained,
            "plateau": self.plateau,
            "spread": self.spread,
            "waited": self.waited,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.values = deque(state.get("values", ()), maxlen=self.test.smooth)
        self.learned = deque(state.get("learned", ()), maxlen=LEARN)
        self.pretrained = state.get("pretrained", False)
        self.plateau = state.get("plateau")
        self.spread = state.get("spread", 0.0)
        self.waited = state.get("waited", 0)
