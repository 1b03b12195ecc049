"""Silences, mutes and acknowledgements as clients send them: every problem found."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from glob import escape
from typing import Any

from tocsin_detectors.alerts import Severity, derive_id
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.api.configs import AUTHOR_LENGTH, refusal, told
from tocsin_service.api.errors import shorten
from tocsin_service.receiving.run_configs import TEXT_LENGTH, fields_of, is_text
from tocsin_service.receiving.vectors import EARLIEST, LATEST, is_time
from tocsin_service.silences import Matchers, Silence

__all__ = [
    "ACKNOWLEDGE_SCHEMA",
    "MUTE_SCHEMA",
    "SILENCE_SCHEMA",
    "decode_acknowledgement",
    "decode_author",
    "decode_mute",
    "decode_silence",
]

LONGEST_HOURS = 365 * 24.0
SHORTEST_HOURS = 0.001
COMMENT_LENGTH = 1000
MOST_LABELS = 16
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIELDS = ("id", "matchers", "starts", "ends", "hours", "author", "comment", "all")
_MATCHERS = ("run", "rule", "severity", "labels")

_PRINTABLE = "^[ -~]+$"
_AUTHOR: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": AUTHOR_LENGTH, "pattern": _PRINTABLE}
_COMMENT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": COMMENT_LENGTH, "pattern": _PRINTABLE}
_HOURS: dict[str, Any] = {"type": "number", "minimum": SHORTEST_HOURS, "maximum": LONGEST_HOURS}
_TIME: dict[str, Any] = {"type": "number", "minimum": EARLIEST, "exclusiveMaximum": LATEST}
_PATTERN: dict[str, Any] = {
    "type": ["string", "null"],
    "minLength": 1,
    "maxLength": TEXT_LENGTH,
    "pattern": _PRINTABLE,
    "description": "As in a shell: * is any text, ? any character, [ab] one of those; case matters.",
}
_LABELS: dict[str, Any] = {
    "type": ["object", "null"],
    "maxProperties": MOST_LABELS,
    "propertyNames": {"minLength": 1, "maxLength": TEXT_LENGTH, "pattern": _PRINTABLE},
    "additionalProperties": {"type": "string", "maxLength": TEXT_LENGTH, "pattern": "^[ -~]*$"},
    "description": "Name of a run's label to the pattern of its value.",
}

SILENCE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["author", "comment"],
    "oneOf": [{"required": ["hours"]}, {"required": ["ends"]}],
    "additionalProperties": False,
    "properties": {
        "id": {
            "type": "string",
            "pattern": "^[A-Za-z0-9_-]{1,64}$",
            "description": "Replaces the silence of this id; without it, a new one.",
        },
        "matchers": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "run": _PATTERN,
                "rule": _PATTERN,
                "severity": {"enum": [*map(str, Severity), None]},
                "labels": _LABELS,
            },
        },
        "starts": {**_TIME, "description": "Unix time; without it, now."},
        "ends": {**_TIME, "description": "Unix time, at most a year after the start; or give hours."},
        "hours": {**_HOURS, "description": "Hours from the start; or give ends."},
        "author": _AUTHOR,
        "comment": _COMMENT,
        "all": {"type": "boolean", "description": "True: a silence that matches everything is meant."},
    },
    "example": {"matchers": {"run": "exp-*"}, "hours": 4, "author": "mia", "comment": "planned sweep"},
}
MUTE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["hours", "author", "comment"],
    "additionalProperties": False,
    "properties": {"hours": _HOURS, "author": _AUTHOR, "comment": _COMMENT},
    "example": {"hours": 4, "author": "mia", "comment": "learning rate raised on purpose"},
}
ACKNOWLEDGE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["author"],
    "additionalProperties": False,
    "properties": {"author": _AUTHOR, "comment": {**_COMMENT, "minLength": 0, "pattern": "^[ -~]*$"}},
    "example": {"author": "mia", "comment": "looking at the responses"},
}


@dataclass(slots=True)
class _Check:
    """Collects what is wrong with the fields."""

    given: Mapping[str, Any]
    problems: list[dict[str, str]] = field(default_factory=list)

    def add(self, name: str, problem: str) -> None:
        self.problems.append({"field": name, "problem": problem})

    def text(self, name: str, longest: int, least: int = 1) -> str:
        value = self.given.get(name, "")
        if not is_text(value, longest, least):
            needed = "needed: send a" if name not in self.given else f"{shorten(value)}; send a"
            self.add(name, f"is {needed} printable text of {least} to {longest} characters")
            return ""
        return str(value)

    def hours(self) -> float:
        value: Any = self.given.get("hours")
        if type(value) not in {int, float} or not SHORTEST_HOURS <= value <= LONGEST_HOURS:
            self.add(
                "hours", f"is {shorten(value)}; send a number from {SHORTEST_HOURS} to {LONGEST_HOURS:.0f} (a year)"
            )
            return math.nan
        return float(value)

    def finish(self) -> None:
        if self.problems:
            raise refusal(self.problems)


def decode_silence(value: Any, now: float) -> Silence:
    """The silence in ``value``, a parsed JSON body. Without an id it gets one.

    Args:
        value: the body.
        now: Unix time in seconds.

    Raises:
        ApiError: 422 with every problem.
    """
    given = told(lambda one: fields_of(one, _FIELDS), value)
    check = _Check(given)
    matchers = _matchers(check)
    starts, ends = _times(check, now)
    author, comment = check.text("author", AUTHOR_LENGTH), check.text("comment", COMMENT_LENGTH)
    name = given.get("id")
    if name is not None and not (isinstance(name, str) and _ID.fullmatch(name)):
        check.add("id", "may have 1 to 64 letters, digits, _ and -")
    if not isinstance(given.get("all", False), bool):
        check.add("all", "is true or false")
    elif not given.get("all") and not check.problems and _is_all(matchers):
        check.add("matchers", 'match everything; send a run, rule, severity or label, or "all": true if that is meant')
    check.finish()
    made = derive_id("silence", now, author, comment, matchers, ends)
    return Silence(name or made, matchers, starts, ends, author, comment)


def decode_mute(value: Any, run: str, now: float, rule: str | None = None) -> Silence:
    """The silence of all that ``run`` says, or of what one rule says of it; from ``now`` on.

    Another of the same takes its place.

    Raises:
        ApiError: 422 with every problem.
    """
    check = _Check(told(lambda one: fields_of(one, ("hours", "author", "comment")), value))
    hours = check.hours()
    author, comment = check.text("author", AUTHOR_LENGTH), check.text("comment", COMMENT_LENGTH)
    check.finish()
    return _mute(run, now, hours, author, comment, rule)


def decode_acknowledgement(value: Any, run: str, incident: str, now: float) -> Acknowledgement:
    """The acknowledgement in ``value``, a parsed JSON body.

    Raises:
        ApiError: 422 with every problem.
    """
    author, comment = decode_author(value, why=False)
    return Acknowledgement(run, incident, author, comment, now)


def decode_author(value: Any, *, why: bool) -> tuple[str, str]:
    """Who wants something, and a comment, which is needed if ``why``.

    Raises:
        ApiError: 422 with every problem.
    """
    check = _Check(told(lambda one: fields_of(one, ("author", "comment")), value))
    author, comment = check.text("author", AUTHOR_LENGTH), check.text("comment", COMMENT_LENGTH, int(why))
    check.finish()
    return author, comment


def _mute(run: str, now: float, hours: float, author: str, comment: str, rule: str | None = None) -> Silence:
    matchers = Matchers(run=escape(run), rule="*" if rule is None else escape(rule))
    return Silence(derive_id("mute", run, rule or ""), matchers, now, now + hours * 3600, author, comment)


def _matchers(check: _Check) -> Matchers:
    given = check.given.get("matchers", {})
    if not isinstance(given, dict) or not set(given) <= set(_MATCHERS):
        check.add("matchers", f"must be an object with any of: {', '.join(_MATCHERS)}")
        return Matchers()
    given = {name: one for name, one in given.items() if one is not None}
    for name in ("run", "rule"):
        if not is_text(given.get(name, "*")):
            check.add(f"matchers.{name}", f"must be a printable pattern of 1 to {TEXT_LENGTH} characters")
    severity = given.get("severity")
    if severity is not None and severity not in [*map(str, Severity)]:  # no set: what was sent may have no hash
        check.add("matchers.severity", f"must be one of {', '.join(Severity)}")
    labels = given.get("labels", {})
    if not isinstance(labels, dict) or len(labels) > MOST_LABELS or not _are_texts(labels):
        check.add("matchers.labels", f"must be an object of at most {MOST_LABELS} names and patterns, which are texts")
    if check.problems:
        return Matchers()
    wanted = None if severity is None else Severity(severity)
    return Matchers(given.get("run", "*"), given.get("rule", "*"), wanted, labels)


def _are_texts(labels: Mapping[str, Any]) -> bool:
    return all(is_text(name) and is_text(pattern, least=0) for name, pattern in labels.items())


def _is_all(matchers: Matchers) -> bool:
    return matchers.severity is None and not matchers.labels and not (matchers.run + matchers.rule).strip("*")


def _times(check: _Check, now: float) -> tuple[float, float]:
    """Begin and end; whatever if there are problems."""
    given = check.given
    starts, ends = given.get("starts", now), given.get("ends")
    if not is_time(starts) or starts > now + LONGEST_HOURS * 3600:
        check.add("starts", "must be a Unix time in seconds, at most a year ahead")
        starts = now
    if ("hours" in given) == ("ends" in given):
        check.add("ends", "send either ends, a Unix time in seconds, or hours")
    elif "hours" in given:
        ends = starts + check.hours() * 3600
    elif not is_time(ends) or not starts < ends <= starts + LONGEST_HOURS * 3600:
        check.add("ends", "must be a Unix time in seconds after the start, at most a year later")
    if not check.problems and ends is not None and ends <= now:
        check.add("hours" if "hours" in given else "ends", "the silence would be over already; let it end later")
    return float(starts), math.nan if check.problems or ends is None else float(ends)
