"""SwanLab: whatever logs with it logs to Tocsin too.

import tocsin.integrations.swanlab

tocsin.integrations.swanlab.watch()
"""

from __future__ import annotations

from typing import Any

from tocsin._run import Run
from tocsin.integrations._host import host, tap
from tocsin.integrations._trackers import send

__all__ = ["watch"]

_TODO = "pip install 'swanlab>=0.6'"


def watch(run: Run | None = None) -> None:
    """Hears every ``swanlab.log`` and ``run.log`` of this process from now on.

    Args:
        run: where to; without it the current run, or one from the environment.

    Raises:
        DidNotEnable: SwanLab is missing or too old.
    """

    def swanlab_log(_: Any, data: object = None, step: object = None, *__: object, **___: object) -> None:
        send(run, data, step)

    tap(_run_class(host("swanlab", _TODO)), "log", swanlab_log, _TODO, run)


def _run_class(swanlab: Any) -> Any:
    """The class of its runs, under the name of any version."""
    return getattr(swanlab, "Run", None) or host("swanlab.data.run", _TODO).SwanLabRun
