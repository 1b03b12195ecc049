"""What fires, by the labels under which Prometheus and Alertmanager know it.

/metrics shows these labels and the push sends them, so that both ways lead to one alert. Prometheus' rules
(``deploy/prometheus/tocsin.rules.yml``) add the name of the alert, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_service.delivery.muting import silent_until
from tocsin_service.silences import Silence, find
from tocsin_service.store import RunSummary, Store

__all__ = ["Firing", "Labels", "Subject", "alertname", "label", "labels_by_run", "read_firing"]

MOST_FIRING = 10_000  # most firing alerts, and as many incidents, that are shown or pushed: the latest
INCIDENT = "incident"  # in a metric's place: what fires is the incident itself

Subject: TypeAlias = Alert | Incident


class Labels(NamedTuple):
    """The labels of something that fires; the names of the fields are those of the labels.

    Attributes:
        metric: canonical name of the metric; "incident" for an incident itself.
        incident: id of the incident.
    """

    run: str
    rule: str
    severity: str
    metric: str
    incident: str


def label(subject: Subject) -> Labels:
    """The labels of an alert or an incident, firing or not."""
    if isinstance(subject, Incident):
        return Labels(subject.run, subject.rule, str(subject.severity), INCIDENT, subject.id)
    return Labels(subject.run, subject.rule, str(subject.severity), subject.metric, subject.incident)


def alertname(severity: Severity) -> str | None:
    """Name of the alert in Alertmanager; None for what isn't urgent enough to be one."""
    return {Severity.CRITICAL: "TocsinRunCritical", Severity.WARNING: "TocsinRunWarning"}.get(severity)


@dataclass(frozen=True, slots=True)
class Firing:
    """An incident that fires.

    Attributes:
        alerts: those of its members that fire.
        labels: of its run, as the trainer gave them.
    """

    incident: Incident
    alerts: tuple[Alert, ...]
    labels: Mapping[str, str]

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The alerts, then the incident."""
        return (*self.alerts, self.incident)

    def silenced(self, silences: Sequence[Silence], now: float) -> set[Labels]:
        """What of it nobody wants to hear of at ``now`` (Unix seconds): single alerts, or all of it."""
        if silent_until(silences, now, self.incident, self.alerts, self.labels) is not None:
            return {label(subject) for subject in self.subjects}
        return {
            label(one)
            for one in self.alerts
            if find(silences, now, run=one.run, rule=one.rule, severity=one.severity, labels=self.labels) is not None
        }


def read_firing(store: Store, labels: Mapping[str, Mapping[str, str]]) -> list[Firing]:
    """Everything that fires in the runs of which ``labels`` are given.

    Raises:
        StoreUnavailable: the store can't be read.
    """
    members: dict[str, list[Alert]] = {}
    for alert in store.alerts(None, State.FIRING, None, MOST_FIRING):
        members.setdefault(alert.incident, []).append(alert)
    return [
        Firing(incident, tuple(reversed(members.get(incident.id, ()))), labels[incident.run])
        for incident in store.incidents(None, State.FIRING, None, MOST_FIRING)
        if incident.run in labels
    ]


def labels_by_run(runs: Iterable[RunSummary]) -> dict[str, Mapping[str, str]]:
    """The labels that trainers gave their runs."""
    return {summary.run: summary.config.labels or {} for summary in runs}
