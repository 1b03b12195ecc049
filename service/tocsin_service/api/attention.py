"""Alerts and incidents as the API shows them: with who looks after them, and what keeps them silent."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_service.api.context import Context
from tocsin_service.api.sample_links import with_samples
from tocsin_service.delivery.muting import silent_until
from tocsin_service.presentation import Presentation
from tocsin_service.silences import Silence, find

__all__ = ["Attention"]

MOST_ALERTS = 10_000  # that are looked at to see whether incidents are silent: as many as an answer may have


class Attention:
    """What people have done about alerts, looked up once for all that an answer shows.

    Args:
        context: has the store.
        shown: language and links.
        run: the one run that is shown; None: any.
    """

    def __init__(self, context: Context, shown: Presentation, run: str | None = None) -> None:
        self._context, self._shown, self._run, self._now = context, shown, run, context.clock()
        self._silences = [one for one in context.store.silences() if one.active(self._now)]
        self._acknowledged = context.store.acknowledgements(run)
        self._found: dict[tuple[str, str, Severity], Silence | None] = {}
        self._of_runs: dict[str, list[Silence]] = {}
        self._labels: dict[str, dict[str, str]] = {}

    def alerts(self, alerts: Iterable[Alert]) -> list[dict[str, Any]]:
        """Alerts as JSON."""
        return [with_samples(self._context, self._alert(one)) for one in alerts]

    def _alert(self, alert: Alert) -> dict[str, Any]:
        return {**self._shown.alert(alert), **self._told(alert.incident, self._silence_of_alert(alert))}

    def incidents(self, incidents: Iterable[Incident]) -> list[dict[str, Any]]:
        """Incidents as JSON."""
        return [{**self._shown.incident(one), **self._told(one.id, self.silence(one))} for one in incidents]

    def silence(self, incident: Incident) -> Silence | None:
        """The first to end of the silences that together keep it silent; None if they don't, or if it is over."""
        if incident.state is not State.FIRING or not (silences := self._silences_of(incident.run)):
            return None
        members, labels = self._firing.get(incident.id, ()), self._labels.get(incident.run, {})
        until = silent_until(silences, self._now, incident, members, labels)
        return next((one for one in silences if one.ends == until), None)

    def _silence_of_alert(self, alert: Alert) -> Silence | None:
        if alert.state is not State.FIRING or not (silences := self._silences_of(alert.run)):
            return None
        key, labels = (alert.run, alert.rule, alert.severity), self._labels.get(alert.run, {})
        if key not in self._found:
            run, rule, severity = key
            self._found[key] = find(silences, self._now, run=run, rule=rule, severity=severity, labels=labels)
        return self._found[key]

    @cached_property
    def _firing(self) -> dict[str, list[Alert]]:
        """The firing alerts by their incidents."""
        found: dict[str, list[Alert]] = {}
        for alert in self._context.store.alerts(self._run, State.FIRING, None, MOST_ALERTS):
            found.setdefault(alert.incident, []).append(alert)
        return found

    def _silences_of(self, run: str) -> list[Silence]:
        """Those that may be about the run; its labels are read only if one asks for labels."""
        if run not in self._of_runs:
            self._of_runs[run] = [one for one in self._silences if one.matchers.match_run(run)]
            if any(one.matchers.labels for one in self._of_runs[run]):
                summary = self._context.store.run(run)
                self._labels[run] = {} if summary is None else dict(summary.config.labels)
        return self._of_runs[run]

    def _told(self, incident: str, silence: Silence | None) -> dict[str, Any]:
        by = self._acknowledged.get(incident)
        return {
            "acknowledged": None if by is None else {"author": by.author, "comment": by.comment, "time": by.time},
            "silenced": None if silence is None else {"id": silence.id, "ends": silence.ends},
        }
