"""TRL, and every other trainer built on that of transformers: axolotl, unsloth, ms-swift.

from tocsin.integrations.trl import TocsinCallback

GRPOTrainer(..., callbacks=[TocsinCallback(stop_on="critical", checkpoint_on="warning")])
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tocsin._guard import guarded, say
from tocsin._run import Run
from tocsin._watch import Told
from tocsin.integrations._host import follow, host, measured, nothing

__all__ = ["TocsinCallback", "config_of"]

_ALGORITHMS = ("GRPO", "RLOO", "PPO")  # in this order: they are looked for in the names of the hosts' classes
# The closing summary of a training, at its last step once more, is no step.
_SUMMARY = "train_runtime"

_TrainerCallback: Any = host("transformers", "pip install trl, or transformers alone").TrainerCallback


class TocsinCallback(_TrainerCallback):  # type: ignore[misc] # the host's class is Any
    """Sends what the trainer logs and, if that is asked for, saves a checkpoint or stops when an incident fires.

    Only the main process sends. With several processes and ``stop_on`` or ``checkpoint_on``, all of them hear of the
    main one's decision after each step, by one small broadcast.

    Args:
        run: where to; without it the current run, or one from the environment.
        stop_on: severity of an incident ("info", "warning", "critical") from which the training stops after the step.
        checkpoint_on: severity of an incident from which a checkpoint is saved after the step, once for each.
        on_alert: called in a background thread with every alert that fires.
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        stop_on: str | None = None,
        checkpoint_on: str | None = None,
        on_alert: Callable[[Told], object] | None = None,
    ) -> None:
        self._run = run
        self._stop_on, self._checkpoint_on, self._on_alert = stop_on, checkpoint_on, on_alert

    @guarded(nothing)
    def on_train_begin(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Tells the server what the trainer's arguments say of the run."""
        if not state.is_world_process_zero:
            return
        run = follow(self._run)
        run.describe(config_of(args))
        if self._stop_on or self._checkpoint_on or self._on_alert:
            run.watch(stop_on=self._stop_on, checkpoint_on=self._checkpoint_on, on_alert=self._on_alert)
        if getattr(args, "logging_steps", 1) != 1:
            say("logging_steps=%s hides single steps from Tocsin: logging_steps=1 is better", args.logging_steps)

    @guarded(nothing)
    def on_log(self, _args: Any, state: Any, _control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Sends one step's metrics, of training or of evaluation."""
        if logs and state.is_world_process_zero and _SUMMARY not in logs:
            follow(self._run).log(measured(logs), int(state.global_step))

    @guarded(nothing)
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Passes on what the server's incidents ask for."""
        if not (self._stop_on or self._checkpoint_on):
            return
        stop = save = False
        if state.is_world_process_zero:
            run = follow(self._run)
            stop = self._stop_on is not None and run.should_stop()
            save = self._checkpoint_on is not None and run.should_checkpoint()
        stop, save = _agreed(stop, save, getattr(args, "device", None))
        control.should_training_stop |= stop
        control.should_save |= save

    @guarded(nothing)
    def on_train_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Sends what is left, and says that the run has ended on purpose."""
        if state.is_world_process_zero:
            follow(self._run).finish()


def config_of(args: object) -> dict[str, Any]:
    """What a trainer's arguments say of its run, as fields of the run's configuration."""
    kind = type(args)
    algorithm = next((name.lower() for name in _ALGORITHMS if name in kind.__name__.upper()), None)
    if getattr(args, "importance_sampling_level", None) == "sequence":
        algorithm = "gspo"
    beta = getattr(args, "beta", None)
    config = {
        "framework": "ms-swift" if kind.__module__.startswith("swift") else "trl",
        "algorithm": algorithm,
        "group_size": getattr(args, "num_generations", None),
        "temperature": getattr(args, "temperature", None),
        "labels": {} if beta is None else {"beta": str(beta)},
    }
    return {name: value for name, value in config.items() if value not in (None, {})}


def _agreed(stop: bool, save: bool, device: Any) -> tuple[bool, bool]:
    """The main process's word on both, in every process: one that went on alone would wait for the others for ever."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if torch is None or distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return stop, save
    if distributed.get_world_size() == 1:
        return stop, save
    word = torch.tensor([stop, save], dtype=torch.int32, device=device)
    distributed.broadcast(word, src=0)
    stopped, saved = word.tolist()
    return bool(stopped), bool(saved)
