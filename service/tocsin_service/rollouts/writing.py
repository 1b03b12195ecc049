"""From a decoded body to what is said of it and what is kept of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin_detectors.rollouts import Numbers, Rollouts, measure, repetition
from tocsin_service.rollouts.compaction import compact, write
from tocsin_service.rollouts.errors import RolloutsUnavailable
from tocsin_service.rollouts.files import Folder, scan_all, sweep
from tocsin_service.rollouts.limits import LONGEST_TEXT
from tocsin_service.rollouts.redaction import Redaction
from tocsin_service.rollouts.sampling import Columns, Indices, Sampling
from tocsin_service.rollouts.schema import KEPT, SENT, TEXTS

__all__ = ["Keeper", "Kept", "Measured", "Step", "measured"]


@dataclass(frozen=True, slots=True)
class Step:
    """Whose rows they are, and when they came.

    Attributes:
        attempt: the trainer's restart counter, None if it doesn't say.
        time: Unix time in seconds.
        key: the same for every repetition of the request.
    """

    run: str
    step: int
    attempt: int | None
    time: float
    key: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of rows: how many are on disk, and whether they were there before."""

    rows: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows with what was computed of them.

    Attributes:
        metrics: by canonical name.
        repetition: of each response.
    """

    table: pa.Table
    rollouts: Rollouts
    metrics: Mapping[str, float]


def measured(table: pa.Table, response_limit: int | None) -> Measured:
    """The metrics of a table of :data:`~.schema.SENT`."""
    responses: list[str] = table.column("response").to_pylist()
    groups = table.column("group").to_pylist()
    if not any(group is not None for group in groups):
        groups = table.column("prompt").to_pylist()
    rollouts = Rollouts(
        responses=responses,
        groups=groups,
        rewards=_numbers(table.column("reward")),
        scores=_scores(table.column("scores")),
        domains=table.column("domain").to_pylist(),
        lengths=_numbers(table.column("length")),
        finish_reasons=table.column("finish_reason").to_pylist(),
        advantages=_numbers(table.column("advantage")),
        repetition=repetition(responses),
    )
    return Measured(table, rollouts, measure(rollouts, response_limit=response_limit))


class Keeper:
    """Writes files, merges them, and removes what is beyond the limits. For one thread.

    Args:
        root: the setting ``rollout_dir``.
        most_bytes: of all files together; the oldest go first.
        days: for which rows are kept; 0: for ever.
    """

    def __init__(self, root: Path, sampling: Sampling, redaction: Redaction, most_bytes: int, days: float) -> None:
        self._root, self._sampling, self._redaction = root, sampling, redaction
        self._most_bytes, self._days = most_bytes, days
        self._written = 0  # bytes since the last look at the limits
        self._gate = threading.Lock()

    def keep(self, step: Step, measured: Measured) -> Kept:
        """Puts the rows on disk, for good when this returns.

        Raises:
            RolloutsUnavailable: they can't be; nothing of them is there.
        """
        chosen = self._sampling.choose(step.step, _columns(measured.rollouts))
        folder = Folder(self._root, step.run)
        try:
            if folder.holds(step.key):
                return Kept(len(chosen), repeated=True)
            table = self._redaction.apply(measured.table.take(chosen))
            path = folder.name(step.step, step.step, step.key)
            with folder.writing(path) as temporary:
                write(temporary, [_as_kept(table, step, measured.rollouts, chosen)])
                self._written += temporary.stat().st_size
        except OSError as error:
            raise RolloutsUnavailable(f"the rollouts can't be written: {error.strerror}") from error
        return Kept(len(chosen), repeated=False)

    def tidy(self, run: str) -> None:
        """What can wait until the request is answered: merging, and the limits if much was written.

        Raises:
            OSError: the disk is full, or the like.
        """
        compact(Folder(self._root, run))
        if self._written > self._most_bytes // 20:
            self.trim()

    def trim(self) -> int:
        """Removes what is beyond the limits; how many files went."""
        with self._gate:
            self._written = 0
            sweep(self._root)
            files = sorted(scan_all(self._root), key=lambda one: one.written)
            excess = sum(one.size for one in files) - self._most_bytes
            oldest = time.time() - self._days * 86_400 if self._days else 0.0
            gone = 0
            for one in files:
                if excess <= 0 and one.written >= oldest:
                    break
                one.path.unlink(missing_ok=True)
                excess -= one.size
                gone += 1
            return gone


def _numbers(column: pa.ChunkedArray) -> Numbers:
    known = pc.is_valid(column).to_numpy().astype(bool)
    return Numbers(column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64), known)


def _scores(column: pa.ChunkedArray) -> dict[str, Numbers]:
    rows: list[list[tuple[str, float | None]] | None] = column.to_pylist()
    names = sorted({name for row in rows for name, _ in row or ()})
    tables = [dict(row or ()) for row in rows]
    return {name: Numbers.of([row.get(name) for row in tables]) for name in names}


def _columns(rollouts: Rollouts) -> Columns:
    lengths = rollouts.lengths.values
    if not rollouts.lengths.known.any():
        lengths = np.array([len(text) for text in rollouts.responses], dtype=np.float64)
    rewards = rollouts.rewards
    assert rollouts.repetition is not None  # noqa: S101 - measured() computes it
    wrong = rewards.known & ~np.isfinite(rewards.values)
    return Columns(rewards.values, lengths, rollouts.repetition, rollouts.advantages.values, wrong)


def _as_kept(table: pa.Table, step: Step, rollouts: Rollouts, chosen: Indices) -> pa.Table:
    count = table.num_rows
    assert rollouts.repetition is not None  # noqa: S101 - measured() computes it
    columns = {
        "step": pa.array([step.step] * count, pa.int64()),
        "attempt": pa.array([step.attempt] * count, pa.int64()),
        "time": pa.array([step.time] * count, pa.float64()),
        "row": pa.array(chosen, pa.int64()),
        **{name: _cut(table.column(name)) if name in TEXTS else table.column(name) for name in SENT.names},
        "chars": pa.array([len(rollouts.responses[row]) for row in chosen], pa.int64()),
        "repetition": pa.array(rollouts.repetition[chosen], pa.float64()),
    }
    return pa.table([columns[name] for name in KEPT.names], schema=KEPT)


def _cut(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that are too long without their middle: how one begins and how it ends says most."""
    if (pc.max(pc.binary_length(column)).as_py() or 0) <= LONGEST_TEXT:
        return column
    half = LONGEST_TEXT // 2
    texts = [
        text if text is None or len(text) <= LONGEST_TEXT else text[:half] + text[-half:] for text in column.to_pylist()
    ]
    return pa.chunked_array([pa.array(texts, column.type)])
