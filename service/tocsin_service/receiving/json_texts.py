"""JSON as trainers write it: NaN and infinities are taken, a key that stands twice is not."""

from __future__ import annotations

import json
import reprlib
from functools import partial
from typing import Any

import orjson

__all__ = ["JsonError", "parse", "parse_strictly", "shorten"]

# A longer integer is read as a float: it is no step, and as a metric's value it becomes one anyway.
INT_DIGITS = 20
LEVELS = 4  # a list of vectors of metrics has three
INT_LIMIT = 2.0**63  # orjson reads integers beyond it as floats


class JsonError(ValueError):
    """The text can't be read; the message says why and where."""


def parse(text: str) -> Any:
    """The JSON value in ``text``; also takes NaN, Infinity and -Infinity.

    Raises:
        JsonError: not JSON, nested too deeply, or a key given twice.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return parse_strictly(text)
    return value if _is_beyond_doubt(value, text.count(":")) else parse_strictly(text)


def _is_beyond_doubt(value: Any, colons: int) -> bool:
    """Whether ``value``, as orjson has read it, is what the strict reader would make of the text.

    orjson drops all but the last of several equal keys. Every key had a colon, and there may be others within strings:
    if there are as many keys as ``colons``, none was dropped.
    """
    keys, level = 0, [value]
    for _ in range(LEVELS):
        below: list[Any] = []
        for one in level:
            if type(one) is dict:
                keys += len(one)
            values = one.values() if type(one) is dict else one if type(one) is list else [one]
            kinds = {*map(type, values)}
            if float in kinds:
                floats = values if len(kinds) == 1 else [number for number in values if type(number) is float]
                if not -INT_LIMIT < min(floats) <= max(floats) < INT_LIMIT:
                    return False
            if dict in kinds or list in kinds:
                below += [inner for inner in values if type(inner) in {dict, list}]
        if not below:
            return keys == colons
        level = below
    return False


def parse_strictly(text: str) -> Any:
    """What :func:`parse` gives, by the reader that decides: whatever another one leaves in doubt comes here.

    Raises:
        JsonError: see there.
    """
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        raise JsonError(f"not valid JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise JsonError("nested too deeply; a vector has two levels") from None


def shorten(value: object, limit: int = 80) -> str:
    """``value`` as it may be repeated in an error: one line, not long, ASCII.

    Only a little of a large value is looked at, and not the depth of a deep one.
    """
    if isinstance(value, str):
        text = ascii(value[: limit + 1])
    else:
        text = _glimpse.repr(value).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[:limit]}..."


def _parse_int(text: str) -> int | float:
    return int(text) if len(text) <= INT_DIGITS else float(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonError(f"the key {shorten(key)} stands twice; send it once")
            seen.add(key)
    return mapping


_glimpse = reprlib.Repr()
_glimpse.maxlist = _glimpse.maxdict = _glimpse.maxtuple = 20
_glimpse.maxstring = 80
_loads = partial(json.loads, parse_int=_parse_int, object_pairs_hook=_unique)
