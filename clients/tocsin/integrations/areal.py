"""AReaL: hears ``StatsLogger.commit`` in the training script.

from tocsin.integrations import areal

areal.watch()  # before the trainer is made
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tocsin._run import Run
from tocsin.integrations._host import follow, host, measured, of, tap

__all__ = ["config_of", "watch"]

_TODO = "use an AReaL with areal.utils.stats_logger"
_COUNTER = "__count"


def watch(run: Run | None = None) -> None:
    """Hears every ``StatsLogger`` of this process from now on; only the main rank's, as AReaL does.

    Args:
        run: where to; without it the current run, or one from the environment.

    Raises:
        DidNotEnable: AReaL is missing or too old.
    """

    def areal_begins(_: Any, config: Any = None, *__: object, **___: object) -> None:
        if _is_main():
            follow(run).describe(config_of(config))

    def areal_commit(logger: Any, _epoch: int, _step: int, global_step: int, data: Any) -> None:
        if not _is_main():
            return
        # AReaL's own axis: it runs ahead of global_step after a recovery, or when one commit has several parts.
        begin = max(global_step, getattr(logger, "_last_commit_step", -1) + 1)
        for index, part in enumerate([data] if isinstance(data, Mapping) else data):
            named = {name: value for name, value in part.items() if not name.endswith(_COUNTER)}
            follow(run).log(measured(named), begin + index)

    def areal_ends(*_: object) -> None:
        if _is_main():
            follow(run).finish()

    logger = host("areal.utils.stats_logger", _TODO).StatsLogger
    tap(logger, "__init__", areal_begins, _TODO, run)
    tap(logger, "commit", areal_commit, _TODO, run)
    tap(logger, "close", areal_ends, _TODO, run)


def _is_main() -> bool:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return True
    return bool(distributed.get_rank() == 0)


def config_of(config: Any) -> dict[str, Any]:
    """What AReaL's configuration says of the run, as fields of the run's configuration."""
    found = {
        "framework": "areal",
        "algorithm": None if of(config, "actor") is None else "ppo" if of(config, "critic") is not None else "grpo",
        "group_size": of(config, "gconfig", "n_samples"),
        "temperature": of(config, "gconfig", "temperature"),
    }
    return {name: value for name, value in found.items() if value is not None}
