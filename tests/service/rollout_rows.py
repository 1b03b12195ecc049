"""Rows and requests for the tests of the rollout log."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["arrow", "get", "ndjson", "parquet", "post", "rows"]


def rows(count: int = 8, **same: Any) -> list[dict[str, Any]]:
    """Rows of two prompts, every other right; ``same`` fields stand in all of them."""
    return [
        {
            "prompt": f"What is {row // 4}+1?",
            "response": f"It is {row}, I think.",
            "reward": float(row % 2),
            "group": str(row // 4),
            "length": 5 + row,
            "finish_reason": "stop",
            "index": row,
            **same,
        }
        for row in range(count)
    ]


def ndjson(listed: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row) for row in listed).encode()


def arrow(table: pa.Table, *, file: bool = False) -> bytes:
    sink = io.BytesIO()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def post(api: Any, body: Any, run: str = "run", headers: dict[str, str] | None = None, **query: Any) -> Any:
    """Sends rollouts; step 1 unless told otherwise."""
    data = body if isinstance(body, bytes) else ndjson(body)
    words = urlencode({"step": 1, **query})
    return api.call("POST", f"/v1/runs/{quote(run, safe='')}/rollouts?{words}", data, headers)


def get(api: Any, what: str = "", run: str = "run", **query: Any) -> Any:
    return api.get(f"/v1/runs/{quote(run, safe='')}/rollouts{what}?{urlencode(query)}")
