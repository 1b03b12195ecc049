"""Files of rollouts: where they are, and which rows of which step they hold."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tocsin.readers import ReadError
from tocsin.rollouts._rows import row_of, shape_of

__all__ = ["Step", "find", "read"]

_ENDINGS = frozenset({".jsonl", ".parquet"})
_NUMBER = re.compile(r"(\d+)(?=\.\w+$)")


@dataclass(frozen=True, slots=True)
class Step:
    """The rollouts of one step, out of one file.

    Attributes:
        rows: as :func:`tocsin.log_rollouts` takes them.
        time: Unix time in seconds at which the file was written.
    """

    step: int
    rows: list[dict[str, Any]]
    time: float


def find(source: str | os.PathLike[str]) -> list[Path]:
    """The files that a path means: itself, or those of a folder, in the order of the numbers in their names.

    Raises:
        ReadError: there is nothing.
    """
    path = Path(source)
    if path.is_file():
        return [path]
    found = sorted((one for one in path.rglob("*") if one.suffix in _ENDINGS and one.is_file()), key=_order)
    if not found:
        raise ReadError(str(path), None, "is no file and no folder with .jsonl or .parquet files of rollouts")
    return found


def read(source: str | os.PathLike[str]) -> Iterator[Step]:
    """The steps of a file or folder.

    - verl's rollout dump (``trainer.rollout_data_dir``): ``STEP.jsonl`` of ``input``, ``output``, ``gts``, ``score``;
    - TRL's completions (``log_completions=True``): ``completions_STEP.parquet``; needs pyarrow;
    - JSON lines or Parquet of rows as :func:`tocsin.log_rollouts` takes them, each with its ``step``.

    Raises:
        ReadError: with path, line and cause where a file can't be read.
    """
    for path in find(source):
        yield from _read_file(path)


def _read_file(path: Path) -> Iterator[Step]:
    try:
        time = path.stat().st_mtime
        rows = _parquet(path) if path.suffix == ".parquet" else _lines(path)
        for step, group in itertools.groupby(_placed(path, rows), key=lambda pair: pair[0]):
            yield Step(step, [row for _, row in group], time)
    except OSError as error:
        raise ReadError(str(path), None, f"can't be read: {error.strerror}") from None


def _placed(path: Path, rows: Iterator[tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its step: the row's own, or the number in the file's name."""
    named = _NUMBER.search(path.name)
    shape = None
    for line, row in rows:
        shape = shape or shape_of(row)
        if shape is None:
            raise ReadError(str(path), line, f"holds no rollouts: a row has only {', '.join(sorted(map(str, row)))}")
        if shape.skips(row):
            continue
        step = row.get("step", int(named.group(1)) if named else None)
        if not isinstance(step, int) or step < 0:
            raise ReadError(str(path), line, "says no step, and the file's name has no number")
        yield step, row_of(row, shape)


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ReadError(str(path), number, f"is no JSON: {error}") from None
            if not isinstance(row, dict):
                raise ReadError(str(path), number, "is no JSON object")
            yield number, row


def _parquet(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - only this format needs it
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise ReadError(
            str(path), None, "is Parquet, which needs pyarrow: pip install 'tocsin[rollouts]', or pyarrow alone"
        ) from None
    try:
        with pq.ParquetFile(path) as file:
            number = itertools.count(1)
            for batch in file.iter_batches(256):
                for row in batch.to_pylist():
                    yield next(number), row
    except pa.ArrowException as error:
        raise ReadError(str(path), None, f"is no Parquet file: {error}") from None


def _order(path: Path) -> tuple[str, int, str]:
    found = _NUMBER.search(path.name)
    return str(path.parent), int(found.group(1)) if found else -1, path.name
