"""What the taps of experiment trackers do alike: find the step of what is logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin._run import Run
from tocsin.integrations._host import follow, measured

__all__ = ["STEP_NAMES", "send"]

STEP_NAMES = (
    "train/global_step",  # transformers, OpenRLHF
    "training_step",  # open-instruct, whose global_step counts episodes
    "rollout/step",  # slime, miles
    "train/step",
    "eval/step",
    "trainer/global_step",
    "training/global_step",
    "global_step",
    "step",
)
"""Metrics that are steps, for those who log them beside the others; the first one that is there counts."""


def send(run: Run | None, data: object, step: object, counted: object = None) -> None:
    """Hands on what a tracker was given.

    Args:
        run: where to; None is the current run.
        data: what was logged; anything but a mapping is none of ours.
        step: as the caller gave it to the tracker, None if it gave none.
        counted: the tracker's own count, for those who tell no step in any way.
    """
    if not isinstance(data, Mapping):
        return
    if step is None:
        step = next((data[name] for name in STEP_NAMES if name in data), counted)
    metrics = measured(data)
    if metrics:
        follow(run).log(metrics, _whole(step))


def _whole(step: Any) -> Any:
    """A step that came as a float of whole value as an integer; the client judges everything else."""
    return int(step) if isinstance(step, float) and step.is_integer() else step
