"""A slot: one of the trainer's metric names, what it means, and who watches it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tocsin_detectors.algorithms import QUIET, Reading
from tocsin_detectors.catalogue import Resolved
from tocsin_detectors.rules import Rule
from tocsin_detectors.rules.data import IMPOSSIBLE_VALUE, NON_FINITE, VITAL_FAMILIES
from tocsin_detectors.scale import Scale
from tocsin_detectors.sentences import Form, Sentence
from tocsin_detectors.series import Series
from tocsin_detectors.watch import Watch

__all__ = ["Slot"]

LARGEST = sys.float_info.max
# Means, minima and maxima are rounded, and reduced over ranks, apart from one another.
ROUNDING = 1e-4

_NOT_FINITE = Form("{source} is {value:g}")
_BELOW_FORMULA = Form("{value:.6g} is below {low:g}, the least that its formula allows")
_ABOVE_FORMULA = Form("{value:.6g} is above {high:g}, the most that its formula allows")
_BELOW_MINIMUM = Form("the mean {value:.6g} is below the minimum {least:.6g}")
_ABOVE_MAXIMUM = Form("the mean {value:.6g} is above the maximum {most:.6g}")


class Slot:
    """A metric of a run.

    Attributes:
        source: the trainer's name, or the expression that computes it.
        canonical: the catalogue's name, or the trainer's where the catalogue knows none.
        framework: whose reading of the name was taken.
        family: what it tells of, as the catalogue says; "" if unknown.
        series: None while no rule watches the metric.
        watches: the rules that do.
        skip_zero: an exact 0 is no measurement of it.
        last_step: newest step at which it had a value in this attempt.
        value: that value, in the trainer's unit.
        absent: values that mean that nothing was measured, in the trainer's unit.
        low, high: what the metric's formula allows, in the canonical unit; all finite numbers where it allows all.
        least, most: the slots of the minimum and maximum that it is the mean of.
        checks: data-quality alerts in the making, by rule; empty while all is well.
        regular, silent: looks in a row at which it had, and had no, new value (see `Roster.find_missing`).
        attended: somebody has to look at each of its values.
    """

    __slots__ = (
        "absent", "attended", "canonical", "checks", "family", "framework", "high", "last_step", "least", "low", "most",
        "regular", "resolved", "series", "silent", "skip_zero", "source", "value", "watches",
    )  # fmt: skip

    def __init__(self, source: str, canonical: str, resolved: Resolved, framework: str | None) -> None:
        metric = resolved.metric
        self.source, self.canonical = source, canonical
        self.resolved, self.framework = resolved, framework
        self.absent = resolved.absent
        self.family = "" if metric is None else metric.family
        self.low = -LARGEST if metric is None or metric.low is None else metric.low - ROUNDING
        self.high = LARGEST if metric is None or metric.high is None else metric.high + ROUNDING
        self.series: Series | None = None
        self.watches: list[Watch] = []
        self.skip_zero = False
        self.last_step = -1
        self.value = 0.0
        self.least: Slot | None = None
        self.most: Slot | None = None
        self.checks: dict[str, Watch] = {}
        self.regular = 0
        self.silent = 0
        self.attended = False
        self.attend()

    def attend(self) -> None:
        """Find out anew whether each value has to be looked at."""
        self.attended = (
            self.series is not None
            or bool(self.checks)
            or self.least is not None
            or self.most is not None
            or self.resolved.transform is not None
        )

    def assign(self, rules: list[Rule], scale: Scale) -> None:
        """Let these rules watch the metric, on this scale."""
        self.watches = [Watch(rule) for rule in rules]
        self.series = Series(scale) if rules else None
        self.skip_zero = any(rule.keeps_zero_out for rule in rules)
        self.attend()

    def dismiss(self, rule: Rule) -> None:
        """A rule has found a better metric; an alert that fires here already lives on."""
        self.watches = [watch for watch in self.watches if watch.rule is not rule or watch.severity is not None]
        self.skip_zero = any(watch.rule.keeps_zero_out for watch in self.watches)

    def inspect(self, value: float) -> dict[str, Reading]:
        """The data-quality checks of a value that has to do with them, by rule.

        Args:
            value: in the canonical unit; may be anything.
        """
        if value - value != 0.0:
            severe = self.family in VITAL_FAMILIES
            detail = _NOT_FINITE(source=self.source, value=value)
            return {NON_FINITE.name: Reading(sign=True, severe=severe, detail=detail)}
        offence = self._offence(value)
        readings = dict.fromkeys(self.checks, QUIET)
        if offence is not None:
            readings[IMPOSSIBLE_VALUE.name] = Reading(sign=True, detail=offence)
        return readings

    def _offence(self, value: float) -> Sentence | None:
        if value < self.low:
            return _BELOW_FORMULA(value=value, low=self.low + ROUNDING)
        if value > self.high:
            return _ABOVE_FORMULA(value=value, high=self.high - ROUNDING)
        for bound, sign in ((self.least, 1), (self.most, -1)):
            if bound is None or bound.last_step != self.last_step:
                continue
            limit = bound.resolved.apply(bound.value)
            if sign * (limit - value) > ROUNDING * max(abs(value), abs(limit), ROUNDING):
                return _BELOW_MINIMUM(value=value, least=limit) if sign > 0 else _ABOVE_MAXIMUM(value=value, most=limit)
        return None

    def snapshot(self) -> list[Any]:
        """The state as strict JSON."""
        saved: list[Any] = [self.source, self.canonical, self.framework, self.last_step, self.regular, self.silent]
        if self.series is not None or self.checks:
            saved.append(
                {
                    "series": None if self.series is None else self.series.snapshot(),
                    "watches": {watch.rule.name: watch.snapshot() for watch in self.watches},
                    "checks": {name: watch.snapshot() for name, watch in self.checks.items()},
                }
            )
        return saved

    def restore(self, saved: list[Any], rules: Mapping[str, Rule], scale: Scale) -> None:
        """Take over what :meth:`snapshot` gave."""
        _, _, _, self.last_step, self.regular, self.silent, *rest = saved
        if not rest:
            return
        state = rest[0]
        if state["series"] is not None:
            self.assign([rules[name] for name in state["watches"]], scale)
            for watch in self.watches:
                watch.restore(state["watches"][watch.rule.name])
            self.series = Series(scale)
            self.series.restore(state["series"])
        for name, watch_state in state["checks"].items():
            self.checks[name] = Watch(rules[name])
            self.checks[name].restore(watch_state)
        self.attend()
