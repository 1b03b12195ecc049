"""SkyRL: a callback of its trainers.

    from tocsin.integrations.skyrl import TocsinCallback

    class Experiment(BasePPOExp):
        def get_trainer(self, *args, **kwargs):
            return RayPPOTrainer(*args, **kwargs, callbacks=[TocsinCallback(checkpoint_on="warning")])

SkyRL's callbacks can ask for a checkpoint but not for the end of the training. The fully asynchronous trainer takes no
callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocsin._guard import guarded
from tocsin._run import Run
from tocsin._watch import Told
from tocsin.integrations._host import follow, host, measured, nothing, of

__all__ = ["TocsinCallback", "config_of"]

_TODO = "use a SkyRL that has TrainingCallback (2026 or later)"
_TrainingCallback: Any = host("skyrl.train.utils.callbacks", _TODO).TrainingCallback


class TocsinCallback(_TrainingCallback):  # type: ignore[misc] # the host's class is Any
    """Sends what the trainer logs and, if that is asked for, has a checkpoint saved when an incident fires.

    Args:
        run: where to; without it the current run, or one from the environment.
        checkpoint_on: severity of an incident from which a checkpoint is saved after the step, once for each.
        on_alert: called in a background thread with every alert that fires.
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        checkpoint_on: str | None = None,
        on_alert: Callable[[Told], object] | None = None,
    ) -> None:
        self._run = run
        self._checkpoint_on, self._on_alert = checkpoint_on, on_alert

    @guarded(nothing)
    def on_train_start(self, trainer: Any, _input: Any, _control: Any) -> None:
        """Tells the server what the trainer's configuration says of the run."""
        run = follow(self._run)
        run.describe(config_of(getattr(trainer, "cfg", None)))
        if self._checkpoint_on or self._on_alert:
            run.watch(checkpoint_on=self._checkpoint_on, on_alert=self._on_alert)

    @guarded(nothing)
    def on_log(self, _trainer: Any, callback_input: Any, _control: Any) -> None:
        """Sends what the trainer is about to log."""
        if callback_input.logs:
            follow(self._run).log(measured(callback_input.logs), callback_input.global_step)

    @guarded(nothing)
    def on_step_end(self, _trainer: Any, _input: Any, control: Any) -> None:
        """Passes on what the server's incidents ask for."""
        if self._checkpoint_on and follow(self._run).should_checkpoint():
            control.should_save = True

    @guarded(nothing)
    def on_train_end(self, _trainer: Any, _input: Any, _control: Any) -> None:
        """Sends what is left, and says that the run has ended on purpose."""
        follow(self._run).finish()


def config_of(config: Any) -> dict[str, Any]:
    """What SkyRL's configuration says of the run, as fields of the run's configuration."""
    algorithm = of(config, "trainer", "algorithm")
    estimator = of(algorithm, "advantage_estimator")
    found = {
        "framework": "skyrl",
        "algorithm": "ppo" if estimator == "gae" else estimator,
        "group_size": of(config, "generator", "n_samples_per_prompt"),
        "temperature": of(config, "generator", "sampling_params", "temperature"),
    }
    return {name: value for name, value in found.items() if value is not None}
