"""Run configurations and re-baselines as clients send them: every problem found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tocsin_detectors.entries import Rebaseline, RunConfig
from tocsin_service.api.errors import MOST_PROBLEMS, ApiError
from tocsin_service.receiving import run_configs
from tocsin_service.receiving.run_configs import (
    LINK_LENGTH,
    MOST_LABELS,
    TEXT_LENGTH,
    ConfigRefused,
    fields_of,
    is_text,
)
from tocsin_service.receiving.vectors import LARGEST_INTEGER, is_metric_name

__all__ = [
    "AUTHOR_LENGTH",
    "CONFIG_SCHEMA",
    "REBASELINE_SCHEMA",
    "decode_config",
    "decode_rebaseline",
    "refusal",
    "told",
]

NOTE_LENGTH = 1000
AUTHOR_LENGTH = 100

T = TypeVar("T")
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
    "properties": {"metric": _TEXT, "note": _NOTE, "author": {**_NOTE, "maxLength": AUTHOR_LENGTH}},
    "example": {"metric": "actor/entropy", "note": "temperature raised on purpose", "author": "mia"},
}


def decode_config(value: Any) -> RunConfig:
    """The configuration in ``value``, a parsed JSON body; fields that are null count as not given.

    Raises:
        ApiError: 422 with every problem.
    """
    return told(run_configs.read, value)


def decode_rebaseline(value: Any) -> Rebaseline:
    """The re-baseline in ``value``, a parsed JSON body; its note begins with the author, if one is named.

    Raises:
        ApiError: 422 with every problem.
    """
    given = told(lambda one: fields_of(one, ("metric", "note", "author")), value)
    problems = []
    if "metric" in given and not is_metric_name(given["metric"]):
        problems.append({"field": "metric", "problem": "send a metric's name, or leave it out to mean all metrics"})
    if not is_text(given.get("note", ""), NOTE_LENGTH, least=0):
        problems.append({"field": "note", "problem": f"send a printable text of at most {NOTE_LENGTH} characters"})
    if not is_text(given.get("author", ""), AUTHOR_LENGTH, least=0):
        problems.append({"field": "author", "problem": f"send a printable text of at most {AUTHOR_LENGTH} characters"})
    if problems:
        raise refusal(problems)
    return Rebaseline(given.get("metric"), ": ".join(filter(None, (given.get("author"), given.get("note", "")))))


def told(read: Callable[[Any], T], value: Any) -> T:
    """What ``read`` makes of ``value``; what it refuses is refused as a request.

    Raises:
        ApiError: 422 with every problem.
    """
    try:
        return read(value)
    except ConfigRefused as error:
        if error.problems:
            raise refusal(error.problems) from None
        raise ApiError(422, str(error), "validation") from None


def refusal(problems: Sequence[dict[str, str]]) -> ApiError:
    """The answer to a body of which nothing is taken."""
    text = "nothing was stored: the body is not valid; see problems"
    return ApiError(422, text, "validation", list(problems[:MOST_PROBLEMS]))
