"""Many small files of a run become one, while everything stays readable and nothing is held in memory as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tocsin_service.rollouts.files import Folder, Stored, key_of, parts_of, with_parts
from tocsin_service.rollouts.schema import KEPT, NUMBERS

__all__ = ["SMALL_FILES", "compact", "write"]

SMALL_FILES = 32  # so many small files are merged
SMALL = 32 * 2**20  # bytes of a file that is still small
LARGEST = 512 * 2**20  # bytes of files that are merged into one
GROUP_BYTES = 4 * 2**20  # of a row group: what must be read for one row of it
GROUP_ROWS = 4096


def write(path: Path, tables: Iterable[pa.Table], parts: Iterable[str] = ()) -> None:
    """Writes a Parquet file of rows in row groups of a bounded size."""
    keys = sorted(parts)
    schema = KEPT.with_metadata(with_parts(keys)) if keys else KEPT
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        # Prompts and the like stand many times; a response doesn't, and a dictionary of them would be made in vain.
        use_dictionary=["prompt", "group", "domain", "finish_reason", "ground_truth"],
        write_statistics=list(NUMBERS),
    ) as writer:
        for table in _grouped(tables):
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def compact(folder: Folder) -> bool:
    """Merges the small files of a run, if they are many; whether it did. Harmless to repeat, and to be killed in."""
    folder.remove(folder.superseded())
    small = [one for one in folder.files() if one.size < SMALL]
    if len(small) < SMALL_FILES:
        return False
    chosen = list(_up_to(small, LARGEST))
    if len(chosen) < 2:
        return False
    keys = {key for one in chosen for key in (one.key, *parts_of(one.path))}
    first, last = min(one.first for one in chosen), max(one.last for one in chosen)
    target = folder.name(first, last, key_of("merged", sorted(keys)))
    with folder.writing(target) as temporary:
        write(temporary, _read(chosen), keys)
        newest = max(one.written for one in chosen)
        os.utime(temporary, (newest, newest))  # its age is that of its rows
    folder.remove(chosen)
    return True


def _up_to(files: list[Stored], limit: int) -> Iterator[Stored]:
    size = 0
    for one in files:
        size += one.size
        if size > limit:
            return
        yield one


def _read(files: Iterable[Stored]) -> Iterator[pa.Table]:
    for one in files:
        with pq.ParquetFile(one.path) as file:
            for index in range(file.num_row_groups):
                yield file.read_row_group(index)


def _grouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of about GROUP_BYTES."""
    waiting: list[pa.Table] = []
    rows, size = 0, 0
    for table in tables:
        for piece in _pieces(table.cast(KEPT)):
            if waiting and (rows + piece.num_rows > GROUP_ROWS or size + piece.nbytes > GROUP_BYTES):
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Slices of a table that is too large for one group."""
    if not table.num_rows:
        return
    each = max(1, min(GROUP_ROWS, table.num_rows * GROUP_BYTES // max(1, table.nbytes)))
    for begin in range(0, table.num_rows, each):
        yield table.slice(begin, each)
