"""The engine: a fold over a run's log. State after entry n is a function of the entries up to n and of nothing else.

One step vector goes through it like this:

    order     is it the next step, more of this step, a late one, a repeat, or the next attempt?      (`ordering`)
    resolve   the trainer's names to canonical ones; non-finite values are told of and go no further
    judge     every watch sees the newest value against the past
    push      then the series take the values in
    conclude  alerts that began together become one incident
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tocsin_detectors import catalogue
from tocsin_detectors.alerts import (
    Alert,
    AlertEvent,
    Event,
    Evidence,
    Incident,
    IncidentEvent,
    Severity,
    State,
    Transition,
    derive_id,
    summarise,
)
from tocsin_detectors.algorithms import QUIET, UNDECIDED, Point, Reading
from tocsin_detectors.conditions import holds
from tocsin_detectors.entries import Entry, Rebaseline, RunConfig, StepVector, entry_to_json
from tocsin_detectors.incidents import Incidents, alert_from_state, alert_to_state
from tocsin_detectors.ordering import Order, Ordering
from tocsin_detectors.roster import MOST_SLOTS, Roster
from tocsin_detectors.rules import Condition, Rule, RuleSet, shipped_rules
from tocsin_detectors.rules.data import METRIC_MISSING, STEP_GAP, STEP_WENT_BACK, TOO_MANY_METRICS
from tocsin_detectors.rules.incident import TOGETHER
from tocsin_detectors.sentences import Form, Sentence
from tocsin_detectors.series import Series
from tocsin_detectors.slot import Slot
from tocsin_detectors.watch import Watch

__all__ = ["Engine"]

FORMAT = 1  # of the snapshot, and of whatever in this package decides beside the rules

# A new sampling temperature moves all of these at once, and none of it is news.
TEMPERATURE_FAMILIES = frozenset({"kl", "entropy", "gradient", "ratio", "mismatch", "actor", "length"})
STEPS = "training/global_step"  # the metric that alerts about the steps themselves are about
STEP_RULES = (STEP_WENT_BACK.name, STEP_GAP.name, TOO_MANY_METRICS.name)
LOOK_EVERY = 16  # rows between looks for metrics that stopped coming

_TOO_MANY = Form("more than {most:d} names; the first one too many was {name!r}")
_WENT_BACK = Form("after step {last:d} came step {step:d}: attempt {attempt:d} begins (counted from 0)")
_MISSING = Form("last seen at step {step:d}, and at every look before")


class Engine:
    """Folds the log of one run into alerts and incidents.

    Args:
        run: the run's id, as the trainer chose it.
        rules: the rules to judge by; the shipped ones if not given.
    """

    def __init__(self, run: str, rules: RuleSet | None = None) -> None:
        self.run = run
        self.rules = shipped_rules() if rules is None else rules
        self.version = f"{FORMAT}.{self.rules.version}.{catalogue.version()}"
        self.config = RunConfig()
        self._ordering = Ordering()
        self._roster = Roster(self.rules)
        self._incidents = Incidents(self.rules)
        self._alerts: dict[tuple[str, str], Alert] = {}  # firing, by (rule, metric)
        self._onset_rows: dict[tuple[str, str], int] = {}
        self._steps = {name: Watch(self.rules[name]) for name in STEP_RULES if name in self.rules}

    @property
    def attempt(self) -> int:
        """Ordinal of the current attempt, from 0."""
        return self._ordering.attempt

    @property
    def step(self) -> int | None:
        """The newest step of the current attempt; None before the first."""
        return self._ordering.step

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that fire now."""
        return tuple(self._alerts.values())

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The open incidents."""
        return tuple(self._incidents)

    def feed(self, entry: Entry) -> list[Event]:
        """Fold the next entry of the log; what it changed, in a fixed order."""
        match entry:
            case StepVector():
                return self._feed_vector(entry)
            case RunConfig():
                return self._feed_config(entry)
            case Rebaseline():
                return self._feed_rebaseline(entry)

    # The three kinds of entries

    def _feed_vector(self, vector: StepVector) -> list[Event]:
        fold = _Fold(vector.step, vector.time)
        order = self._ordering.place(vector, self._roster.has_seen)
        if order is Order.STALE or order is Order.REPLAY:
            return []
        if order is Order.BACK:
            self._open_attempt(fold, vector)
        elif order is Order.NEXT:
            self._begin_row(fold, vector)
        if self.config.finished:
            self.config = replace(self.config, finished=None)  # it goes on after all
        updates = self._roster.admit(vector, self.config)
        if self._roster.overflowed:
            detail = _TOO_MANY(most=MOST_SLOTS, name=self._roster.overflowed)
            self._roster.overflowed = ""
            self._tell_of_steps(fold, TOO_MANY_METRICS.name, detail)
        self._judge(fold, updates)
        return self._conclude(fold)

    def _feed_config(self, config: RunConfig) -> list[Event]:
        before, self.config = self.config, self.config.updated(config)
        fold = _Fold(self._ordering.step or 0, None)
        changed = self.config.temperature != before.temperature and before.temperature is not None
        if changed:
            for slot in self._roster.watched():
                if slot.family in TEMPERATURE_FAMILIES:
                    self._restart(fold, slot, "reconfigured")
        return self._conclude(fold)

    def _feed_rebaseline(self, entry: Rebaseline) -> list[Event]:
        fold = _Fold(self._ordering.step or 0, None)
        for slot in self._roster.watched():
            if entry.metric is None or entry.metric in (slot.canonical, slot.source):
                self._restart(fold, slot, "rebaselined")
        return self._conclude(fold)

    # The parts of a vector's fold

    def _open_attempt(self, fold: _Fold, vector: StepVector) -> None:
        """A resume: baselines carry over, what fires is over."""
        last, attempt = self._ordering.step, self._ordering.attempt
        for key in list(self._alerts):
            self._resolve(fold, key, "resumed")
        for slot in self._roster.watched():
            if slot.series is not None:
                slot.series.resume(vector.step)
            for watch in slot.watches:
                watch.resume()
        for watch in self._steps.values():
            watch.release()
        self._close_incidents(fold)
        self._ordering.open_attempt(vector)
        self._roster.open_attempt()
        detail = _WENT_BACK(last=last, step=vector.step, attempt=attempt + 1)
        self._tell_of_steps(fold, STEP_WENT_BACK.name, detail)

    def _begin_row(self, fold: _Fold, vector: StepVector) -> None:
        """What is to be said at a new step before its metrics are looked at."""
        for watch in self._steps.values():
            if watch.severity is not None:
                self._advance(fold, watch, STEPS, STEPS, QUIET, float(fold.step))
        if self._ordering.gap is not None:
            self._tell_of_steps(fold, STEP_GAP.name, self._ordering.gap)
        if self._ordering.row % LOOK_EVERY == 0 and METRIC_MISSING.name in self.rules:
            for slot, missing in self._roster.find_missing(self._ordering.step_before(fold.step) or 0):
                if missing and vector.metrics.get(slot.source) not in (None, *slot.absent):
                    continue  # it comes back with this very vector
                reading = Reading(sign=True, detail=_MISSING(step=slot.last_step)) if missing else QUIET
                self._check(fold, slot, METRIC_MISSING.name, reading, slot.value)

    def _tell_of_steps(self, fold: _Fold, rule: str, detail: Sentence) -> None:
        if rule in self._steps:
            self._advance(fold, self._steps[rule], STEPS, STEPS, Reading(sign=True, detail=detail), float(fold.step))

    def _judge(self, fold: _Fold, updates: list[tuple[Slot, float]]) -> None:
        row, step = self._ordering.row, fold.step
        pretraining = self._roster.pretraining or (
            self.config.critic_warmup is not None and step <= self.config.critic_warmup
        )
        pushes: list[tuple[Slot, float, float]] = []
        for slot, value in updates:
            if slot.checks or slot.least or slot.most or not slot.low <= value <= slot.high:
                for rule, reading in slot.inspect(value).items():
                    self._check(fold, slot, rule, reading, value)
                if value - value != 0.0:  # NaN or infinity goes no further: it would make the statistics deaf
                    continue
            series = slot.series
            if series is None:
                continue
            x = series.scale.transform(value)
            point = Point(row, step, value, x, pretraining)
            for watch in slot.watches:
                if value != 0.0 or not watch.rule.skip_zero:
                    self._observe(fold, slot, watch, point, series)
            if value != 0.0 or not slot.skip_zero:
                pushes.append((slot, value, x))
        for slot, value, x in pushes:
            if slot.series is not None:
                slot.series.push(step, value, x)

    def _observe(self, fold: _Fold, slot: Slot, watch: Watch, point: Point, series: Series) -> None:
        reading = watch.judge(point, series, self._holds)
        if reading.sign and watch.rule.unless and watch.severity is None and self._is_said_better(watch.rule):
            reading = UNDECIDED
        if reading.sign or watch.active:
            self._advance(fold, watch, slot.canonical, slot.source, reading, point.value)

    def _is_said_better(self, rule: Rule) -> bool:
        return any(name in rule.unless for name, _ in self._alerts)

    def _check(self, fold: _Fold, slot: Slot, rule: str, reading: Reading, value: float) -> None:
        """Move a data-quality check of a metric on; it exists only while there is something to tell."""
        if rule not in self.rules:
            return
        watch = slot.checks.get(rule)
        if watch is None:
            if not reading.sign:
                return
            watch = slot.checks[rule] = Watch(self.rules[rule])
            slot.attend()
        self._advance(fold, watch, slot.canonical, slot.source, reading, value)
        if not watch.active:
            del slot.checks[rule]
            slot.attend()

    def _advance(self, fold: _Fold, watch: Watch, metric: str, source: str, reading: Reading, value: float) -> None:
        """Move a watch on by one reading, and tell of the change in its alert."""
        key = (watch.rule.name, metric)
        transition = watch.advance(reading, fold.step)
        if transition is Transition.FIRED:
            row = self._ordering.row_of(watch.onset_step)
            alert = self._compose(watch, metric, source, reading, value, fold.step)
            self._onset_rows[key] = row
            self._alerts[key] = self._incidents.join(alert, row, self._ordering.step_before(watch.onset_step))
            fold.changed[key] = transition
        elif transition is Transition.ESCALATED:
            assert watch.severity is not None  # noqa: S101 - it fires
            evidence = _evidence(reading, value)
            alert = replace(self._alerts[key], severity=watch.severity, evidence=evidence)
            self._alerts[key] = replace(alert, summary=summarise(alert))
            fold.changed.setdefault(key, transition)
        elif transition is Transition.RESOLVED:
            self._resolve(fold, key, "new level" if watch.settled else "recovered")
            watch.release()

    def _compose(self, watch: Watch, metric: str, source: str, reading: Reading, value: float, step: int) -> Alert:
        rule = watch.rule
        assert watch.severity is not None  # noqa: S101 - it fires
        alert = Alert(
            id=derive_id(self.run, self.attempt, rule.name, metric, watch.onset_step),
            run=self.run,
            attempt=self.attempt,
            rule=rule.name,
            family=rule.family,
            severity=watch.severity,
            metric=metric,
            source=source,
            onset_step=watch.onset_step,
            fired_step=step,
            evidence=_evidence(reading, value),
            summary="",
            meaning=rule.meaning,
            remedies=rule.remedies,
        )
        return replace(alert, summary=summarise(alert))

    def _resolve(self, fold: _Fold, key: tuple[str, str], reason: str) -> None:
        firing = self._alerts.pop(key)
        if (transition := fold.changed.pop(key, None)) is not None:  # it began in this very step: tell of that first
            fold.events.append(AlertEvent(transition, firing, fold.step, fold.time))
        alert = replace(firing, state=State.RESOLVED, resolved_step=fold.step, reason=reason)
        self._onset_rows.pop(key, None)
        self._incidents.refresh(alert)
        fold.resolved.append(alert)

    def _restart(self, fold: _Fold, slot: Slot, reason: str) -> None:
        if slot.series is not None:
            slot.series.restart()
        for watch in slot.watches:
            if watch.severity is not None:
                self._resolve(fold, (watch.rule.name, slot.canonical), reason)
            watch.restart()

    def _escalate_together(self, fold: _Fold) -> None:
        """An alert whose rule says so becomes critical when alerts of certain families began near it."""
        for key, alert in self._alerts.items():
            families = self.rules[alert.rule].critical_with
            if alert.severity is Severity.CRITICAL or not families:
                continue
            row = self._onset_rows[key]
            if any(
                other.family in families
                and self.rules[other.rule].collapse
                and abs(self._onset_rows[near] - row) <= TOGETHER
                for near, other in self._alerts.items()
            ):
                critical = replace(alert, severity=Severity.CRITICAL)
                self._alerts[key] = replace(critical, summary=summarise(critical))
                self._roster.watch(*key).escalate()
                fold.changed.setdefault(key, Transition.ESCALATED)

    def _conclude(self, fold: _Fold) -> list[Event]:
        if fold.changed or fold.resolved:
            self._escalate_together(fold)
        if not (fold.changed or fold.resolved or fold.events):
            return []
        events = fold.events
        events.extend(AlertEvent(Transition.RESOLVED, alert, fold.step, fold.time) for alert in fold.resolved)
        for key, transition in fold.changed.items():
            alert = self._alerts[key]
            self._incidents.refresh(alert)
            events.append(AlertEvent(transition, alert, fold.step, fold.time))
        events.extend(
            IncidentEvent(transition, incident, fold.step, fold.time)
            for transition, incident in self._incidents.settle(fold.step)
        )
        return events

    def _close_incidents(self, fold: _Fold) -> None:
        """Tell of the end of an attempt before anything of the next one."""
        fold.events.extend(AlertEvent(Transition.RESOLVED, alert, fold.step, fold.time) for alert in fold.resolved)
        fold.resolved.clear()
        fold.events.extend(
            IncidentEvent(transition, incident, fold.step, fold.time)
            for transition, incident in self._incidents.settle(fold.step)
        )

    def _holds(self, condition: Condition) -> bool:
        return holds(condition, self.config, self._roster)

    # Snapshots

    def snapshot(self) -> dict[str, Any]:
        """The whole state as strict JSON, to :meth:`restore` from."""
        return {
            "version": self.version,
            "config": entry_to_json(self.config),
            "ordering": self._ordering.snapshot(),
            "roster": self._roster.snapshot(),
            "incidents": self._incidents.snapshot(),
            "alerts": [alert_to_state(alert) for alert in self._alerts.values()],
            "onset_rows": list(self._onset_rows.values()),
            "steps": {name: watch.snapshot() for name, watch in self._steps.items()},
        }

    @classmethod
    def restore(cls, run: str, state: Mapping[str, Any], rules: RuleSet | None = None) -> Engine:
        """The engine that gave ``state``.

        Raises:
            ValueError: the state is that of other rules or of another format: fold the log anew instead.
        """
        engine = cls(run, rules)
        if state.get("version") != engine.version:
            raise ValueError("the snapshot was made with other rules; fold the run's log from its beginning instead")
        config = {name: value for name, value in state["config"].items() if name != "kind"}
        engine.config = RunConfig(**config)
        engine._ordering.restore(state["ordering"])
        engine._roster.restore(state["roster"])
        engine._incidents.restore(state["incidents"])
        alerts = [alert_from_state(alert, engine.rules) for alert in state["alerts"]]
        engine._alerts = {(alert.rule, alert.metric): alert for alert in alerts}
        engine._onset_rows = dict(zip(engine._alerts, state["onset_rows"], strict=True))
        for name, watch in engine._steps.items():
            watch.restore(state["steps"][name])
        return engine


class _Fold:
    """What one entry changed, while it is being folded."""

    __slots__ = ("changed", "events", "resolved", "step", "time")

    def __init__(self, step: int, time: float | None) -> None:
        self.step = step
        self.time = time
        self.changed: dict[tuple[str, str], Transition] = {}
        self.resolved: list[Alert] = []
        self.events: list[Event] = []


def _evidence(reading: Reading, value: float) -> Evidence:
    detail = str(reading.detail or "")
    return Evidence(value, reading.baseline, reading.score, reading.limit, reading.window, detail)
