"""Entries of a run's stream: those of the service, and step vectors and configurations that a trainer wrote by hand.

What a trainer writes is judged once, when it is first read in order: it is admitted, or it goes to the dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tocsin_detectors.entries import Entry, RunConfig, StepVector
from tocsin_service.receiving import json_texts, run_configs, vectors
from tocsin_service.store.encoding import entry_from_text
from tocsin_service.store.redis import keys

__all__ = ["NO_LIMITS", "Bad", "Config", "Judged", "Limits", "Own", "Vector", "decode", "judge"]

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Limits:
    """What a vector may be: most metrics, and most bytes of its text."""

    metrics: int
    bytes: int


NO_LIMITS = Limits(UNLIMITED, UNLIMITED)


@dataclass(frozen=True, slots=True)
class Own:
    """Says that the service wrote it, under this idempotency key: Redis knows whether that is so."""

    entry: Entry
    key: str


@dataclass(frozen=True, slots=True)
class Vector:
    """A good vector by a trainer. ``key``: its idempotency key if it carries a sequence, else None."""

    entry: StepVector
    key: str | None


@dataclass(frozen=True, slots=True)
class Config:
    """A good configuration by a trainer."""

    entry: RunConfig


@dataclass(frozen=True, slots=True)
class Bad:
    """None of these, and why."""

    reason: str


Judged: TypeAlias = Own | Vector | Config | Bad


def judge(entry: str, fields: Mapping[str, str], limits: Limits) -> Judged:
    """What an entry of a stream is.

    Args:
        entry: its id; the time in it stands for a time that a vector lacks.
        fields: its fields; bytes that are no UTF-8 in them as lone surrogates.
        limits: for vectors of trainers.
    """
    if not keys.is_position(entry):
        return Bad("the id is too large; let Redis choose it: XADD KEY * vector JSON")
    match dict(fields):
        case {"entry": text, "key": key, **rest} if not rest:
            try:
                return Own(entry_from_text(text), key)
            except Exception as error:  # noqa: BLE001 - whatever somebody has put there
                return Bad(f"the field 'entry' is the service's own and can't be read: {type(error).__name__}")
        case {"vector": text, **rest} if not rest:
            return _judge_vector(entry, text, limits)
        case {"config": text, **rest} if not rest:
            return _judge_config(text, limits)
    names = ", ".join(json_texts.shorten(name, 40) for name in sorted(fields)[:5])
    return Bad(f"the fields are {names}; send one field: vector or config")


def decode(entry: str, fields: Mapping[str, str]) -> Entry:
    """An entry that was admitted once, by whatever limits there were then.

    Raises:
        ValueError: it was not.
    """
    found = judge(entry, fields, NO_LIMITS)
    if isinstance(found, Bad):
        raise ValueError(found.reason)  # noqa: TRY004 - not the caller's type is wrong
    return found.entry


def _judge_vector(entry: str, text: str, limits: Limits) -> Vector | Bad:
    value = _parse("vector", text, limits)
    if isinstance(value, Bad):
        return value
    check = vectors.Check(limits.metrics, enough=3)
    record = vectors.read(value, keys.seconds(entry), check, keyed=False)
    if record is None or not isinstance(record.entry, StepVector):
        return Bad("; ".join(_problem(**found) for found in check.problems))
    return Vector(record.entry, record.key)


def _judge_config(text: str, limits: Limits) -> Config | Bad:
    value = _parse("config", text, limits)
    if isinstance(value, Bad):
        return value
    try:
        return Config(run_configs.read(value))
    except run_configs.ConfigRefused as error:
        return Bad("; ".join(_problem(**found) for found in error.problems[:3]) or str(error))


def _parse(name: str, text: str, limits: Limits) -> Any:
    """The JSON value of a field; Bad if there is none."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return Bad(f"the {name} is not UTF-8")
    if size > limits.bytes:
        return Bad(f"the {name} has more than {limits.bytes} bytes")
    try:
        return json_texts.parse(text)
    except json_texts.JsonError as error:
        return Bad(str(error))


def _problem(field: str, problem: str) -> str:
    return f"{field} {problem}".strip()
