"""Other trackers, opened as their documentation says, each without a network and in a folder of its own.

Where they leave a choice, it is the one that costs the caller least: no copies to other trackers, no statistics of the
machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

__all__ = ["PEERS", "Log"]

Log = Callable[[dict[str, float], int], object]
"""Logs the metrics of one step."""

RLWATCH = {
    "entropy": 2.8,
    "kl_divergence": 0.05,
    "reward_mean": 0.5,
    "reward_std": 0.3,
    "advantage_std": 1.0,
    "loss": 0.02,
    "grad_norm": 0.8,
}
"""What its detectors look at, in a healthy run."""


@contextmanager
def expr_tracker(folder: Path) -> Iterator[Log]:
    import expr_tracker as et  # noqa: PLC0415 - optional, like the others
    from loguru import logger  # noqa: PLC0415

    logger.disable("expr_tracker")
    et.init(project="benchmark", name="run", dir=str(folder), backends=("jsonl",))
    yield lambda metrics, _: et.log(metrics)  # with step= it costs more
    et.finish()


@contextmanager
def trackio(folder: Path) -> Iterator[Log]:
    os.environ |= {"TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1"}  # read when it is imported
    import trackio  # noqa: PLC0415

    with redirect_stdout(StringIO()):
        trackio.init(project="benchmark", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    yield lambda metrics, step: trackio.log(metrics, step=step)
    with redirect_stdout(StringIO()):
        trackio.finish()


@contextmanager
def wandb(folder: Path) -> Iterator[Log]:
    os.environ |= {f"WANDB_{kind}_DIR": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    import wandb  # noqa: PLC0415

    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True)
    with wandb.init(project="benchmark", mode="offline", dir=folder, settings=settings) as run:
        yield lambda metrics, step: run.log(metrics, step=step)


@contextmanager
def rlwatch(folder: Path) -> Iterator[Log]:
    import rlwatch  # noqa: PLC0415

    logging.getLogger("rlwatch").setLevel(logging.ERROR)
    monitor = rlwatch.attach(framework="manual", run_id="run", storage={"log_dir": str(folder)})

    def log(metrics: dict[str, float], step: int) -> None:
        rlwatch.log_step(step, **metrics)

    yield log
    monitor.stop()


PEERS: dict[str, Callable[[Path], AbstractContextManager[Log]]] = {
    "expr_tracker": expr_tracker,
    "trackio": trackio,
    "wandb offline": wandb,
    "rlwatch": rlwatch,
}
