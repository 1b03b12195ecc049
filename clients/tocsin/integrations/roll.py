"""ROLL: a tracker in its registry, and an ear at the others.

    from tocsin.integrations import roll

    roll.watch()  # in the launcher, before the pipeline is built

``track_with`` may name any tracker, or "tocsin" if there is none beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin._guard import guarded
from tocsin._run import Run
from tocsin.integrations._host import follow, host, measured, nothing, of, tap

__all__ = ["config_of", "watch"]

_TODO = "use a ROLL with roll.utils.tracking.tracker_registry"
_NAME = "tocsin"


def watch(run: Run | None = None) -> None:
    """Hears every registered tracker of this process from now on, and registers one called "tocsin".

    Args:
        run: where to; without it the current run, or one from the environment.

    Raises:
        DidNotEnable: ROLL is missing or too old.
    """
    registry = host("roll.utils.tracking", _TODO).tracker_registry

    def roll_begins(_: Any, config: Any = None, *__: object, **___: object) -> None:
        follow(run).describe(config_of(config))

    def roll_log(_: Any, values: Any, step: Any = None, *__: object, **___: object) -> None:
        if isinstance(values, Mapping):
            follow(run).log(measured(values), step)

    def roll_ends(*_: object) -> None:
        follow(run).finish()

    registry.setdefault(_NAME, _Tracker)
    for tracker in registry.values():
        tap(tracker, "__init__", roll_begins, _TODO, run)
        tap(tracker, "log", roll_log, _TODO, run)
        tap(tracker, "finish", roll_ends, _TODO, run)


class _Tracker:
    """A tracker as ROLL's registry takes it, that does nothing but be heard."""

    def __init__(self, config: Any, **_: Any) -> None:
        pass

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        pass

    def log_traces(self, *_: Any, **__: Any) -> None:
        pass

    @guarded(nothing)
    def finish(self) -> None:
        pass


def config_of(config: Any) -> dict[str, Any]:
    """What ROLL's configuration says of the run, as fields of the run's configuration."""
    estimator = of(config, "adv_estimator")
    found = {
        "framework": "roll",
        "algorithm": "ppo" if estimator == "gae" else estimator,
        "group_size": of(config, "num_return_sequences_in_group")
        or of(config, "actor_infer", "generating_args", "num_return_sequences"),
        "temperature": of(config, "actor_infer", "generating_args", "temperature"),
        "critic_warmup": of(config, "critic_warmup"),
    }
    return {name: value for name, value in found.items() if value is not None}
