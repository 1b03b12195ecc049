"""Routes: which receivers an incident is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tocsin_detectors.alerts import Alert, Incident, Severity
from tocsin_service.silences import Matchers

__all__ = ["Route", "is_for", "matching", "recipients"]


@dataclass(frozen=True, slots=True)
class Route:
    """Incidents that match are for these receivers.

    Attributes:
        matchers: of the run, its labels, the incident's severity, and its rule or that of any of its alerts.
        to: names of receivers; empty: nobody is told, on purpose.
        goes_on: whether the routes behind it are looked at too; by default the first that matches decides.
    """

    matchers: Matchers
    to: tuple[str, ...]
    goes_on: bool = False


def matching(
    routes: Iterable[Route], *, run: str, severity: Severity, rules: Iterable[str], labels: Mapping[str, str]
) -> tuple[Route, ...]:
    """The routes that decide whom an incident is for: up to the first that matches and lets nothing go on.

    Args:
        routes: in order.
        run: its id.
        severity: of the incident.
        rules: the incident's rule and those of its alerts.
        labels: of the run.
    """
    names, found = list(rules), list[Route]()
    for route in routes:
        if any(route.matchers.match(run, rule, severity, labels) for rule in names):
            found.append(route)
            if not route.goes_on:
                break
    return tuple(found)


def recipients(
    routes: Iterable[Route],
    everybody: Iterable[str],
    *,
    run: str,
    severity: Severity,
    rules: Iterable[str],
    labels: Mapping[str, str],
) -> frozenset[str]:
    """Whom an incident is for. If no route matches: for everybody, as nothing should be lost by an oversight."""
    found = matching(routes, run=run, severity=severity, rules=rules, labels=labels)
    return frozenset(name for route in found for name in route.to) if found else frozenset(everybody)


def is_for(
    routes: Sequence[Route], receiver: str, incident: Incident, alerts: Iterable[Alert], labels: Mapping[str, str]
) -> bool:
    """Whether the incident, of which ``alerts`` are members, is for that receiver."""
    rules = {incident.rule, *(alert.rule for alert in alerts)}
    return receiver in recipients(
        routes, (receiver,), run=incident.run, severity=incident.severity, rules=rules, labels=labels
    )
