"""Step vectors as clients send them: every problem found, none stored unless all are good."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tocsin_detectors.entries import StepVector, number_from_json, number_to_json
from tocsin_service.api import body
from tocsin_service.api.errors import MOST_PROBLEMS, ApiError, shorten
from tocsin_service.store import Record

__all__ = ["LARGEST_INTEGER", "decode", "is_integer", "is_metric_name", "is_time"]

LARGEST_INTEGER = 2**53 - 1  # the largest that every JSON implementation keeps exactly
NAME_LENGTH = 256
SEQUENCE_LENGTH = 128
EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0  # the years 2000 and 2100
FIELDS = frozenset({"step", "metrics", "time", "attempt", "sequence"})


@dataclass(slots=True)
class _Check:
    """Collects what is wrong with the vectors of one body."""

    max_metrics: int
    problems: list[dict[str, Any]] = field(default_factory=list)
    place: dict[str, int] = field(default_factory=dict)

    def add(self, field_name: str, problem: str) -> None:
        self.problems.append({**self.place, "field": field_name, "problem": problem})

    @property
    def full(self) -> bool:
        return len(self.problems) >= MOST_PROBLEMS


def decode(data: bytes, content_type: str, now: float, *, max_metrics: int, max_batch: int) -> list[Record]:
    """The vectors in a request body: one, a JSON list, or one a line.

    Args:
        data: the body after decompression.
        content_type: of the request; NDJSON is also known by its looks.
        now: Unix time in seconds, taken for vectors that have no time: the log must say everything.
        max_metrics: most metrics in one vector.
        max_batch: most vectors.

    Raises:
        ApiError: 413 too many vectors; 422 with every problem (the first 20) and what to send instead.
    """
    lines = body.parse_lines(data, content_type)
    if lines is None:
        value = body.parse(data)
        placed = [({"index": index}, one) for index, one in enumerate(value if isinstance(value, list) else [value])]
    else:
        placed = [({"index": index, "line": line}, one) for index, (line, one) in enumerate(lines)]
    if not placed:
        raise ApiError(422, "the body has no vectors; send at least one", "empty")
    if len(placed) > max_batch:
        raise ApiError(413, f"the body has {len(placed)} vectors; send at most {max_batch} at a time", "too_large")
    check = _Check(max_metrics)
    records = _read_all(placed, now, check)
    if check.problems:
        raise ApiError(422, "nothing was stored: the body is not valid; see problems", "validation", check.problems)
    return records


def _read_all(placed: Iterable[tuple[dict[str, int], Any]], now: float, check: _Check) -> list[Record]:
    records: list[Record] = []
    for place, value in placed:
        check.place = place
        record = _read(value, now, check)
        if record is not None:
            records.append(record)
        if check.full:
            break
    return records


def _read(value: Any, now: float, check: _Check) -> Record | None:
    before = len(check.problems)
    if not isinstance(value, dict):
        check.add("", f'is {shorten(value)}; send an object: {{"step": 1, "metrics": {{"reward": 0.5}}}}')
        return None
    for name in value.keys() - FIELDS:
        check.add(shorten(name), f"is no field of a vector; the fields are {', '.join(sorted(FIELDS))}")
    step, time, attempt, sequence = (value.get(name) for name in ("step", "time", "attempt", "sequence"))
    if not is_integer(step):
        check.add("step", f"is {_shown(value, 'step')}; send a whole number from 0 to {LARGEST_INTEGER}")
    if attempt is not None and not is_integer(attempt):
        check.add("attempt", f"is {shorten(attempt)}; send a whole number from 0, or leave it out")
    if time is not None and not is_time(time):
        check.add("time", f"is {shorten(time)}; send Unix time in seconds (years 2000 to 2100), or leave it out")
    if sequence is not None and not _is_sequence(sequence):
        check.add("sequence", f"send a printable text of 1 to {SEQUENCE_LENGTH} characters, or leave it out")
    metrics = _read_metrics(_shown(value, "metrics"), value.get("metrics"), check)
    if metrics is None or step is None or len(check.problems) > before:
        return None
    vector = StepVector(step, metrics, now if time is None else float(time), attempt)
    return Record(vector, _key(vector, sequence, time))


def _shown(value: Mapping[str, Any], name: str) -> str:
    return shorten(value[name]) if name in value else "missing"


def _read_metrics(shown: str, value: Any, check: _Check) -> dict[str, float] | None:
    if not isinstance(value, dict):
        check.add("metrics", f"is {shown}; send an object of name and number")
        return None
    if len(value) > check.max_metrics:
        check.add("metrics", f"has {len(value)} metrics; send at most {check.max_metrics} in a vector")
        return None
    metrics: dict[str, float] = {}
    for name, number in value.items():
        if not is_metric_name(name):
            check.add(f"metrics[{shorten(name)}]", f"a metric's name is 1 to {NAME_LENGTH} printable characters")
        elif type(number) is float:  # nearly always
            metrics[name] = number
        else:
            try:
                metrics[name] = number_from_json(number)
            except ValueError:
                problem = f"is {shorten(number)}; send a number (NaN, Infinity and null are taken too)"
                check.add(f"metrics[{shorten(name)}]", problem)
        if check.full:
            break
    return metrics


def is_integer(value: Any) -> bool:
    """Whether ``value`` is a whole number from 0 that JSON carries exactly; true and 1.0 are not."""
    return type(value) is int and 0 <= value <= LARGEST_INTEGER


def is_time(value: Any) -> bool:
    """Whether ``value`` is a Unix time in seconds in this century: milliseconds are not."""
    return type(value) in {int, float} and math.isfinite(value) and EARLIEST <= value < LATEST


def is_metric_name(value: Any) -> bool:
    """Whether ``value`` can be the name of a metric."""
    return isinstance(value, str) and 0 < len(value) <= NAME_LENGTH and value.isprintable()


def _is_sequence(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= SEQUENCE_LENGTH and value.isprintable()


def _key(vector: StepVector, sequence: str | None, given_time: float | None) -> str:
    """The idempotency key: the same for every repetition of a post, and for nothing else."""
    if sequence is not None:
        identity: Any = sequence
    else:
        numbers = {name: number_to_json(value) for name, value in vector.metrics.items()}
        identity = [numbers, None if given_time is None else float(given_time)]
    text = json.dumps([vector.attempt, vector.step, identity], allow_nan=False, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
