"""Run configurations and re-baselines as clients send them: every problem found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

from tocsin_detectors.entries import Rebaseline, RunConfig
from tocsin_service.api.errors import MOST_PROBLEMS, ApiError, shorten
from tocsin_service.api.vectors import LARGEST_INTEGER, is_integer, is_metric_name

__all__ = ["CONFIG_SCHEMA", "REBASELINE_SCHEMA", "decode_config", "decode_rebaseline"]

TEXT_LENGTH = 256
LINK_LENGTH = 2000
MOST_LABELS = 64
NOTE_LENGTH = 1000

_HINTS = get_type_hints(RunConfig)
_ALGORITHMS = ("ppo", "grpo", "dapo", "rloo", "reinforce", "gspo", "other")
_TEXT: dict[str, Any] = {"type": ["string", "null"], "minLength": 1, "maxLength": TEXT_LENGTH, "pattern": "^[ -~]+$"}
_COUNT: dict[str, Any] = {"type": ["integer", "null"], "minimum": 0, "maximum": LARGEST_INTEGER}
_POSITIVE = {"type": ["number", "null"], "exclusiveMinimum": 0}

CONFIG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "algorithm": {**_TEXT, "description": f"Usual: {', '.join(_ALGORITHMS)}."},
        "framework": _TEXT,
        "group_size": {**_COUNT, "minimum": 1},
        "target_kl": _POSITIVE,
        "temperature": _POSITIVE,
        "profile": {"enum": ["dense", "moe", None]},
        "critic_warmup": _COUNT,
        "actor_warmup": _COUNT,
        "advantage_mean": {"enum": ["token", "sequence", None]},
        "whitened_advantages": {"type": ["boolean", "null"]},
        "finished": {"type": ["boolean", "null"]},
        "labels": {
            "type": ["object", "null"],
            "maxProperties": MOST_LABELS,
            "propertyNames": {"minLength": 1, "maxLength": TEXT_LENGTH, "pattern": "^[ -~]+$"},
            "additionalProperties": {"type": "string", "maxLength": TEXT_LENGTH, "pattern": "^[ -~]*$"},
        },
        "link": {**_TEXT, "maxLength": LINK_LENGTH},
    },
    "example": {"algorithm": "grpo", "framework": "verl", "group_size": 8},
}
_NOTE: dict[str, Any] = {"type": ["string", "null"], "maxLength": NOTE_LENGTH, "pattern": "^[ -~]*$"}
REBASELINE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"metric": _TEXT, "note": _NOTE},
    "example": {"metric": "actor/entropy", "note": "temperature raised on purpose"},
}


def decode_config(value: Any) -> RunConfig:
    """The configuration in ``value``, a parsed JSON body; fields that are null count as not given.

    Raises:
        ApiError: 422 with every problem.
    """
    given = _object(value, tuple(_HINTS))
    problems: list[dict[str, str]] = []
    for name, one in given.items():
        is_good, wanted = _CONFIG[name]
        if not is_good(one):
            problems.append({"field": name, "problem": f"is {shorten(one)}; send {wanted}"})
    _refuse(problems)
    for name in given.keys() & {"algorithm", "framework"}:
        given[name] = given[name].lower()
    return RunConfig(**given)


def decode_rebaseline(value: Any) -> Rebaseline:
    """The re-baseline in ``value``, a parsed JSON body.

    Raises:
        ApiError: 422 with every problem.
    """
    given = _object(value, ("metric", "note"))
    problems = []
    if "metric" in given and not is_metric_name(given["metric"]):
        problems.append({"field": "metric", "problem": "send a metric's name, or leave it out to mean all metrics"})
    if not _is_text(given.get("note", ""), NOTE_LENGTH, least=0):
        problems.append({"field": "note", "problem": f"send a printable text of at most {NOTE_LENGTH} characters"})
    _refuse(problems)
    return Rebaseline(given.get("metric"), given.get("note", ""))


def _object(value: Any, fields: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(422, f"send a JSON object with any of: {', '.join(fields)}", "validation")
    unknown = [name for name in value if name not in fields]
    _refuse([{"field": shorten(name), "problem": f"is unknown; send any of: {', '.join(fields)}"} for name in unknown])
    return {name: one for name, one in value.items() if one is not None}


def _refuse(problems: list[dict[str, str]]) -> None:
    if problems:
        raise ApiError(
            422, "nothing was stored: the body is not valid; see problems", "validation", problems[:MOST_PROBLEMS]
        )


def _is_text(value: Any, longest: int = TEXT_LENGTH, least: int = 1) -> bool:
    return isinstance(value, str) and least <= len(value) <= longest and value.isprintable()


def _is_count(value: Any) -> bool:
    return is_integer(value)


def _is_positive(value: Any) -> bool:
    return type(value) in {int, float} and math.isfinite(value) and value > 0


def _are_labels(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) <= MOST_LABELS
        and all(_is_text(name) and _is_text(text, least=0) for name, text in value.items())
    )


def _one_of(name: str) -> tuple[Callable[[Any], bool], str]:
    choices = [choice for option in get_args(_HINTS[name]) for choice in get_args(option)]
    return (lambda value: isinstance(value, str) and value in choices), f"one of {', '.join(choices)}"


_TEXT_RULE = (_is_text, f"a printable text of 1 to {TEXT_LENGTH} characters")
_COUNT_RULE = (_is_count, "a whole number from 0")
_POSITIVE_RULE = (_is_positive, "a number above 0")
_CONFIG: dict[str, tuple[Callable[[Any], bool], str]] = {
    "algorithm": _TEXT_RULE,
    "framework": _TEXT_RULE,
    "group_size": (lambda value: is_integer(value) and value >= 1, "a whole number from 1"),
    "target_kl": _POSITIVE_RULE,
    "temperature": _POSITIVE_RULE,
    "profile": _one_of("profile"),
    "critic_warmup": _COUNT_RULE,
    "actor_warmup": _COUNT_RULE,
    "advantage_mean": _one_of("advantage_mean"),
    "whitened_advantages": (lambda value: isinstance(value, bool), "true or false"),
    "finished": (lambda value: isinstance(value, bool), "true or false"),
    "labels": (_are_labels, f"an object of at most {MOST_LABELS} short texts"),
    "link": (lambda value: _is_text(value, LINK_LENGTH), f"an address of at most {LINK_LENGTH} characters"),
}
