"""Alerts and incidents as text for a terminal. Everything that came from a client is made printable first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["incident_lines", "printable", "verdict_lines"]

MARKS = {"critical": "!!", "warning": " !", "info": " i"}
WIDTH = 110


def printable(text: object) -> str:
    """Text without control characters: a run name must not be able to move the cursor or change colours."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def incident_lines(incident: Mapping[str, Any], alerts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One incident with its members: what, where, since which step, the numbers, what to do.

    Args:
        incident: as JSON.
        alerts: alerts as JSON by id; members that are missing from it are passed over.
    """
    mark = MARKS.get(incident["severity"], "  ")
    ended = "" if incident["resolved_step"] is None else f", over at step {incident['resolved_step']}"
    yield printable(f"{mark} {incident['severity'].upper()}  {incident['title']}")
    steps = f"since step {incident['onset_step']}, said at step {incident['opened_step']}{ended}"
    yield f"     {steps}; id {incident['id']}"
    if incident["last_good_step"] is not None:
        yield f"     last good step: {incident['last_good_step']}"
    for member in incident["members"]:
        if (alert := alerts.get(member)) is None:
            continue
        state = "" if alert["resolved_step"] is None else f" [{alert['reason']} at step {alert['resolved_step']}]"
        what = f"{alert['rule']} ({alert['severity']}) on {alert['metric']}"
        when = f"step {alert['onset_step']} -> {alert['fired_step']}{state}"
        yield from _wrapped(f"{what}, {when}: {alert['evidence']['detail']}", "     - ")
    yield from _wrapped(incident["meaning"], "     Meaning: ")
    for number, remedy in enumerate(incident["remedies"], 1):
        yield from _wrapped(remedy, f"     {number}. ")


def verdict_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    """A whole verdict: a headline, then every incident of it."""
    span = "no steps" if verdict["first_step"] is None else f"steps {verdict['first_step']} to {verdict['last_step']}"
    attempts = f", {verdict['attempts']} attempts" if verdict["attempts"] > 1 else ""
    said = verdict["worst"] or "quiet"
    yield printable(f"{verdict['run']}: {said.upper()}  ({verdict['vectors']} vectors, {span}{attempts})")
    alerts = {alert["id"]: alert for alert in verdict["alerts"]}
    for incident in verdict["incidents"]:
        yield from incident_lines(incident, alerts)


def _wrapped(text: str, head: str) -> list[str]:
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False
    )
