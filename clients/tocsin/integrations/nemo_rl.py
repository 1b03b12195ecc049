"""NeMo-RL: one more backend in its logger's list.

from tocsin.integrations import nemo_rl

(..., logger, ...) = setup(config, ...)  # in the run script, before the training begins
nemo_rl.watch(logger, config=config)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin._guard import guarded
from tocsin._run import Run
from tocsin.integrations._host import DidNotEnable, follow, measured, nothing, of

__all__ = ["TocsinLogger", "config_of", "watch"]


def watch(logger: Any, run: Run | None = None, *, config: Any = None) -> None:
    """Adds Tocsin to the backends of NeMo-RL's ``Logger``.

    Args:
        logger: the one that ``setup`` returns.
        run: where to; without it the current run, or one from the environment.
        config: the master configuration: tells the server group size and temperature.

    Raises:
        DidNotEnable: it isn't NeMo-RL's logger.
    """
    backends = getattr(logger, "loggers", None)
    if not isinstance(backends, list):
        raise DidNotEnable("watch() takes NeMo-RL's Logger, which has a list of backends in .loggers")
    if not any(isinstance(backend, TocsinLogger) for backend in backends):
        backends.append(TocsinLogger(run, config))


class TocsinLogger:
    """A backend as NeMo-RL's ``LoggerInterface`` describes it; nothing in here raises.

    Args:
        run: where to; None is the current run.
        config: the master configuration, if it is at hand.
    """

    def __init__(self, run: Run | None = None, config: Any = None) -> None:
        self._run = run
        self.log_hyperparams(config)

    @guarded(nothing)
    def log_metrics(
        self,
        metrics: Mapping[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,  # noqa: ARG002 the host passes it
    ) -> None:
        """Sends what one call logs; those with an axis of their own (GPU monitoring) aren't of the training's steps."""
        if step_metric is None or step_metric not in metrics:
            follow(self._run).log(measured(metrics, prefix or ""), step)

    @guarded(nothing)
    def log_hyperparams(self, params: Any) -> None:
        """Tells the server what the configuration says of the run."""
        if params is not None:
            follow(self._run).describe(config_of(params))

    def log_histogram(self, *_: Any, **__: Any) -> None:
        """Histograms are no metrics."""

    def log_plot(self, *_: Any, **__: Any) -> None:
        """Neither are plots."""

    @guarded(nothing)
    def finish(self) -> None:
        """Sends what is left, and says that the run has ended on purpose."""
        follow(self._run).finish()


def config_of(config: Any) -> dict[str, Any]:
    """What NeMo-RL's master configuration says of the run, as fields of the run's configuration."""
    grpo = of(config, "grpo")
    found = {
        "framework": "nemo-rl",
        "algorithm": "grpo" if grpo is not None else "ppo" if of(config, "ppo") is not None else None,
        "group_size": of(grpo, "num_generations_per_prompt"),
        "temperature": of(config, "policy", "generation", "temperature"),
    }
    return {name: value for name, value in found.items() if value is not None}
