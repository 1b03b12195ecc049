"""The columns of the rollout log: those that trainers send, and those that files have."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["FIELDS", "KEPT", "NUMBERS", "SENT", "TEXTS"]

_TEXT = pa.large_string()  # 32-bit offsets end at 2 GiB of a column

SENT = pa.schema(
    [
        pa.field("prompt", _TEXT),
        pa.field("response", _TEXT, nullable=False),
        pa.field("reward", pa.float64()),  # final, after penalties; null: unknown, NaN: what was computed
        pa.field("scores", pa.map_(pa.string(), pa.float64())),  # of each reward model or rule
        pa.field("advantage", pa.float64()),
        pa.field("group", pa.string()),  # the same for the rollouts of one prompt
        pa.field("domain", pa.string()),
        pa.field("length", pa.int64()),  # of the response, tokens
        pa.field("finish_reason", pa.string()),
        pa.field("ground_truth", _TEXT),
        pa.field("index", pa.int64()),  # of the row in the trainer's batch or data set
    ]
)
"""A row as it is sent; everything but the response may be missing."""

FIELDS = tuple(SENT.names)
TEXTS = ("prompt", "response", "ground_truth")

KEPT = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("attempt", pa.int64()),
        pa.field("time", pa.float64(), nullable=False),  # Unix seconds
        pa.field("row", pa.int64(), nullable=False),  # place in the request
        *SENT,
        pa.field("chars", pa.int64(), nullable=False),  # of the response as it was sent
        pa.field("repetition", pa.float64(), nullable=False),  # share of the response that repeats itself
    ]
)
"""A row of a file."""

NUMBERS = ("step", "attempt", "time", "row", "reward", "advantage", "length", "index", "chars", "repetition")
