"""Rows in columns: Arrow IPC and Parquet bodies, whose sizes are looked at before anything is spelled out.

A few bytes of such a body can stand for gigabytes: a text that a dictionary holds once and a million rows refer to. So
texts stay in their dictionaries until it is known how large they will be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tocsin_service.receiving.json_texts import shorten
from tocsin_service.rollouts.errors import RolloutsRefused
from tocsin_service.rollouts.limits import LONGEST_NAME, MOST_ROWS, MOST_SCORES
from tocsin_service.rollouts.schema import FIELDS, SENT

__all__ = ["read_arrow", "read_parquet"]

_ROWS_AT_ONCE = 1024


def read_arrow(data: bytes, limit: int) -> pa.Table:
    """The rows of an Arrow IPC body, a stream or a file.

    Raises:
        RolloutsRefused: it is broken, has other columns, or is more than ``limit`` bytes when spelled out.
    """
    try:
        opened = pa.ipc.open_file if data.startswith(b"ARROW1") else pa.ipc.open_stream
        with opened(pa.BufferReader(data)) as reader:
            _check_names(reader.schema)
            batches = (
                (reader.get_batch(index) for index in range(reader.num_record_batches))
                if data.startswith(b"ARROW1")
                else iter(reader)
            )
            return _gather(batches, limit)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refusal("Arrow IPC", error) from None


def read_parquet(data: bytes, limit: int) -> pa.Table:
    """The rows of a Parquet body.

    Raises:
        RolloutsRefused: as :func:`read_arrow`.
    """
    try:
        schema = pq.read_schema(pa.BufferReader(data))
        _check_names(schema)
        texts = [
            field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        ]
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts) as file:
            groups = range(file.metadata.num_row_groups)
            if sum(file.metadata.row_group(index).total_byte_size for index in groups) > limit:
                raise _too_large(limit)
            if file.metadata.num_rows > MOST_ROWS:
                raise RolloutsRefused(f"the body has more than {MOST_ROWS} rows; send fewer at a time")
            return _gather(file.iter_batches(_ROWS_AT_ONCE), limit)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refusal("Parquet", error) from None


def _refusal(what: str, error: Exception) -> RolloutsRefused:
    if isinstance(error, RolloutsRefused):
        return error
    return RolloutsRefused(f"the body can't be read as {what}: {shorten(str(error), 200)}")


def _too_large(limit: int) -> RolloutsRefused:
    return RolloutsRefused(f"the rows are larger than {limit} bytes after decompression; send fewer at a time")


def _check_names(schema: pa.Schema) -> None:
    unknown = [name for name in schema.names if name not in FIELDS]
    if unknown:
        shown = ", ".join(shorten(name) for name in unknown[:10])
        raise RolloutsRefused(f"there is no column {shown}; the columns are {', '.join(FIELDS)}")
    if "response" not in schema.names:
        raise RolloutsRefused("the column response is missing")
    if len(set(schema.names)) < len(schema.names):
        raise RolloutsRefused("a column stands twice; send it once")


def _gather(batches: Iterator[pa.RecordBatch], limit: int) -> pa.Table:
    tables: list[pa.Table] = []
    rows, size = 0, 0
    for batch in batches:
        batch.validate(full=True)  # offsets and UTF-8: what follows trusts them
        rows += batch.num_rows
        size += sum(_spelled_out(column) for column in batch.columns)
        if size > limit:
            raise _too_large(limit)
        if rows > MOST_ROWS:
            raise RolloutsRefused(f"the body has more than {MOST_ROWS} rows; send fewer at a time")
        tables.append(_as_sent(batch))
    return pa.concat_tables(tables) if tables else SENT.empty_table()


def _spelled_out(column: pa.Array) -> int:
    """Bytes of a column once each row holds its own value."""
    if pa.types.is_dictionary(column.type):
        value = column.type.value_type
        if not (pa.types.is_string(value) or pa.types.is_large_string(value)):
            raise RolloutsRefused(f"a dictionary of {value} is not taken; send plain values")
        lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
        return int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_run_end_encoded(column.type):
        raise RolloutsRefused("run-end encoded columns are not taken; send plain values")
    return int(column.nbytes)


def _as_sent(batch: pa.RecordBatch) -> pa.Table:
    columns = []
    for field in SENT:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        try:
            columns.append(_scores(column) if field.name == "scores" else _converted(column, field.type))
        except (pa.ArrowException, ValueError) as error:
            if isinstance(error, RolloutsRefused):
                raise
            raise RolloutsRefused(
                f"column {field.name} is of type {column.type}, which is no {field.type}: {shorten(str(error), 120)}"
            ) from None
        _check_content(field.name, columns[-1])
    return pa.table(columns, schema=SENT)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_floating(kind) and not pa.types.is_integer(kind):
        return column.cast(kind)
    if not numeric and not pa.types.is_null(column.type):
        raise ValueError(f"send {kind}")
    return (column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column).cast(kind)


def _scores(column: pa.Array) -> pa.Array:
    """A map, or a struct with a field for each score."""
    kind = SENT.field("scores").type
    if pa.types.is_map(column.type) or pa.types.is_null(column.type):
        return column.cast(kind)
    if not pa.types.is_struct(column.type):
        raise RolloutsRefused(f"column scores is of type {column.type}; send a map of names and numbers, or a struct")
    rows: list[Any] = column.to_pylist()
    return pa.array([None if row is None else [(name, score) for name, score in row.items()] for row in rows], kind)


def _check_content(name: str, column: pa.Array) -> None:
    if name == "response" and column.null_count:
        raise RolloutsRefused("a response is null; send an empty text for an empty response")
    if name == "scores":
        most = pc.max(pc.subtract(column.offsets[1:], column.offsets[:-1])).as_py() or 0
        longest = pc.max(pc.utf8_length(column.keys)).as_py() or 0
        if most > MOST_SCORES or longest > LONGEST_NAME:
            raise RolloutsRefused(
                f"scores: send at most {MOST_SCORES} of a row, with names of at most {LONGEST_NAME} characters"
            )
    if name in {"group", "domain", "finish_reason"} and (pc.max(pc.utf8_length(column)).as_py() or 0) > LONGEST_NAME:
        raise RolloutsRefused(f"{name}: send texts of at most {LONGEST_NAME} characters")
