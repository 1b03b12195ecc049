"""What every algorithm is: an online test over a series, one value at a time, with its evidence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tocsin_detectors.sentences import Sentence
from tocsin_detectors.series import Series

__all__ = ["QUIET", "UNDECIDED", "Algorithm", "Direction", "Point", "Reading", "Test"]

Direction = Literal["up", "down", "both"]


@dataclass(slots=True)  # not frozen: it is made for every value, and frozen ones take three times as long
class Point:
    """The newest value of a series, not yet part of its baseline. Nobody changes it.

    Attributes:
        row: number of the run's logged step, counted from 0; steps may be several apart.
        step: the trainer's step.
        value: finite, in the metric's unit.
        x: the same on the series' scale.
        pretraining: only the critic is being trained so far (seen from the data: no actor metric has come yet).
    """

    row: int
    step: int
    value: float
    x: float
    pretraining: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What an algorithm says of one value.

    Attributes:
        sign: the value is abnormal.
        clear: the value is back to normal. Neither sign nor clear: in between, which keeps an alert as it is
            (hysteresis).
        severe: abnormal beyond any doubt.
        sure: a sign that was judged over several values already, and needs no second one beside it.
        baseline: what was normal, in the metric's unit.
        score: the test statistic.
        limit: value of the metric beyond which it is abnormal.
        window: number of values behind the baseline.
        onset: step at which the change began, if the algorithm knows it better than "now".
        detail: the arithmetic in words; a sign has it.
    """

    sign: bool
    clear: bool = False
    severe: bool = False
    sure: bool = False
    baseline: float | None = None
    score: float | None = None
    limit: float | None = None
    window: int | None = None
    onset: int | None = None
    detail: Sentence | None = None

    def snapshot(self) -> dict[str, Any]:
        """The reading as strict JSON, for an algorithm that remembers it."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "detail": str(self.detail or "")}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Reading:
        """The reading that :meth:`snapshot` gave."""
        detail = Sentence.verbatim(state["detail"]) if state["detail"] else None
        return cls(**{**state, "detail": detail})


QUIET = Reading(sign=False, clear=True)
UNDECIDED = Reading(sign=False)


class Algorithm(ABC):
    """The running state of one test on one series. Knows numbers, knows no RL.

    Attributes:
        adapts: it judges by a baseline that in time becomes the new level, so an episode that lasts may be closed.
    """

    __slots__ = ()
    adapts: ClassVar[bool] = False

    @abstractmethod
    def update(self, point: Point, series: Series) -> Reading:
        """Judge the newest value; ``series`` doesn't hold it yet, so its baseline is that of the past."""

    def release(self) -> None:  # noqa: B027 - most have nothing to let go of
        """The episode is over: let go of what was remembered of its beginning."""

    def resume(self) -> None:
        """The run goes back to an earlier step: let go of the last values, which are undone."""
        self.release()

    def restart(self) -> None:
        """The metric begins anew: forget everything."""
        self.restore({})

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """The state as strict JSON; empty if there is none."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` gave; an empty mapping is the state of a new one."""


@dataclass(frozen=True, slots=True)
class Test(ABC):
    """The parameters of an algorithm, as a rule writes them. ``start()`` makes the running state.

    Attributes:
        uses_baseline: the algorithm judges by the series' baseline, not only by what it remembers itself.
    """

    uses_baseline: ClassVar[bool] = False

    __test__: ClassVar[bool] = False  # pytest: not a test case

    @abstractmethod
    def start(self) -> Algorithm:
        """A new algorithm with these parameters."""
