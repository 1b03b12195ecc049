"""Bound: a value outside limits that hold from the first step, whatever the run's own history.

    sign:  value > above,  or value < below,  or |value| > beyond
    severe: farther than `severe`

The only test that sees what is wrong from the start. It lies wherever a level is a matter of taste: reserve it for
what a formula or long experience fixes.

Measured in the 32 ways in which rules use it (`python benchmarks/noise.py`), with the level three standard deviations
inside the limit: no false alarm in 1,152,000 values of white noise, 26 of AR(1) 0.6, 17 of Student-t(3); a level as
far outside is found 3 values after its first (median).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.algorithms.base import QUIET, Algorithm, Point, Reading, Test
from tocsin_detectors.sentences import Form
from tocsin_detectors.series import Series

__all__ = ["Bound"]

_ABOVE = Form("{value:.4g} is above {limit:.4g}, the limit that holds for every run")
_BELOW = Form("{value:.4g} is below {limit:.4g}, the limit that holds for every run")
_BEYOND = Form("|{value:.4g}| is above {limit:.4g}, the limit that holds for every run")


@dataclass(frozen=True, slots=True)
class Bound(Test):
    """Parameters of the bound test, in the metric's unit; give exactly one of the first three.

    Attributes:
        above: sign when the value is larger.
        below: sign when the value is smaller.
        beyond: sign when |value| is larger: a value that should be 0.
        severe: the limit beyond which there's no doubt, on the same side; None: never severe.
        skip: values at the start of a run that don't count.
        until: only so many values at the start of a run count; None: all.
    """

    above: float | None = None
    below: float | None = None
    beyond: float | None = None
    severe: float | None = None
    skip: int = 0
    until: int | None = None

    def __post_init__(self) -> None:
        if sum(limit is not None for limit in (self.above, self.below, self.beyond)) != 1:
            raise ValueError(f"give exactly one of above, below, beyond: {self}")

    def start(self) -> Algorithm:
        return _State(self)


class _State(Algorithm):
    __slots__ = ("test",)

    def __init__(self, test: Bound) -> None:
        self.test = test

    def update(self, point: Point, series: Series) -> Reading:
        test = self.test
        if series.count < test.skip or (test.until is not None and series.count >= test.until):
            return QUIET
        if test.below is not None:
            # Mirrored, so that one comparison serves all three.
            value, limit, severe = -point.value, -test.below, None if test.severe is None else -test.severe
        elif test.above is not None:
            value, limit, severe = point.value, test.above, test.severe
        else:
            value, limit, severe = abs(point.value), test.beyond or 0.0, test.severe
        if value <= limit:
            return QUIET
        given = test.below if test.below is not None else limit
        detail = _BELOW if test.below is not None else _ABOVE if test.above is not None else _BEYOND
        return Reading(
            sign=True,
            severe=severe is not None and value > severe,
            limit=given,
            window=1,
            detail=detail(value=point.value, limit=given),
        )

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        del state  # it has none
