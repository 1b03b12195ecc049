"""Step vectors as clients send them: every problem found, none stored unless all are good."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tocsin_service.api import body
from tocsin_service.api.errors import MOST_PROBLEMS, ApiError
from tocsin_service.receiving.vectors import (
    EARLIEST,
    LARGEST_INTEGER,
    LATEST,
    Check,
    is_integer,
    is_metric_name,
    is_time,
    read,
)
from tocsin_service.store import Record

__all__ = ["EARLIEST", "LARGEST_INTEGER", "LATEST", "decode", "is_integer", "is_metric_name", "is_time"]


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
    lines = body.parse_lines(data, content_type, max_batch)
    if lines is None:
        value = body.parse(data)
        placed = [({"index": index}, one) for index, one in enumerate(value if isinstance(value, list) else [value])]
    else:
        placed = [({"index": index, "line": line}, one) for index, (line, one) in enumerate(lines)]
    if not placed:
        raise ApiError(422, "the body has no vectors; send at least one", "empty")
    if len(placed) > max_batch:
        raise ApiError(413, f"the body has {len(placed)} vectors; send at most {max_batch} at a time", "too_large")
    check = Check(max_metrics, MOST_PROBLEMS)
    records = _read_all(placed, now, check)
    if check.problems:
        raise ApiError(422, "nothing was stored: the body is not valid; see problems", "validation", check.problems)
    return records


def _read_all(placed: Iterable[tuple[dict[str, int], Any]], now: float, check: Check) -> list[Record]:
    records: list[Record] = []
    for place, value in placed:
        check.place = place
        record = read(value, now, check)
        if record is not None:
            records.append(record)
        if check.full:
            break
    return records
