"""Whether silences cover an incident: they match alerts, and a message is about several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_detectors.rules.incident import MODEL_COLLAPSE
from tocsin_service.silences import Silence, find

__all__ = ["silent_until"]


def silent_until(
    silences: Sequence[Silence], now: float, incident: Incident, alerts: Iterable[Alert], labels: Mapping[str, str]
) -> float | None:
    """Unix time in seconds, > now, until which silences cover the incident; None if there is a reason to tell it.

    A silence of one rule must not hide what another rule found. So an incident is silent only if every alert that still
    fires in it is (all of its alerts, once it is over). A collapse is more than its alerts: it is told under a rule of
    its own, so a silence of that rule covers all of it, and silences of its alerts' rules alone don't.

    Args:
        silences: all there are.
        now: Unix time in seconds.
        incident: as it is now.
        alerts: its members.
        labels: of the run.
    """
    ends: list[float] = []
    for rule, severity in _reasons(incident, tuple(alerts)):
        silence = find(silences, now, run=incident.run, rule=rule, severity=severity, labels=labels)
        if silence is None:
            return None
        ends.append(silence.ends)
    return min(ends)


def _reasons(incident: Incident, alerts: Sequence[Alert]) -> list[tuple[str, Severity]]:
    """Rule and severity of what there would be to tell; at least one."""
    if incident.rule != MODEL_COLLAPSE.name:
        telling = [one for one in alerts if one.severity is not Severity.INFO]
        firing = [one for one in telling if one.state is State.FIRING]
        if reasons := [(one.rule, one.severity) for one in firing or telling]:
            return reasons
    return [(incident.rule, incident.severity)]
