"""Weights & Biases: whatever logs to a run of it logs to Tocsin too.

    import tocsin.integrations.wandb

    tocsin.integrations.wandb.watch()

Call it in the process that logs. Offline and disabled runs are heard as well.
"""

from __future__ import annotations

from typing import Any

from tocsin._run import Run
from tocsin.integrations._host import host, tap
from tocsin.integrations._trackers import send

__all__ = ["watch"]

_TODO = "pip install 'wandb>=0.16'"


def watch(run: Run | None = None) -> None:
    """Hears every ``wandb.log`` and ``run.log`` of this process from now on.

    The step is the one given to ``log``, else a step among the metrics (``train/global_step``, ...), else wandb's own.

    Args:
        run: where to; without it the current run, or one from the environment.

    Raises:
        DidNotEnable: wandb is missing or too old.
    """

    def wandb_log(tracked: Any, data: object = None, step: object = None, *_: object, **__: object) -> None:
        send(run, data, step, getattr(tracked, "step", None))

    wandb = host("wandb", _TODO)
    tap(host("wandb.sdk.wandb_run", _TODO).Run, "log", wandb_log, _TODO, run)
    if wandb.run is not None:
        wandb.log = wandb.run.log  # since init it is the method from before
