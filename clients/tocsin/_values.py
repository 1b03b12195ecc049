"""What a trainer passes as metrics: kept cheaply on its thread, turned into numbers on ours."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import NamedTuple, SupportsIndex

from tocsin._numbers import LONGEST, number

__all__ = ["MOST_METRICS", "Numbers", "Refused", "flat", "hold", "hold_value", "numbers", "whole"]

MOST_METRICS = 10_000
"""A vector with more metrics than this is refused as a whole."""

# Immutable, and no device behind them; numpy's float64 is a float.
_PLAIN = (float, int, type(None))
_DEEPEST = 8
# The server would refuse the whole vector for one name beyond this.
_LONGEST_NAME = 256
# Rough bytes that one metric costs in memory and on the wire beside its name.
_METRIC_SIZE = 96


class Refused(NamedTuple):
    """Stands for a value that can't be one number, so that the value itself isn't kept alive."""

    why: str

    @classmethod
    def of(cls, value: object) -> Refused:
        """What stands for ``value``."""
        return cls(f"{type(value).__name__} is no single number")


class Numbers(NamedTuple):
    """The metrics of one vector: the numbers by name, and why the others were refused."""

    metrics: dict[str, float]
    refused: dict[str, str]


def flat(metrics: Mapping[str, object], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Names and values, with the names in nested mappings joined by "/"."""
    # list() of a dict's items is one step for other threads: they can't change it meanwhile.
    for key, value in list(metrics.items()):
        name = prefix + _name(key)
        if isinstance(value, _PLAIN) or not isinstance(value, Mapping):
            yield name, value
        elif depth < _DEEPEST:
            yield from flat(value, f"{name}/", depth + 1)
        else:
            yield name, Refused("the mappings around it are nested too deeply")


def _name(key: object) -> str:
    if isinstance(key, str):
        return key
    try:
        return str(key)
    except Exception:  # noqa: BLE001 a foreign object may raise anything
        return f"({type(key).__name__})"


def hold(metrics: Mapping[str, object]) -> tuple[dict[str, object], int]:
    """A flat copy of ``metrics`` that later changes by the trainer don't reach, and about how many bytes it holds.

    Runs on the trainer's thread: a few microseconds, no device synchronisation. A tensor of one element is detached
    (its graph can go) and cloned; what can't be one number is replaced by :class:`Refused`. Stops after
    MOST_METRICS + 1 metrics.
    """
    if type(metrics) is dict and len(metrics) <= MOST_METRICS:
        # Nearly every vector is numbers by name: looked at as a whole, in C.
        copy = metrics.copy()
        if set(map(type, copy)) <= {str} and all(issubclass(kind, _PLAIN) for kind in set(map(type, copy.values()))):
            return copy, sum(map(len, copy)) + _METRIC_SIZE * len(copy)
    return _hold_each(metrics)


def _hold_each(metrics: Mapping[str, object]) -> tuple[dict[str, object], int]:
    held: dict[str, object] = {}
    names = 0
    for key, value in list(metrics.items()):
        if isinstance(value, _PLAIN) and isinstance(key, str):
            # Nearly every metric of the rest: not worth a generator.
            held[key] = value
            names += len(key)
        else:
            for name, inner in flat({key: value}):
                held[name] = hold_value(inner)
                names += len(name)
                if len(held) > MOST_METRICS:
                    break
        if len(held) > MOST_METRICS:
            break
    return held, names + _METRIC_SIZE * len(held)


def hold_value(value: object) -> object:
    """What to keep of one value until the sender's thread reads it."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, str):
        return value if len(value) <= LONGEST else Refused("a text this long is no number")
    if isinstance(value, Refused):
        return value
    try:
        return _held_object(value)
    except Exception:  # noqa: BLE001 a foreign object may raise anything
        return Refused.of(value)


def _held_object(value: object) -> object:
    if not (hasattr(value, "item") or hasattr(value, "__float__")) or _elements(value) != 1:
        return Refused.of(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    if hasattr(value, "placements") and hasattr(value, "to_local"):
        # Reading a sharded tensor is a collective operation: in a thread of one rank it would hang the training.
        if not all(placement.is_replicate() for placement in value.placements):
            return Refused("it is a sharded tensor: log its full_tensor()")
        value = value.to_local()
    detach = getattr(value, "detach", None)
    return detach().clone() if callable(detach) else value


def _elements(value: object) -> object:
    """How many numbers an array or tensor holds; 1 for what has no size. Never looks at the data."""
    count = getattr(value, "numel", None)
    if count is None:
        count = getattr(value, "size", 1)
    return count() if callable(count) else count


def numbers(held: Mapping[str, object]) -> Numbers:
    """The metrics of a flat mapping as numbers.

    Runs on the sender's thread: reading a device tensor waits for the device.
    """
    result = Numbers({}, {})
    for name, value in held.items():
        if not (0 < len(name) <= _LONGEST_NAME and name.isprintable()):
            result.refused[name] = f"a metric's name has 1 to {_LONGEST_NAME} printable characters"
            continue
        try:
            result.metrics[name] = _scalar(value)
        except Exception:  # noqa: BLE001 a foreign object may raise anything
            result.refused[name] = value.why if isinstance(value, Refused) else Refused.of(value).why
    return result


def _scalar(value: object) -> float:
    if value is None or isinstance(value, (int, float, str)):
        return number(value)
    item = getattr(value, "item", None)
    if callable(item):
        return number(item())
    convert = getattr(value, "__float__", None)
    if callable(convert):
        return number(convert())
    raise ValueError("not a number")


def whole(value: object) -> int:
    """A step given as an integer of any library, or as a whole float.

    Raises:
        ValueError: it is no whole number >= 0.
    """
    item = getattr(value, "item", None)
    if callable(item):
        value = item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, SupportsIndex) or operator.index(value) < 0:
        raise ValueError("a step must be a whole number >= 0")
    return operator.index(value)
