"""A step vector as trainers send it, whichever way it comes in: what is taken, and what is wrong with the rest."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tocsin_detectors.entries import StepVector, number_from_json
from tocsin_service.receiving.json_texts import shorten
from tocsin_service.store import Record

__all__ = [
    "EARLIEST",
    "LARGEST_INTEGER",
    "LATEST",
    "Check",
    "is_integer",
    "is_metric_name",
    "is_run_id",
    "is_time",
    "read",
]

LARGEST_INTEGER = 2**53 - 1  # the largest that every JSON implementation keeps exactly
NAME_LENGTH = 256
RUN_LENGTH = 128
SEQUENCE_LENGTH = 128
EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0  # the years 2000 and 2100
FIELDS = frozenset({"step", "metrics", "time", "attempt", "sequence"})
NUMBERS = frozenset({int, float})
MOST_REMEMBERED, LONGEST_REMEMBERED = 256, 2**15  # sets of names, and characters of one


@dataclass(slots=True)
class Check:
    """Collects what is wrong with vectors.

    Attributes:
        max_metrics: most metrics in one vector.
        enough: so many problems show the pattern; looking for more is pointless.
        place: goes into the next problems, e.g. the vector's index.
    """

    max_metrics: int
    enough: int
    problems: list[dict[str, Any]] = field(default_factory=list)
    place: dict[str, int] = field(default_factory=dict)

    def add(self, field_name: str, problem: str) -> None:
        self.problems.append({**self.place, "field": field_name, "problem": problem})

    @property
    def full(self) -> bool:
        return len(self.problems) >= self.enough


def read(value: Any, now: float, check: Check, *, keyed: bool = True) -> Record | None:
    """The vector that ``value`` means, with its idempotency key; None if something is wrong, which ``check`` then has.

    Args:
        value: what a trainer sent, parsed.
        now: Unix time in seconds, taken if the vector has no time: the log must say everything.
        check: collects what is wrong.
        keyed: give a vector without a sequence a key all the same, made of what it says.
    """
    before = len(check.problems)
    if not isinstance(value, dict):
        check.add("", f'is {shorten(value)}; send an object: {{"step": 1, "metrics": {{"reward": 0.5}}}}')
        return None
    for name in value.keys() - FIELDS:
        check.add(shorten(name), f"is no field of a vector; the fields are {', '.join(sorted(FIELDS))}")
        if check.full:
            return None
    step, time, attempt, sequence = (value.get(name) for name in ("step", "time", "attempt", "sequence"))
    if not is_integer(step):
        check.add("step", f"is {_shown(value, 'step')}; send a whole number from 0 to {LARGEST_INTEGER}")
    if attempt is not None and not is_integer(attempt):
        check.add("attempt", f"is {shorten(attempt)}; send a whole number from 0, or leave it out")
    if time is not None and not is_time(time):
        check.add("time", f"is {shorten(time)}; send Unix time in seconds (years 2000 to 2100), or leave it out")
    if sequence is not None and not _is_sequence(sequence):
        check.add("sequence", f"send a printable text of 1 to {SEQUENCE_LENGTH} characters, or leave it out")
    metrics = _read_metrics(value, check)
    if metrics is None or step is None or len(check.problems) > before:
        return None
    vector = StepVector(step, metrics, now if time is None else float(time), attempt)
    return Record(vector, _key(vector, sequence, time) if keyed or sequence is not None else None)


def _shown(value: Mapping[str, Any], name: str) -> str:
    return shorten(value[name]) if name in value else "missing"


def _read_metrics(vector: Mapping[str, Any], check: Check) -> dict[str, float] | None:
    value = vector.get("metrics")
    if not isinstance(value, dict):
        check.add("metrics", f"is {_shown(vector, 'metrics')}; send an object of name and number")
        return None
    if len(value) > check.max_metrics:
        check.add("metrics", f"has {len(value)} metrics; send at most {check.max_metrics} in a vector")
        return None
    if {*map(type, value.values())} <= NUMBERS and _names(tuple(value)).good:
        try:
            return dict(zip(value, map(float, value.values()), strict=True))  # nearly always
        except OverflowError:
            pass
    metrics: dict[str, float] = {}
    for name, number in value.items():
        if not is_metric_name(name):
            check.add(f"metrics[{shorten(name)}]", f"a metric's name is 1 to {NAME_LENGTH} printable characters")
        else:
            try:
                metrics[name] = number_from_json(number)
            except ValueError:
                problem = f"is {shorten(number)}; send a number (NaN, Infinity and null are taken too)"
                check.add(f"metrics[{shorten(name)}]", problem)
        if check.full:
            break
    return metrics


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a vector's metrics.

    Attributes:
        good: all of them can be names of metrics.
        order: they in their alphabetical order.
        text: the same as JSON.
    """

    good: bool
    order: tuple[str, ...]
    text: bytes


def _names(names: tuple[str, ...]) -> _Names:
    """What there is to know of ``names``. A run sends the same ones at nearly every step, so it is remembered."""
    found = _remembered.get(names)
    if found is None:
        order = sorted(names)
        found = _Names(all(map(is_metric_name, names)), tuple(order), json.dumps(order).encode())
        if len(found.text) <= LONGEST_REMEMBERED:
            if len(_remembered) >= MOST_REMEMBERED:
                _remembered.clear()
            _remembered[names] = found
    return found


def is_integer(value: Any) -> bool:
    """Whether ``value`` is a whole number from 0 that JSON carries exactly; true and 1.0 are not."""
    return type(value) is int and 0 <= value <= LARGEST_INTEGER


def is_time(value: Any) -> bool:
    """Whether ``value`` is a Unix time in seconds in this century: milliseconds are not."""
    return type(value) in {int, float} and math.isfinite(value) and EARLIEST <= value < LATEST


def is_metric_name(value: Any) -> bool:
    """Whether ``value`` can be the name of a metric."""
    return isinstance(value, str) and 0 < len(value) <= NAME_LENGTH and value.isprintable()


def is_run_id(value: str) -> bool:
    """Whether ``value`` can be the id of a run: 1 to 128 printable characters that fit into one part of a path."""
    return (
        0 < len(value) <= RUN_LENGTH and value.isprintable() and value not in {".", ".."} and not {"/", "\\"} & {*value}
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= SEQUENCE_LENGTH and value.isprintable()


def _key(vector: StepVector, sequence: str | None, given_time: float | None) -> str:
    """The idempotency key: the same for every repetition of a post, and for nothing else."""
    digest = hashlib.blake2b(digest_size=16)
    time = None if given_time is None else float(given_time)
    digest.update(json.dumps([vector.attempt, vector.step, sequence, time]).encode())
    if sequence is None:
        names = _names(tuple(vector.metrics))
        digest.update(names.text)
        digest.update(array("d", map(vector.metrics.__getitem__, names.order)))
    return digest.hexdigest()


_remembered: dict[tuple[str, ...], _Names] = {}
