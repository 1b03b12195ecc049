"""What the engine says: alerts, incidents, and the events that tell of their changes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from tocsin_detectors.entries import number_from_json, number_to_json
from tocsin_detectors.sentences import Form

__all__ = [
    "AFTER",
    "SUMMARIES",
    "Alert",
    "AlertEvent",
    "Event",
    "Evidence",
    "Incident",
    "IncidentEvent",
    "Severity",
    "State",
    "Transition",
    "alert_from_json",
    "alert_to_json",
    "derive_id",
    "incident_from_json",
    "incident_to_json",
    "summarise",
]

_AT = Form("{rule} ({severity}): {metric} at step {fired:d}: {detail}")
_SINCE = Form("{rule} ({severity}): {metric} at step {fired:d}, since step {onset:d}: {detail}")
AFTER = Form("{rule} ({severity}) after step {fired:d}: {detail}")
SUMMARIES = (_AT, _SINCE, AFTER)  # all that there are


class Severity(StrEnum):
    """How urgent an alert is; the order of the members is the order of urgency."""

    INFO = "info"  # worth a look
    WARNING = "warning"  # look today
    CRITICAL = "critical"  # page somebody: the run is being lost

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class State(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


class Transition(StrEnum):
    FIRED = "fired"  # began to fire
    ESCALATED = "escalated"  # its severity rose
    GREW = "grew"  # an incident got another member
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The arithmetic that fired, in the metric's own unit.

    Attributes:
        value: the observed value at the step of firing. May be NaN or infinite for data-quality rules.
        baseline: what was normal before (None where the rule needs no baseline).
        score: the test statistic in the algorithm's own unit (robust z, ratio, share ...), None if there is none.
        limit: the value of the metric beyond which this counts as abnormal.
        window: number of values the baseline was made of.
        detail: the same in one English sentence; ``tocsin_detectors.texts`` says it in other languages.
    """

    value: float
    baseline: float | None = None
    score: float | None = None
    limit: float | None = None
    window: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """One firing of a rule on one metric of one attempt of a run.

    Attributes:
        id: derived from (run, attempt, rule, metric, onset step): the same after every replay.
        metric: canonical name; ``source`` is the name that the trainer used.
        onset_step: first step at which the sign showed; ``fired_step``: the step at which it was sure enough to say so.
        resolved_step: step at which it ended.
        reason: why it ended: "recovered", "new level", "resumed", "rebaselined" or "reconfigured".
        incident: id of the incident it belongs to.
        summary: one line: what, where, since when, the numbers.
        meaning: what it means for the run.
        remedies: what to do, most helpful first.
    """

    id: str
    run: str
    attempt: int
    rule: str
    family: str
    severity: Severity
    metric: str
    source: str
    onset_step: int
    fired_step: int
    evidence: Evidence
    summary: str
    meaning: str
    remedies: tuple[str, ...]
    state: State = State.FIRING
    incident: str = ""
    resolved_step: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """Alerts of one attempt that began together: one message, not five.

    Attributes:
        rule: "model_collapse" once enough families broke together, else the rule of the first member.
        title: one line for people.
        severity: the highest of its members, critical for a model collapse.
        first_sign: id of the member with the earliest onset.
        onset_step: that member's onset step.
        last_good_step: last step before the onset: the checkpoint to go back to. None if it was wrong from the start.
        members: alert ids in order of onset.
    """

    id: str
    run: str
    attempt: int
    rule: str
    title: str
    severity: Severity
    onset_step: int
    first_sign: str
    last_good_step: int | None
    members: tuple[str, ...]
    meaning: str
    remedies: tuple[str, ...]
    state: State = State.FIRING
    opened_step: int = 0
    resolved_step: int | None = None


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """An alert after a change. ``step`` and ``time`` are those of the vector that caused it."""

    transition: Transition
    alert: Alert
    step: int
    time: float | None = None

    @property
    def id(self) -> str:
        return f"{self.alert.id}-{self.transition}-{self.alert.severity}"


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """An incident after a change. Emitted after the events of the alerts that caused it."""

    transition: Transition
    incident: Incident
    step: int
    time: float | None = None

    @property
    def id(self) -> str:
        return f"{self.incident.id}-{self.transition}-{self.incident.severity}-{len(self.incident.members)}"


Event: TypeAlias = AlertEvent | IncidentEvent


def derive_id(*parts: object) -> str:
    """A short stable id of its parts: 16 hex digits, the same on every machine and after every replay."""
    return hashlib.blake2b("\x1f".join(map(str, parts)).encode(errors="surrogatepass"), digest_size=8).hexdigest()


def summarise(alert: Alert, form: Form | None = None) -> str:
    """The summary of an alert: what, where, since when, the numbers.

    Args:
        alert: with its evidence; whatever it has for a summary doesn't count.
        form: of ``SUMMARIES``; the one about a metric at a step if not given.
    """
    form = form or (_AT if alert.onset_step == alert.fired_step else _SINCE)
    return str(
        form(
            rule=alert.rule,
            severity=alert.severity,
            metric=alert.metric,
            fired=alert.fired_step,
            onset=alert.onset_step,
            detail=alert.evidence.detail,
        )
    )


def alert_to_json(alert: Alert) -> dict[str, Any]:
    """An alert as a strict-JSON mapping; inverse of :func:`alert_from_json`."""
    data = _fields(alert)
    data["evidence"] = {
        name: number_to_json(value) if isinstance(value, float) else value
        for name, value in _fields(alert.evidence).items()
    }
    data["remedies"] = list(alert.remedies)
    return data


def alert_from_json(data: dict[str, Any]) -> Alert:
    """The alert that :func:`alert_to_json` wrote."""
    evidence: dict[str, Any] = {
        name: number_from_json(value) if name != "detail" and isinstance(value, str) else value
        for name, value in data["evidence"].items()
    }
    return Alert(
        **{
            **data,
            "severity": Severity(data["severity"]),
            "state": State(data["state"]),
            "evidence": Evidence(**evidence),
            "remedies": tuple(data["remedies"]),
        }
    )


def incident_to_json(incident: Incident) -> dict[str, Any]:
    """An incident as a strict-JSON mapping; inverse of :func:`incident_from_json`."""
    data = _fields(incident)
    data["members"] = list(incident.members)
    data["remedies"] = list(incident.remedies)
    return data


def incident_from_json(data: dict[str, Any]) -> Incident:
    """The incident that :func:`incident_to_json` wrote."""
    return Incident(
        **{
            **data,
            "severity": Severity(data["severity"]),
            "state": State(data["state"]),
            "members": tuple(data["members"]),
            "remedies": tuple(data["remedies"]),
        }
    )


def _fields(of: Alert | Incident | Evidence) -> dict[str, Any]:
    """By name. Much quicker than :func:`dataclasses.asdict`, which copies what can't change."""
    return {name: getattr(of, name) for name in of.__slots__}
