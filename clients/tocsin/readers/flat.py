"""Flat objects, metrics beside the step: ``{"step": 12, "time": 1767225600.0, "reward": 0.5}``.

So write prime-rl, tinker-cookbook and ms-swift, and so are the rows of a Hugging Face ``log_history``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.readers._fields import Steps, metrics_of, time_of
from tocsin.readers._rows import Record
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector

__all__ = ["fits", "framework", "vector"]

framework: str | None = None

# The Hugging Face trainer's last row sums up the whole run: its train_loss is an average over all steps.
_SUMMARY_MARK = "train_runtime"
_SUMMARY = frozenset(
    {_SUMMARY_MARK, "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss", "epoch"}
)


def fits(data: Mapping[str, object]) -> bool:
    """Whether ``data``, the first object of a log, is of this format: any object may be."""
    return isinstance(data, Mapping)


def vector(record: Record, steps: Steps, source: Source) -> Vector | None:
    """The vector of one object; None if it has no number in it."""
    row = record.data
    if _SUMMARY_MARK in row:
        row = {name: value for name, value in row.items() if name not in _SUMMARY}
    try:
        step, step_name = steps.of(row)
    except ValueError as error:
        source.wrong(record.line, str(error))
        return None
    time, time_name = time_of(row)
    metrics, skipped = metrics_of(row, (step_name, time_name))
    source.skipped += skipped
    return Vector(step, metrics, time, record.number, record.mark) if metrics else None
