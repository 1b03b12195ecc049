"""Readers of metric logs: any file that a trainer or tracker writes, as step vectors.

from tocsin.readers import read

for vector in read("metrics.jsonl"):
    print(vector.step, vector.metrics)
"""

from __future__ import annotations

import os
from pathlib import Path

from tocsin.readers._finding import Log, find
from tocsin.readers._naming import name_of
from tocsin.readers._reading import Reading
from tocsin.readers._source import ReadError
from tocsin.readers._vector import Vector

__all__ = ["Log", "ReadError", "Reading", "Vector", "find", "name_of", "read"]


def read(path: str | os.PathLike[str] | Log, *, skip_broken: bool = False) -> Reading:
    """The step vectors of a log, in the order of the file, read as they are asked for.

    What the file is follows from its content, whatever its name; each may be gzipped:

    - JSON lines, or a JSON list, of ``{"step", "metrics", "time"?}`` (Tocsin), of ``{"step", "data"}`` (verl's file
      logger) or of flat objects ``{"step", name: value}`` (prime-rl, tinker, ms-swift, a Hugging Face log history);
    - ``trainer_state.json`` of Hugging Face trainers;
    - CSV with a header, separated by commas, semicolons or tabs; an empty cell is a metric that the row doesn't have;
    - TensorBoard's event files, and the file of an offline run of wandb;
    - what verl, ROLL's stdout tracker, OpenRLHF and Hugging Face trainers print, between whatever else is printed.

    The step is the first of step, _step, global_step, training/global_step, iteration and their like; a log without any
    counts its rows from 0. Numbers may be spelled in any way; what is no number is skipped and counted.

    Args:
        path: the file; "-" for standard input; a folder with one log in it; or one of those that :func:`find` found.
        skip_broken: leave broken lines out, with a logged warning, instead of raising. A torn last line, as a killed
            run leaves it, is always left out so.

    Returns:
        An iterator that raises :class:`ReadError` with path, line and cause where the log can't be read, and at its
        end if the log had no vector at all.

    Raises:
        ReadError: a folder with no log in it, or with several.
    """
    if isinstance(path, Log):
        return Reading([str(one) for one in path.paths], skip_broken=skip_broken)
    name = os.fspath(path)
    if name == "-" or not Path(name).is_dir():
        return Reading([name], skip_broken=skip_broken)
    logs = find(name)
    if len(logs) > 1:
        names = ", ".join(log.name for log in logs[:5])
        raise ReadError(name, None, f"holds the logs of {len(logs)} runs: {names}{', ...' if len(logs) > 5 else ''}")
    return read(logs[0], skip_broken=skip_broken)
