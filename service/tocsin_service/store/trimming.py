"""What is left of what a log no longer holds: the same in every store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tocsin_detectors.alerts import Alert, Incident, State
from tocsin_detectors.entries import Entry, RunConfig, StepVector

__all__ = ["DAY", "config_after", "superseded"]

DAY = 86_400.0
RECONFIGURED = "reconfigured"


def config_after(entries: Iterable[Entry]) -> RunConfig:
    """The configuration that a fold of ``entries`` has come to."""
    config = RunConfig()
    for entry in entries:
        match entry:
            case RunConfig():
                config = config.updated(entry)
            case StepVector() if config.finished:
                config = replace(config, finished=None)  # a vector takes it back, here as in the fold
            case _:
                pass
    return config


def superseded(subject: Alert | Incident, step: int | None) -> Alert | Incident:
    """What becomes of an alert or incident that a fold by other rules can't find again.

    It began in entries that are gone. If it still fires, nobody will ever resolve it: so the change of rules does.

    Args:
        subject: as it was.
        step: step of the run at which the rules changed.
    """
    if subject.state is State.RESOLVED:
        return subject
    if isinstance(subject, Alert):
        return replace(subject, state=State.RESOLVED, resolved_step=step, reason=RECONFIGURED)
    return replace(subject, state=State.RESOLVED, resolved_step=step)
