"""slime and miles: functions for their own hooks; each hears, in its process, all that is logged there.

    --custom-megatron-before-train-step-hook-path tocsin.integrations.slime.before_train_step
    --custom-rollout-log-function-path tocsin.integrations.slime.log_rollout
    --custom-eval-rollout-log-function-path tocsin.integrations.slime.log_eval

The first brings the metrics of the training, the others those of rollouts and evaluations: they run in processes of
their own. TOCSIN_RUN has to name the run, so that all of them mean the same. The training of the first step is heard
from its beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tocsin._guard import guarded
from tocsin.integrations._host import DidNotEnable, follow, host, measured, tap

__all__ = ["before_train_step", "config_of", "log_eval", "log_rollout", "watch"]

# Where their one function for logging lies; the first that can be imported in a process of theirs is it.
_LOGGERS = {
    "slime": ("slime.utils.logging_utils",),
    "miles": ("miles.utils.tracking_utils.tracking", "miles.utils.tracking_utils", "miles.utils.logging_utils"),
}
_TODO = "use a slime with slime.utils.logging_utils.log, or a miles of 2026"


def _false() -> bool:
    return False


@guarded(lambda: None)
def before_train_step(args: Any, *_: Any, **__: Any) -> None:
    """For ``--custom-megatron-before-train-step-hook-path``."""
    watch(args)


@guarded(_false)
def log_rollout(_rollout_id: int, args: Any, *_: Any, **__: Any) -> bool:
    """For ``--custom-rollout-log-function-path``; False: the rollout is logged as ever."""
    watch(args)
    return False


@guarded(_false)
def log_eval(_rollout_id: int, args: Any, *_: Any, **__: Any) -> bool:
    """For ``--custom-eval-rollout-log-function-path``; False: the evaluation is logged as ever."""
    watch(args)
    return False


def watch(args: Any) -> None:
    """Hears all that this process logs from now on.

    Args:
        args: the parsed arguments of slime or miles.

    Raises:
        DidNotEnable: neither is there, or it is too old.
    """
    framework = next((name for name in _LOGGERS if name in sys.modules), None)
    if framework is None:
        raise DidNotEnable(f"neither slime nor miles has been imported in this process: {_TODO}")
    module = next((sys.modules[name] for name in _LOGGERS[framework] if name in sys.modules), None)
    logging = host(_LOGGERS[framework][0], _TODO) if module is None else module

    def slime_log(_args: Any, metrics: Any, step_key: Any = None, *_: object, **__: object) -> None:
        if isinstance(metrics, Mapping) and step_key in metrics:
            named = {name: value for name, value in metrics.items() if name != step_key}
            follow(None).log(measured(named), int(metrics[step_key]))

    tap(logging, "log", slime_log, _TODO, "tocsin")
    follow(None).describe(config_of(args, framework))


def config_of(args: Any, framework: str = "slime") -> dict[str, Any]:
    """What the arguments say of the run, as fields of the run's configuration."""
    estimator = getattr(args, "advantage_estimator", None)
    found = {
        "framework": framework,
        "algorithm": "reinforce" if str(estimator).startswith("reinforce") else estimator,
        "group_size": getattr(args, "n_samples_per_prompt", None),
        "temperature": getattr(args, "rollout_temperature", None),
        "critic_warmup": getattr(args, "num_critic_only_steps", None) or None,
    }
    return {name: value for name, value in found.items() if value is not None}
