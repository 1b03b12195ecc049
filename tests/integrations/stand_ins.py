"""Stand-ins for hosts that no package index has, in the exact form of their sources; what each is modelled on is said.

The real ones are used where they are installed: see `real_or` in test_hosts.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import pytest

__all__ = ["areal", "miles", "nemo_rl_logger", "roll", "skyrl", "slime", "tinker"]


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> types.ModuleType:
    """Makes a module importable under its full name until the test ends."""
    parent = ""
    for part in name.split("."):
        full = f"{parent}.{part}" if parent else part
        if full not in sys.modules:
            monkeypatch.setitem(sys.modules, full, types.ModuleType(full))
        if parent:
            monkeypatch.setattr(sys.modules[parent], part, sys.modules[full], raising=False)
        parent = full
    for member, value in members.items():
        monkeypatch.setattr(sys.modules[name], member, value, raising=False)
    return sys.modules[name]


class Kept:
    """What a host's own backend was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []


def nemo_rl_logger(kept: Kept) -> Any:  # noqa: C901 two small classes
    """nemo_rl.utils.logger.Logger: a list of backends, each called with five arguments by position."""

    class Backend:
        def log_metrics(self, *arguments: Any) -> None:
            kept.calls.append(arguments)

        def log_hyperparams(self, _params: Mapping[str, Any]) -> None:
            pass

    class Logger:
        def __init__(self) -> None:
            self.loggers: list[Any] = [Backend()]

        def log_metrics(
            self,
            metrics: dict[str, Any],
            step: int,
            prefix: str | None = "",
            step_metric: str | None = None,
            step_finished: bool = False,
        ) -> None:
            for logger in self.loggers:
                logger.log_metrics(metrics, step, prefix, step_metric, step_finished)

        def log_hyperparams(self, params: Mapping[str, Any]) -> None:
            for logger in self.loggers:
                logger.log_hyperparams(params)

        def log_histogram(self, histogram: list[Any], step: int, name: str) -> None:
            for logger in self.loggers[1:]:
                logger.log_histogram(histogram, step, name)

        def finish(self) -> None:
            for logger in self.loggers:
                finish = getattr(logger, "finish", None)
                if callable(finish):
                    finish()

    return Logger()


def roll(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> dict[str, Any]:
    """roll.utils.tracking: a registry of classes and the function that makes one of them."""

    class BaseTracker:
        def log(self, values: dict[str, Any], step: int | None, **_: Any) -> None:
            pass

        def finish(self) -> None:
            pass

    class StdoutTracker(BaseTracker):
        def __init__(self, config: dict[str, Any], **_: Any) -> None:
            self.config = config

        def log(self, values: dict[str, Any], step: int | None, **_: Any) -> None:
            kept.calls.append((values, step))

    registry: dict[str, Any] = {"stdout": StdoutTracker}
    module(monkeypatch, "roll.utils.tracking", tracker_registry=registry)
    return registry


def areal(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> Any:
    """areal.utils.stats_logger.StatsLogger, without the trackers that it logs to."""

    class StatsLogger:
        def __init__(self, config: Any, ft_spec: Any) -> None:
            self.exp_config, self.ft_spec = config, ft_spec
            self._last_commit_step = -1

        def commit(self, epoch: int, step: int, global_step: int, data: dict[str, Any] | list[dict[str, Any]]) -> None:
            kept.calls.append((epoch, step, global_step, data))
            parts = [data] if isinstance(data, dict) else data
            self._last_commit_step = max(global_step, self._last_commit_step + 1) + len(parts) - 1

        def close(self) -> None:
            pass

    module(monkeypatch, "areal.utils.stats_logger", StatsLogger=StatsLogger)
    return StatsLogger


def skyrl(monkeypatch: pytest.MonkeyPatch) -> None:
    """skyrl.train.utils.callbacks: a base class whose events do nothing."""

    class TrainingCallback:
        def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None: ...
        def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None: ...
        def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None: ...
        def on_log(self, trainer: Any, callback_input: Any, control: Any) -> None: ...

    module(monkeypatch, "skyrl.train.utils.callbacks", TrainingCallback=TrainingCallback)


def slime(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> Callable[..., None]:
    """slime.utils.logging_utils.log; its callers look it up in the module at every call."""
    return _tracking_log(monkeypatch, "slime.utils.logging_utils", kept)


def miles(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> Callable[..., None]:
    """miles.utils.tracking_utils.tracking.log, likewise."""
    return _tracking_log(monkeypatch, "miles.utils.tracking_utils.tracking", kept)


def _tracking_log(monkeypatch: pytest.MonkeyPatch, name: str, kept: Kept) -> Callable[..., None]:
    def log(args: Any, metrics: dict[str, Any], step_key: str) -> None:
        kept.calls.append((args, metrics, step_key))

    found = module(monkeypatch, name, log=log)
    return lambda *arguments, **named: found.log(*arguments, **named)  # noqa: PLW0108 looked up at every call


def tinker(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> Any:
    """tinker_cookbook.utils.ml_log.MultiplexLogger, without loggers of its own."""

    class MultiplexLogger:
        def log_hparams(self, config: Any) -> None:
            pass

        def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
            kept.calls.append((metrics, step))

        def close(self) -> None:
            pass

    module(monkeypatch, "tinker_cookbook.utils.ml_log", MultiplexLogger=MultiplexLogger)
    return MultiplexLogger
