"""Incidents: alerts of one attempt that began together, told as one story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tocsin_detectors.alerts import (
    Alert,
    Incident,
    Severity,
    State,
    Transition,
    alert_from_json,
    alert_to_json,
    derive_id,
    incident_from_json,
    incident_to_json,
)
from tocsin_detectors.rules import RuleSet
from tocsin_detectors.rules.incident import BEHAVIOUR_FAMILIES, MODEL_COLLAPSE, TOGETHER

__all__ = ["Incidents", "alert_from_state", "alert_to_state"]


class _Open:
    """An open incident with its members as they are now and the row of the latest onset."""

    __slots__ = ("alerts", "incident", "last_row", "told")

    def __init__(self, incident: Incident, alerts: dict[str, Alert], last_row: int) -> None:
        self.incident = incident
        self.alerts = alerts
        self.last_row = last_row
        self.told: Incident | None = None  # as it was when it was last told of

    def add(self, alert: Alert) -> None:
        """Take in a member. An earlier alert of its rule and metric that is over makes room, but for the first sign:
        a metric that comes and goes must not make the incident grow for ever.
        """
        for known in list(self.alerts.values()):
            same = (known.rule, known.metric) == (alert.rule, alert.metric)
            if same and known.state is State.RESOLVED and known.id != self.incident.first_sign:
                del self.alerts[known.id]
        self.alerts[alert.id] = alert


class Incidents:
    """The open incidents of a run's current attempt."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._open: list[_Open] = []

    def __iter__(self) -> Any:
        return (entry.incident for entry in self._open)

    def join(self, alert: Alert, row: int, last_good_step: int | None) -> Alert:
        """The alert that just fired, as a member of the incident it began together with, or of a new one.

        Args:
            alert: without its incident.
            row: the row of its onset.
            last_good_step: the last logged step before its onset.
        """
        entry = self._of(row, alert.severity)
        if entry is None:
            entry = _Open(self._new(alert, last_good_step), {}, row)
            self._open.append(entry)
        alert = replace(alert, incident=entry.incident.id)
        entry.add(alert)
        entry.last_row = max(entry.last_row, row)
        if alert.onset_step < entry.incident.onset_step:
            entry.incident = replace(entry.incident, onset_step=alert.onset_step, last_good_step=last_good_step)
        return alert

    def _of(self, row: int, severity: Severity) -> _Open | None:
        """The open incident that an alert with its onset in this row belongs to.

        What a collapse still breaks long after its beginning is no news of its own: it joins the collapse. What is only
        worth a look (a resume, a gap) is no sign of anything and stays by itself.
        """
        info = severity is Severity.INFO
        kin = [entry for entry in self._open if (entry.incident.severity is Severity.INFO) == info]
        near = (entry for entry in kin if abs(row - entry.last_row) <= TOGETHER)
        collapses = (entry for entry in kin if entry.incident.rule == MODEL_COLLAPSE.name)
        return next(near, None) or next(collapses, None)

    def refresh(self, alert: Alert) -> None:
        """Take note of a member's change."""
        for entry in self._open:
            if alert.id in entry.alerts:
                entry.alerts[alert.id] = alert

    def settle(self, step: int) -> list[tuple[Transition, Incident]]:
        """Draw the conclusions of all that happened in a step: which incidents changed, and how."""
        changes: list[tuple[Transition, Incident]] = []
        for entry in self._open:
            entry.incident = self._conclude(entry, step)
            transition = _difference(entry.told, entry.incident)
            if transition is not None:
                entry.told = entry.incident
                changes.append((transition, entry.incident))
        self._open = [entry for entry in self._open if entry.incident.state is State.FIRING]
        return changes

    def _new(self, alert: Alert, last_good_step: int | None) -> Incident:
        return Incident(
            id=derive_id(alert.run, alert.attempt, "incident", alert.id),
            run=alert.run,
            attempt=alert.attempt,
            rule=alert.rule,
            title="",
            severity=alert.severity,
            onset_step=alert.onset_step,
            first_sign=alert.id,
            last_good_step=last_good_step,
            members=(),
            meaning="",
            remedies=(),
            opened_step=alert.fired_step,
        )

    def _conclude(self, entry: _Open, step: int) -> Incident:
        members = sorted(
            entry.alerts.values(), key=lambda alert: (alert.onset_step, alert.fired_step, alert.rule, alert.metric)
        )
        broken = list(dict.fromkeys(alert.family for alert in members if self._rules[alert.rule].collapse))
        collapsed = len(broken) >= 2 and not BEHAVIOUR_FAMILIES.isdisjoint(broken)
        worst = max(members, key=lambda alert: alert.severity.rank)
        # What was once a collapse stays one, even when a member has recovered.
        collapsed = collapsed or entry.incident.rule == MODEL_COLLAPSE.name
        told = MODEL_COLLAPSE if collapsed else self._rules[worst.rule]
        over = all(alert.state is State.RESOLVED for alert in members)
        return replace(
            entry.incident,
            rule=told.name,
            title=f"Model collapse: {', '.join(broken)} broke together" if collapsed else told.title,
            severity=Severity.CRITICAL
            if collapsed
            else max(worst.severity, entry.incident.severity, key=lambda s: s.rank),
            first_sign=members[0].id,
            members=tuple(alert.id for alert in members),
            meaning=told.meaning,
            remedies=told.remedies,
            state=State.RESOLVED if over else State.FIRING,
            resolved_step=step if over else None,
        )

    def snapshot(self) -> list[dict[str, Any]]:
        """The state as strict JSON."""
        return [
            {
                "incident": incident_to_json(entry.incident),
                "alerts": [alert_to_state(alert) for alert in entry.alerts.values()],
                "last_row": entry.last_row,
            }
            for entry in self._open
        ]

    def restore(self, state: list[Mapping[str, Any]]) -> None:
        """Take over what :meth:`snapshot` gave (between two vectors, when everything has been told)."""
        self._open = []
        for saved in state:
            alerts = [alert_from_state(alert, self._rules) for alert in saved["alerts"]]
            entry = _Open(
                incident_from_json(saved["incident"]), {alert.id: alert for alert in alerts}, saved["last_row"]
            )
            entry.told = entry.incident
            self._open.append(entry)


def _difference(before: Incident | None, now: Incident) -> Transition | None:
    if before is None:
        return Transition.FIRED
    if now.state is State.RESOLVED:
        return Transition.RESOLVED
    if now.severity.rank > before.severity.rank or (now.rule != before.rule and now.rule == MODEL_COLLAPSE.name):
        return Transition.ESCALATED
    return Transition.GREW if len(now.members) > len(before.members) else None


def alert_to_state(alert: Alert) -> dict[str, Any]:
    """An alert for a snapshot: without the texts that its rule has anyway."""
    data = alert_to_json(alert)
    del data["meaning"], data["remedies"]
    return data


def alert_from_state(state: Mapping[str, Any], rules: RuleSet) -> Alert:
    """The alert that :func:`alert_to_state` wrote."""
    rule = rules[state["rule"]]
    return alert_from_json({**state, "meaning": rule.meaning, "remedies": rule.remedies})
