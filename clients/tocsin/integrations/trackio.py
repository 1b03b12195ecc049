"""trackio: whatever logs to a run of it logs to Tocsin too.

import tocsin.integrations.trackio

tocsin.integrations.trackio.watch()
"""

from __future__ import annotations

from typing import Any

from tocsin._run import Run
from tocsin.integrations._host import host, tap
from tocsin.integrations._trackers import send

__all__ = ["watch"]

_TODO = "pip install 'trackio>=0.2'"


def watch(run: Run | None = None) -> None:
    """Hears every ``trackio.log`` and ``run.log`` of this process from now on.

    Args:
        run: where to; without it the current run, or one from the environment.

    Raises:
        DidNotEnable: trackio is missing or too old.
    """

    def trackio_log(tracked: Any, metrics: object = None, step: object = None, *_: object, **__: object) -> None:
        send(run, metrics, step, getattr(tracked, "_next_step", None))

    tap(host("trackio.run", _TODO).Run, "log", trackio_log, _TODO, run)
