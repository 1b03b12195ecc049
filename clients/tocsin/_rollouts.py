"""Rollouts on their way to the server: held on the trainer's thread, spelled out and sent on one of their own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tocsin._guard import Mistake
from tocsin._parcels import Body, ParcelChannel
from tocsin._values import hold_value, numbers, whole

__all__ = ["FIELDS", "RolloutChannel", "hold_rows", "spelled_out"]

_TEXTS = ("prompt", "response", "ground_truth", "group", "domain", "finish_reason")
_NUMBERS = ("reward", "advantage")
_WHOLES = ("length", "index")
FIELDS = frozenset({*_TEXTS, *_NUMBERS, *_WHOLES, "scores"})
"""The fields that the server knows. A trainer's rows may have others: they are not sent."""

_ROW_SIZE = 400  # rough bytes of a row beside its texts
# A quick level: what waits for it is a thread, but the trainer's cores do it.
_LEVEL = 1

Rows = Iterable[Mapping[str, Any]] | Mapping[str, Any]
Held = list[dict[str, Any]]


class RolloutChannel(ParcelChannel):
    """The way to the server for a run's rollouts."""

    kind = "rollouts"
    meaning = {  # noqa: RUF012 a constant of the class
        "full": "the server is slower than the trainer or away: the oldest that waits gives way to the newest",
        "too_large": "larger than max_rollout_bytes, here or on the server: send fewer rows",
        "invalid": "the step must be a whole number >= 0, and every row needs its response",
        "unsupported": "the server keeps no rollouts: set its rollout_dir",
        "no_service": "they need the service's address, and the run's is a Redis",
    }

    def put(self, rows: Rows, step: object, time: float | None, options: Mapping[str, Any]) -> None:
        """Takes hold of the rows and leaves them to the thread.

        Raises:
            Mistake: they are no rows; counted as dropped.
        """
        beside = self._beside(time, options)
        if not self._has_service():
            return
        try:
            held, size, unknown = hold_rows(rows)
        except Mistake:
            self.dropped["invalid"] += 1
            raise
        if unknown:
            self._tally.warn("rollouts beside", f"not sent, the server knows no such fields: {unknown}", "")
        if self._reserve(size):
            self._enqueue(size, step, beside, partial(_load, held))


def _load(held: Held) -> Body:
    data = gzip.compress(spelled_out(held), _LEVEL)
    return Body(data, {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"})


def hold_rows(rows: Rows) -> tuple[Held, int, list[str]]:
    """Copies that later changes by the trainer don't reach, about how many bytes they hold, and fields left out.

    Args:
        rows: a mapping for each rollout, or one mapping of columns.

    Raises:
        Mistake: they are neither, or columns differ in length.
    """
    listed = _from_columns(rows) if isinstance(rows, Mapping) else rows
    held: Held = []
    unknown: set[str] = set()
    size = 0
    for row in listed:
        if not isinstance(row, Mapping):
            raise Mistake(f"log_rollouts() takes rows as mappings, or one mapping of columns, not {type(row).__name__}")
        kept: dict[str, Any] = {}
        size += _ROW_SIZE
        for name, value in row.items():
            if name not in FIELDS:
                unknown.add(str(name))
            elif value is not None:
                kept[name] = _held(name, value)
                size += len(kept[name]) if isinstance(kept[name], str) else 0
        held.append(kept)
    if not held:
        raise Mistake("log_rollouts() got no rows")
    return held, size, sorted(unknown)


def spelled_out(held: Held) -> bytes:
    """The rows as NDJSON. Runs on the sender's thread: reading a number of a device waits for it.

    Raises:
        Mistake: a row has no response, or a field isn't what it must be.
    """
    return "\n".join(json.dumps(_row(row, place)) for place, row in enumerate(held)).encode()


def _row(row: dict[str, Any], place: int) -> dict[str, Any]:
    if "response" not in row:
        raise Mistake(f"row {place} has no response; send an empty text for an empty response")
    sent: dict[str, Any] = {name: row[name] for name in _TEXTS if name in row}
    for name in _WHOLES:
        if name in row:
            try:
                sent[name] = whole(row[name])
            except (TypeError, ValueError):
                raise Mistake(f"row {place}: {name} must be a whole number >= 0") from None
    for name in _NUMBERS:
        if name in row:
            sent[name] = _numbers_of({name: row[name]}, place)[name]
    if "scores" in row:
        sent["scores"] = _numbers_of(row["scores"], place)
    return sent


def _numbers_of(values: Mapping[str, object], place: int) -> dict[str, float]:
    found = numbers(values)
    for name, why in found.refused.items():
        raise Mistake(f"row {place}: {name}: {why}")
    return found.metrics


def _held(name: str, value: object) -> object:
    if name in _TEXTS:
        return value if isinstance(value, str) else _as_text(value)
    if name != "scores":
        return hold_value(value)
    if not isinstance(value, Mapping):
        raise Mistake('scores must be a mapping of names and numbers: {"format": 0.5}')
    return {str(key): hold_value(one) for key, one in value.items() if one is not None}


def _as_text(value: object) -> str:
    """Messages of a chat and the like as JSON, anything else as it is printed."""
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _from_columns(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    lists: dict[str, Sequence[Any]] = {}
    for name, column in columns.items():
        if column is None:
            continue
        if name == "scores" and isinstance(column, Mapping):
            lists[name] = _from_columns(column)
        else:
            lists[name] = _listed(name, column)
    lengths = {name: len(column) for name, column in lists.items()}
    if len(set(lengths.values())) > 1:
        raise Mistake(f"the columns differ in length: {lengths}")
    count = next(iter(lengths.values()), 0)
    return [{name: column[place] for name, column in lists.items()} for place in range(count)]


def _listed(name: str, column: Any) -> Sequence[Any]:
    if isinstance(column, (list, tuple)):
        return column
    convert = getattr(column, "tolist", None)
    listed = convert() if callable(convert) else None
    if not isinstance(listed, list):
        raise Mistake(f"column {name!r} is a {type(column).__name__}; pass a list or an array")
    return listed
