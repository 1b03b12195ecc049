"""Rollouts that trainers have written to disk, and ``tocsin rollouts``, which sends them to a service.

from tocsin.rollouts import read

for step in read("rollouts/"):
    run.log_rollouts(step.rows, step.step, time=step.time)

Or without anything else installed: ``python -m tocsin.rollouts DIR --url http://tocsin-host:8765 --run my-run``.
"""

from __future__ import annotations

from tocsin.rollouts._command import add_arguments, send
from tocsin.rollouts._files import Step, find, read

__all__ = ["Step", "add_arguments", "find", "read", "send"]
