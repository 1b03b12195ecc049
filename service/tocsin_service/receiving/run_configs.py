"""A run's configuration as trainers send it, whichever way it comes in: what is taken, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from tocsin_detectors.entries import RunConfig
from tocsin_service.receiving.json_texts import shorten
from tocsin_service.receiving.vectors import is_integer

__all__ = ["LINK_LENGTH", "MOST_LABELS", "TEXT_LENGTH", "ConfigRefused", "fields_of", "is_text", "read"]

TEXT_LENGTH = 256
LINK_LENGTH = 2000
MOST_LABELS = 64

_HINTS = get_type_hints(RunConfig)


class ConfigRefused(ValueError):  # noqa: N818 - reads as what happened
    """The object isn't taken.

    Attributes:
        problems: what is wrong with which field; empty if it is no object at all.
    """

    def __init__(self, message: str, problems: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


def read(value: Any) -> RunConfig:
    """The configuration in ``value``, a parsed JSON object; fields that are null count as not given.

    Raises:
        ConfigRefused: with every problem.
    """
    given = fields_of(value, tuple(_HINTS))
    problems: list[dict[str, str]] = []
    for name, one in given.items():
        is_good, wanted = _CONFIG[name]
        if not is_good(one):
            problems.append({"field": name, "problem": f"is {shorten(one)}; send {wanted}"})
    if problems:
        raise ConfigRefused("the configuration is not valid", problems)
    for name in given.keys() & {"algorithm", "framework"}:
        given[name] = given[name].lower()
    return RunConfig(**given)


def fields_of(value: Any, known: tuple[str, ...]) -> dict[str, Any]:
    """The fields of an object that are not null.

    Raises:
        ConfigRefused: it is no object, or has others than the ``known`` fields.
    """
    if not isinstance(value, dict):
        raise ConfigRefused(f"send a JSON object with any of: {', '.join(known)}")
    unknown = [name for name in value if name not in known]
    if unknown:
        text = f"is unknown; send any of: {', '.join(known)}"
        problems = [{"field": shorten(name), "problem": text} for name in unknown]
        raise ConfigRefused("there are unknown fields", problems)
    return {name: one for name, one in value.items() if one is not None}


def is_text(value: Any, longest: int = TEXT_LENGTH, least: int = 1) -> bool:
    """Whether ``value`` is a printable text of so many characters."""
    return isinstance(value, str) and least <= len(value) <= longest and value.isprintable()


def _is_count(value: Any) -> bool:
    return is_integer(value)


def _is_positive(value: Any) -> bool:
    return type(value) in {int, float} and math.isfinite(value) and value > 0


def _are_labels(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) <= MOST_LABELS
        and all(is_text(name) and is_text(text, least=0) for name, text in value.items())
    )


def _one_of(name: str) -> tuple[Callable[[Any], bool], str]:
    choices = [choice for option in get_args(_HINTS[name]) for choice in get_args(option)]
    return (lambda value: isinstance(value, str) and value in choices), f"one of {', '.join(choices)}"


_TEXT_RULE = (is_text, f"a printable text of 1 to {TEXT_LENGTH} characters")
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
    "link": (lambda value: is_text(value, LINK_LENGTH), f"an address of at most {LINK_LENGTH} characters"),
}
