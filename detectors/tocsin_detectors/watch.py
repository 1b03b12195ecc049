"""A watch: one rule on one metric of one run, and the life of its alert.

    quiet --signs--> firing --signs--> firing, escalated --clear values--> resolved

Every change is a count of values of the metric, never of seconds: the life of an alert is part of the fold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tocsin_detectors.alerts import Severity, Transition
from tocsin_detectors.algorithms import QUIET, UNDECIDED, Algorithm, Point, Reading
from tocsin_detectors.rules import Condition, Guarded, Rule
from tocsin_detectors.series import Series

__all__ = ["Watch"]

# A warning that lasts so many values is the new level, and said often enough. What is critical stays until it recovers.
SETTLED = 128


class Watch:
    """The running state of a rule on a metric.

    Attributes:
        severity: of the alert that fires now; None while none does.
        onset_step: step at which that alert's sign began.
    """

    __slots__ = (
        "_adapts",
        "_mask",
        "_quiet",
        "_sign_steps",
        "_signs",
        "_tests",
        "_values",
        "onset_step",
        "rule",
        "severity",
    )
    severity: Severity | None
    _mask: int  # the last signs as bits, the newest lowest
    _signs: int  # signs in this episode
    _quiet: int  # clear values in a row
    _values: int  # values since it fired

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._tests: list[tuple[Algorithm, tuple[Condition, ...]]] = [
            (entry.test.start(), entry.conditions) if isinstance(entry, Guarded) else (entry.start(), ())
            for entry in rule.tests
        ]
        self._adapts = bool(self._tests) and all(algorithm.adapts for algorithm, _ in self._tests)
        self._sign_steps: deque[int] = deque(maxlen=rule.among)
        self._reset()

    def judge(self, point: Point, series: Series, holds: Callable[[Condition], bool]) -> Reading:
        """What the rule's tests say of the newest value: the first sign among them, else whether all is clear."""
        sign: Reading | None = None
        clear = True
        for algorithm, conditions in self._tests:
            reading = algorithm.update(point, series)  # each test sees every value, whatever the others say
            if reading.sign:
                if conditions and not all(map(holds, conditions)):
                    clear = False  # the value itself is no better: an alert that fires goes on
                    continue
                if sign is None or ((reading.sure, reading.severe) > (sign.sure, sign.severe)):
                    sign = reading
            elif not reading.clear:
                clear = False
        return sign or (QUIET if clear else UNDECIDED)

    def advance(self, reading: Reading, step: int) -> Transition | None:
        """Move the alert's life on by one value; the change that it makes, if any."""
        rule = self.rule
        self._mask = ((self._mask << 1) | reading.sign) & ((1 << rule.among) - 1)
        if self.severity is None:
            if not reading.sign:
                if not self._mask:
                    self.release()
                return None
            self._sign_steps.append(step)
            self._signs = self._mask.bit_count()
            # What is beyond doubt needs one sign less, but never none beside it.
            needed = rule.signs - 1 if reading.severe and rule.signs > 2 else rule.signs
            if self._signs < needed and not reading.sure:
                return None
            first = self._sign_steps[-self._signs]
            self.onset_step = first if reading.onset is None else min(first, reading.onset)
            self.severity = self._urgency(reading)
            return Transition.FIRED
        self._values += 1
        if reading.sign:
            self._quiet = 0
            self._signs += 1
            urgency = self._urgency(reading)
            if urgency.rank > self.severity.rank:
                self.severity = urgency
                return Transition.ESCALATED
        elif reading.clear:
            self._quiet += 1
            if self._quiet >= rule.recovery:
                return Transition.RESOLVED
        if self._adapts and self._values >= SETTLED and self.severity is not Severity.CRITICAL:
            return Transition.RESOLVED
        return None

    @property
    def active(self) -> bool:
        """An episode is going on: a sign has come lately, or an alert fires."""
        return self._mask != 0 or self.severity is not None

    @property
    def settled(self) -> bool:
        """The alert's time is over though the values haven't come back: they are the new level."""
        return self._quiet < self.rule.recovery

    def escalate(self) -> None:
        """Something outside (another family's alert) makes the alert critical."""
        self.severity = Severity.CRITICAL

    def release(self) -> None:
        """The episode is over: the next sign begins a new one."""
        for algorithm, _ in self._tests:
            algorithm.release()
        self._reset()

    def resume(self) -> None:
        """The run goes back to an earlier step."""
        for algorithm, _ in self._tests:
            algorithm.resume()
        self._reset()

    def restart(self) -> None:
        """The metric begins anew."""
        for algorithm, _ in self._tests:
            algorithm.restart()
        self._reset()

    def snapshot(self) -> dict[str, Any]:
        """The state as strict JSON."""
        state: dict[str, Any] = {"tests": [algorithm.snapshot() for algorithm, _ in self._tests]}
        if self._mask or self.severity is not None:
            state["episode"] = {
                "mask": self._mask,
                "signs": self._signs,
                "quiet": self._quiet,
                "values": self._values,
                "steps": list(self._sign_steps),
                "severity": self.severity,
                "onset_step": self.onset_step,
            }
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`snapshot` gave."""
        for (algorithm, _), saved in zip(self._tests, state["tests"], strict=True):
            algorithm.restore(saved)
        self._reset()
        if episode := state.get("episode"):
            self._mask, self._signs = episode["mask"], episode["signs"]
            self._quiet, self._values = episode["quiet"], episode["values"]
            self._sign_steps.extend(episode["steps"])
            self.severity = None if episode["severity"] is None else Severity(episode["severity"])
            self.onset_step = episode["onset_step"]

    def _urgency(self, reading: Reading) -> Severity:
        rule = self.rule
        severe = rule.critical_if_severe and reading.severe
        lasting = rule.critical_after is not None and self._signs >= rule.critical_after
        return Severity.CRITICAL if severe or lasting else rule.severity

    def _reset(self) -> None:
        self._mask = 0
        self._signs = 0
        self._quiet = 0
        self._values = 0
        self._sign_steps.clear()
        self.severity = None
        self.onset_step = -1
