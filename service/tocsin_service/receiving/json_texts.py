"""JSON as trainers write it: NaN and infinities are taken, a key that stands twice is not."""

from __future__ import annotations

import json
import reprlib
from functools import partial
from typing import Any

__all__ = ["JsonError", "parse", "shorten"]

# A longer integer is read as a float: it is no step, and as a metric's value it becomes one anyway.
INT_DIGITS = 20


class JsonError(ValueError):
    """The text can't be read; the message says why and where."""


def parse(text: str) -> Any:
    """The JSON value in ``text``; also takes NaN, Infinity and -Infinity.

    Raises:
        JsonError: not JSON, nested too deeply, or a key given twice.
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
