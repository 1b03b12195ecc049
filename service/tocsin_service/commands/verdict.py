"""The offline verdict: fold a file's step vectors and say what the service would have said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin import readers
from tocsin_detectors.alerts import (
    Alert,
    AlertEvent,
    Event,
    Incident,
    Severity,
)
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_detectors.rules import RuleSet
from tocsin_service.pictures.curves import Curve, curves_of
from tocsin_service.presentation import PLAIN, Presentation

__all__ = ["Verdict", "judge", "read_log", "read_vectors"]


@dataclass
class Verdict:
    """What was said of one run.

    Attributes:
        alerts: every alert in its last form, in the order in which they fired.
        incidents: likewise.
        starts: the index of the vector that opened each attempt but the first.
    """

    run: str
    vectors: int = 0
    first_step: int | None = None
    last_step: int | None = None
    attempts: int = 1
    alerts: dict[str, Alert] = field(default_factory=dict)
    incidents: dict[str, Incident] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """Take note of what the engine said."""
        for event in events:
            if isinstance(event, AlertEvent):
                self.alerts[event.alert.id] = event.alert
            else:
                self.incidents[event.incident.id] = event.incident

    @property
    def worst(self) -> Severity | None:
        """The highest severity of all that was said; None if nothing was."""
        said = [incident.severity for incident in self.incidents.values()]
        return max(said, key=lambda severity: severity.rank, default=None)

    def curves(self, vectors: Sequence[StepVector], config: RunConfig) -> dict[str, Curve]:
        """The curves of the alerts' metrics by the alerts' ids; ``vectors`` are those that were judged."""
        return curves_of(self.alerts.values(), vectors, self.starts, config)

    def to_json(self, shown: Presentation = PLAIN) -> dict[str, Any]:
        """The verdict as strict JSON, its texts in English if nothing else is asked for."""
        return {
            "run": self.run,
            "vectors": self.vectors,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "attempts": self.attempts,
            "worst": self.worst,
            "incidents": [shown.incident(incident) for incident in self.incidents.values()],
            "alerts": [shown.alert(alert) for alert in self.alerts.values()],
        }


def read_vectors(path: str | Path) -> list[StepVector]:
    """The step vectors of a log file in any format that :mod:`tocsin.readers` knows.

    Raises:
        tocsin.readers.ReadError: the file can't be read as a log; the message says where and why.
    """
    return read_log(path)[0]


def read_log(log: str | Path | readers.Log) -> tuple[list[StepVector], str | None]:
    """The same, and the framework that writes such logs, None if it can't be told by the format.

    Raises:
        tocsin.readers.ReadError: the log can't be read; the message says where and why.
    """
    reading = readers.read(log)
    vectors = [StepVector(vector.step, vector.metrics, vector.time) for vector in reading]
    return vectors, reading.framework


def judge(
    run: str, vectors: Iterable[StepVector], config: RunConfig | None = None, rules: RuleSet | None = None
) -> Verdict:
    """Fold vectors in the given order, exactly as the service would; by the shipped rules if no others are given."""
    engine = Engine(run, rules)
    verdict = Verdict(run)
    if config is not None and config != RunConfig():
        verdict.take(engine.feed(config))
    for vector in vectors:
        verdict.vectors += 1
        verdict.first_step = vector.step if verdict.first_step is None else min(verdict.first_step, vector.step)
        attempt = engine.attempt
        verdict.take(engine.feed(vector))
        verdict.starts += [verdict.vectors - 1] * (engine.attempt - attempt)
        verdict.last_step = engine.step
    verdict.attempts = engine.attempt + 1
    return verdict
