"""What the fields of a row mean: its step, its time, its metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tocsin._numbers import number
from tocsin._values import flat, numbers

__all__ = ["Steps", "has_step", "metrics_of", "plausible", "time_of"]

# In order of trust: wandb's _step before global_step, which some frameworks use for episodes; ms-swift writes "a/b".
_STEPS = (
    "step",
    "_step",
    "global_step",
    "training/global_step",
    "iteration",
    "train/global_step",
    "trainer/global_step",
    "global_step/max_steps",
    "rollout_id",
)
_TIMES = ("time", "_timestamp", "timestamp", "wall time", "wall_time")
# Unix time in this century, which is what the service takes: anything else is a duration or a counter.
_EARLIEST, _LATEST = 946_684_800.0, 4_102_444_800.0


class Steps:
    """Finds the step of every row of one log; a log whose first row has none counts its rows from 0."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._counted: bool | None = (state or {}).get("counted")
        self._rows = int((state or {}).get("rows", 0))

    def state(self) -> dict[str, Any]:
        """What to make it from again, as strict JSON."""
        return {"counted": self._counted, "rows": self._rows}

    def expect(self, names: Iterable[str]) -> None:
        """Settles, from a header, whether the rows have a step of their own."""
        self._counted = _first(names, _STEPS) is None

    def of(self, row: Mapping[str, object]) -> tuple[int, str | None]:
        """The row's step and the name of the field that it stands in, None if rows are counted.

        Raises:
            ValueError: it is missing or no whole number >= 0.
        """
        name = _first(row, _STEPS)
        if self._counted is None:
            self._counted = name is None
        if self._counted:
            self._rows += 1
            return self._rows - 1, None
        if name is None:
            raise ValueError(f"has no step (looked for {', '.join(_STEPS)})")
        return _step(row[name]), name


def has_step(names: Iterable[str]) -> bool:
    """Whether one of the names is that of the step."""
    return _first(names, _STEPS) is not None


def time_of(row: Mapping[str, object]) -> tuple[float | None, str | None]:
    """The row's Unix time in seconds and the name of its field; (None, None) if it has none."""
    name = _first(row, _TIMES)
    if name is not None:
        try:
            time = number(row[name])
        except ValueError:
            return None, None
        seconds = plausible(time)
        if seconds is not None:
            return seconds, name
    return None, None


def plausible(time: float) -> float | None:
    """The Unix time in seconds that a number stands for, which may be in milliseconds; None if it is no time."""
    seconds = time / 1000 if time >= _EARLIEST * 1000 else time
    return seconds if _EARLIEST <= seconds < _LATEST else None


def metrics_of(row: Mapping[str, object], without: Iterable[str | None] = ()) -> tuple[dict[str, float], int]:
    """The row's metrics, nested ones flattened, but those named in ``without``; and how many were no numbers."""
    left_out = set(without)
    found, refused = numbers(dict(flat({name: value for name, value in row.items() if name not in left_out})))
    return found, len(refused)


def _first(names: Iterable[str], wanted: tuple[str, ...]) -> str | None:
    """The name that comes first in ``wanted``, whatever its case."""
    present = {name.strip().lower(): name for name in names}
    return next((present[name] for name in wanted if name in present), None)


def _step(value: object) -> int:
    text = value.split("/")[0] if isinstance(value, str) else value
    try:
        step = number(text)
    except ValueError:
        step = math.nan
    if isinstance(value, bool) or not step.is_integer() or step < 0:
        raise ValueError(f"has the step {value!r:.60}, which is no whole number >= 0")
    return int(step)
