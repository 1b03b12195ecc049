"""What the stores keep, as texts: strict JSON, the same in every store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson

from tocsin_detectors.alerts import (
    Alert,
    AlertEvent,
    Event,
    Incident,
    Severity,
    State,
    alert_from_json,
    alert_to_json,
    incident_from_json,
    incident_to_json,
)
from tocsin_detectors.entries import Entry, RunConfig, entry_from_json, entry_to_json
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.audit import Act
from tocsin_service.silences import Silence, silence_from_json, silence_to_json
from tocsin_service.store import Told

__all__ = [
    "KINDS",
    "Kind",
    "Subject",
    "acknowledgement_from_text",
    "acknowledgement_text",
    "act_from_text",
    "act_text",
    "alert_from_text",
    "config_fields",
    "config_from_text",
    "config_text",
    "dump",
    "encode_subject",
    "entry_from_text",
    "entry_text",
    "incident_from_text",
    "silence_from_text",
    "silence_text",
    "state_text",
    "subject_from_text",
    "subject_of",
    "told_from_text",
    "told_text",
]

Kind = Literal["alerts", "incidents"]
KINDS: tuple[Kind, Kind] = ("alerts", "incidents")


@dataclass(frozen=True, slots=True)
class Subject:
    """The alert or incident that an event is about, in the form in which it is kept."""

    kind: Kind
    id: str
    state: State
    severity: Severity
    text: str


def dump(data: Any) -> str:
    """``data`` as strict JSON without blanks."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


# Entries are most of what is written and read, and have no numbers that orjson would turn into null: those are texts.
def entry_text(entry: Entry) -> str:
    return orjson.dumps(entry_to_json(entry)).decode()


def entry_from_text(text: str) -> Entry:
    return entry_from_json(orjson.loads(text))


# A state is large, and has no number that isn't finite: the engine promises strict JSON.
def state_text(state: Mapping[str, Any]) -> str:
    return orjson.dumps(state).decode()


def config_fields(config: RunConfig) -> Mapping[str, Any]:
    """The fields that are set."""
    return {name: value for name, value in asdict(config).items() if value is not None and value != {}}


def config_text(config: RunConfig) -> str:
    return dump(config_fields(config))


def config_from_text(text: str) -> RunConfig:
    return RunConfig(**json.loads(text))


def subject_of(event: Event) -> Subject:
    return encode_subject(event.alert if isinstance(event, AlertEvent) else event.incident)


def encode_subject(subject: Alert | Incident) -> Subject:
    kind: Kind = "alerts" if isinstance(subject, Alert) else "incidents"
    data = alert_to_json(subject) if isinstance(subject, Alert) else incident_to_json(subject)
    return Subject(kind, subject.id, subject.state, subject.severity, dump(data))


def subject_from_text(kind: Kind, text: str) -> Alert | Incident:
    return alert_from_text(text) if kind == "alerts" else incident_from_text(text)


def alert_from_text(text: str) -> Alert:
    return alert_from_json(json.loads(text))


def incident_from_text(text: str) -> Incident:
    return incident_from_json(json.loads(text))


def told_text(told: Told) -> str:
    return dump([told.rule, told.severity, told.state, told.time, told.thread, told.acknowledged])


def told_from_text(text: str) -> Told:
    rule, severity, state, time, *later = json.loads(text)  # texts of old have only these
    return Told(rule, Severity(severity), State(state), time, *later)


def acknowledgement_text(acknowledgement: Acknowledgement) -> str:
    return dump(asdict(acknowledgement))


def acknowledgement_from_text(text: str) -> Acknowledgement:
    return Acknowledgement(**json.loads(text))


def act_text(act: Act) -> str:
    return dump([act.time, act.actor, act.action, act.subject, dict(act.detail)])


def act_from_text(text: str) -> Act:
    return Act(*json.loads(text))


def silence_text(silence: Silence) -> str:
    return dump(silence_to_json(silence))


def silence_from_text(text: str) -> Silence:
    return silence_from_json(json.loads(text))
