"""Readers of metric logs: any file that a trainer or tracker writes, as step vectors.

from tocsin.readers import read

for vector in read("metrics.jsonl"):
    print(vector.step, vector.metrics)
"""

from __future__ import annotations

import os

from tocsin.readers._reading import Reading
from tocsin.readers._source import ReadError
from tocsin.readers._vector import Vector

__all__ = ["ReadError", "Reading", "Vector", "read"]


def read(path: str | os.PathLike[str], *, skip_broken: bool = False) -> Reading:
    """The step vectors of a log, in the order of the file, read as they are asked for.

    What the file is follows from its content, whatever its name; each may be gzipped:

    - JSON lines, or a JSON list, of ``{"step", "metrics", "time"?}`` (Tocsin), of ``{"step", "data"}`` (verl's file
      logger) or of flat objects ``{"step", name: value}`` (prime-rl, tinker, ms-swift, a Hugging Face log history);
    - ``trainer_state.json`` of Hugging Face trainers;
    - CSV with a header, separated by commas, semicolons or tabs; an empty cell is a metric that the row doesn't have.

    The step is the first of step, _step, global_step, training/global_step, iteration and their like; a log without any
    counts its rows from 0. Numbers may be spelled in any way; what is no number is skipped and counted.

    Args:
        path: the file; "-" for standard input.
        skip_broken: leave broken lines out, with a logged warning, instead of raising. A torn last line, as a killed
            run leaves it, is always left out so.

    Returns:
        An iterator that raises :class:`ReadError` with path, line and cause where the log can't be read, and at its
        end if the log had no vector at all.
    """
    return Reading(os.fspath(path), skip_broken=skip_broken)
