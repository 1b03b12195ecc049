"""tinker-cookbook: hears the logger that all of its recipes log to.

from tocsin.integrations import tinker

tinker.watch()  # before the recipe's main() runs
"""

from __future__ import annotations

from typing import Any

from tocsin._run import Run
from tocsin.integrations._host import follow, host, of, tap
from tocsin.integrations._trackers import send

__all__ = ["config_of", "watch"]

_TODO = "pip install tinker-cookbook"


def watch(run: Run | None = None) -> None:
    """Hears every ``MultiplexLogger`` of this process from now on.

    Args:
        run: where to; without it the current run, or one from the environment.

    Raises:
        DidNotEnable: tinker-cookbook is missing or too old.
    """

    def tinker_log_metrics(_: Any, metrics: object, step: object = None, *__: object) -> None:
        send(run, metrics, step)

    def tinker_log_hparams(_: Any, config: Any) -> None:
        follow(run).describe(config_of(config))

    def tinker_close(*_: object) -> None:
        follow(run).finish()

    logger = host("tinker_cookbook.utils.ml_log", _TODO).MultiplexLogger
    tap(logger, "log_metrics", tinker_log_metrics, _TODO, run)
    tap(logger, "log_hparams", tinker_log_hparams, _TODO, run)
    tap(logger, "close", tinker_close, _TODO, run)


def config_of(config: Any) -> dict[str, Any]:
    """What a recipe's configuration says of the run, as fields of the run's configuration."""
    found = {
        "framework": "tinker-cookbook",
        "group_size": of(config, "dataset_builder", "group_size"),
        "temperature": of(config, "temperature"),
    }
    return {name: value for name, value in found.items() if value is not None}
