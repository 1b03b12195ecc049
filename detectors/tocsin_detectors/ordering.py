"""Where a step vector belongs: the next step, more of a step, late, a repeat, or a new attempt.

Trainers log one step in several vectors, processes run ahead of one another, HTTP calls are retried, trackers replay
their history on resume, and a resume itself goes back to the last checkpoint. Told apart by what the run has seen:

    larger step                                   NEXT
    computed by Tocsin, of a step that has begun  MORE (computing takes time; it tells nothing of where the trainer is)
    no metric of it seen at this step or later    MORE (of the current step, or of an earlier one that came late)
    a step and values that were seen              REPLAY, and so are forgotten steps after it: a tracker's whole history
    an earlier step, logged before the newest one LATE: overtaken on its way, only its unseen metrics count
    an earlier step with other values             BACK: the next attempt (a resume)
    an attempt number smaller than the current    STALE
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import pairwise
from typing import Any

from tocsin_detectors.entries import StepVector
from tocsin_detectors.sentences import Form, Sentence

__all__ = ["Order", "Ordering"]

STRIDES = 9  # rows that show how far apart steps usually are
GAP = 3  # so many times as far is a gap
FIRST = 16  # vectors of an attempt's beginning that are remembered as well: a replay begins there
MEMORY = 256  # steps whose fingerprints and rows are remembered

_GAP = Form("after step {last:d} came step {step:d}; usual are {usual:d} at most")


class Order(Enum):
    NEXT = "next"
    MORE = "more"
    LATE = "late"
    REPLAY = "replay"
    BACK = "back"
    STALE = "stale"


class Ordering:
    """Rows, steps and attempts of a run. A row is a logged step, counted from 0 over all attempts."""

    __slots__ = (
        "_fingerprints",
        "_first",
        "_replaying",
        "_rows",
        "_time",
        "attempt",
        "gap",
        "row",
        "step",
        "told_attempt",
    )

    def __init__(self) -> None:
        self.row = -1
        self.step: int | None = None
        self.attempt = 0
        self.told_attempt: int | None = None  # the trainer's own number of it
        self.gap: Sentence | None = None  # what is remarkable about the newest row's distance from the last, in words
        self._time: float | None = None  # the newest time of this attempt
        self._rows: deque[int] = deque(maxlen=MEMORY)  # the steps of the last rows of this attempt
        self._fingerprints: deque[tuple[int, float]] = deque(maxlen=MEMORY)
        self._first: list[tuple[int, float]] = []  # those of the attempt's first vectors, where a replay begins
        self._replaying = False

    def place(self, vector: StepVector, has_seen: Callable[[str, int], bool]) -> Order:
        """Place a vector and take note of it (for BACK, :meth:`open_attempt` does).

        Args:
            vector: the newest entry of the log.
            has_seen: whether a metric (the trainer's name) has had a value at this step or a later one.
        """
        told = vector.attempt
        if told is not None and self.told_attempt is not None and told != self.told_attempt:
            return Order.BACK if told > self.told_attempt else Order.STALE
        if told is not None:
            self.told_attempt = told
        if vector.computed and self.step is not None and vector.step <= self.step:
            return Order.MORE
        fingerprint = _fingerprint(vector.metrics)
        if self.step is None or vector.step > self.step:
            self._begin_row(vector)
            self._remember(vector.step, fingerprint)
            return Order.NEXT
        if not any(has_seen(name, vector.step) for name in vector.metrics):
            self._remember(vector.step, fingerprint)
            return Order.MORE
        if self._is_replay(vector.step, fingerprint):
            return Order.REPLAY
        if vector.step == self.step or told is not None:
            return Order.MORE  # some of its metrics are news; those that were seen keep their first value
        if vector.time is not None and self._time is not None and vector.time < self._time:
            return Order.LATE
        return Order.BACK

    def open_attempt(self, vector: StepVector) -> None:
        """Begin the next attempt with this vector."""
        self.attempt += 1
        self.told_attempt = vector.attempt if vector.attempt is not None else self.told_attempt
        self._rows.clear()
        self._fingerprints.clear()
        self._first.clear()
        self._replaying = False
        self._time = None
        self._begin_row(vector)
        self._remember(vector.step, _fingerprint(vector.metrics))

    def row_of(self, step: int) -> int:
        """The row at which a step of this attempt was logged; the earliest one remembered if it is older."""
        behind = len(self._rows) - bisect_left(self._rows, step)
        return self.row - max(behind - 1, 0)

    def step_before(self, step: int) -> int | None:
        """The last logged step of this attempt before ``step``; None if there is none."""
        index = bisect_left(self._rows, step)
        return self._rows[index - 1] if index else None

    def snapshot(self) -> dict[str, Any]:
        """The state as strict JSON."""
        return {
            "row": self.row,
            "step": self.step,
            "attempt": self.attempt,
            "told_attempt": self.told_attempt,
            "time": self._time,
            "rows": list(self._rows),
            "fingerprints": [list(pair) for pair in self._fingerprints],
            "first": [list(pair) for pair in self._first],
            "replaying": self._replaying,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` gave."""
        self.row, self.step, self.attempt = state["row"], state["step"], state["attempt"]
        self.told_attempt, self._time = state["told_attempt"], state["time"]
        self._rows = deque(state["rows"], maxlen=MEMORY)
        self._fingerprints = deque(((step, value) for step, value in state["fingerprints"]), maxlen=MEMORY)
        self._first = [(step, value) for step, value in state["first"]]
        self._replaying = state["replaying"]

    def _remember(self, step: int, fingerprint: float) -> None:
        self._fingerprints.append((step, fingerprint))
        if len(self._first) < FIRST:
            self._first.append((step, fingerprint))

    def _is_replay(self, step: int, fingerprint: float) -> bool:
        """Whether this was here before. Of what lies too far back to be remembered, a replay that has begun decides."""
        known = (step, fingerprint)
        if known in self._fingerprints:
            return True
        if known in self._first:
            self._replaying = True
            return True
        return self._replaying and self._first[-1][0] < step < self._fingerprints[0][0]

    def _begin_row(self, vector: StepVector) -> None:
        self.gap = self._describe_gap(vector.step)
        self.row += 1
        self.step = vector.step
        self._rows.append(vector.step)
        if vector.time is not None:
            self._time = vector.time if self._time is None else max(self._time, vector.time)

    def _describe_gap(self, step: int) -> Sentence | None:
        if len(self._rows) < STRIDES:
            return None
        last = list(self._rows)[-STRIDES:]
        usual = max(later - earlier for earlier, later in pairwise(last))
        stride = step - last[-1]
        return _GAP(last=last[-1], step=step, usual=usual) if stride > GAP * usual else None


def _fingerprint(metrics: Mapping[str, float]) -> float:
    """A number that two vectors share only if they say the same: the exact sum of the finite values, in any order."""
    try:
        total = math.fsum(sorted(metrics.values()))  # whether a sum overflows on its way depends on the order
    except (ValueError, OverflowError):  # infinities of both signs, or a sum beyond the range
        total = math.nan
    if total - total == 0.0:
        return total
    try:
        return math.fsum(sorted(value for value in metrics.values() if math.isfinite(value)))
    except OverflowError:
        return 0.0
