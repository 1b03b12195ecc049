"""verl: hears its ``Tracking.log`` through verl's own plug-in entries; no line of the training script changes.

With Tocsin installed beside verl, TOCSIN_URL set in the environment of the trainer's process is enough: verl loads
plug-ins by their entry point. A verl from before June 2026 wants ``VERL_USE_EXTERNAL_MODULES=tocsin.integrations.verl``
as well (or in its place). Importing this module inside verl is all that either does.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tocsin._guard import guarded
from tocsin.integrations._host import follow, host, measured, nothing, of, tap

__all__ = ["config_of", "install"]

_TODO = "pip install 'verl>=0.2'"
_ESTIMATORS = {"gae": "ppo", "remax": "reinforce", "reinforce_plus_plus": "reinforce"}
_asked: list[str] = []


def install() -> None:
    """Hears verl's trackers from now on. Only needed in a process that has imported verl without the plug-in.

    Raises:
        DidNotEnable: verl is missing or too old.
    """
    _asked.append("install")
    _listen()


def _listen() -> None:
    tracking = host("verl.utils.tracking", _TODO).Tracking
    tap(tracking, "__init__", tracking_begins, _TODO, "tocsin")
    tap(tracking, "log", tracking_log, _TODO, "tocsin")
    if hasattr(tracking, "finish"):
        tap(tracking, "finish", tracking_ends, _TODO, "tocsin")


def _wanted() -> bool:
    """Whether anybody asked for it: with the entry point, being installed must not be enough."""
    modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
    asked = os.environ.get("TOCSIN_URL") or os.environ.get("TOCSIN_EMBEDDED", "0") not in {"", "0"}
    return bool(_asked or __name__ in modules or asked)


def tracking_begins(
    _: Any, project_name: object, experiment_name: object, _backend: object = None, config: Any = None, **__: object
) -> None:
    """What verl's tracker was made with: the run is called after it, unless TOCSIN_RUN says how."""
    if _wanted():
        follow(None, f"{project_name}-{experiment_name}").describe(config_of(config))


def tracking_log(_: Any, data: Any, step: Any, *__: object, **___: object) -> None:
    """What verl logs: metrics of a step, or of the validation before the first one, at step 0 or the resumed one."""
    if _wanted():
        follow(None).log(measured(data), step)


def tracking_ends(tracking: Any, *_: object, **__: object) -> None:
    """The training has ended, and verl closes its trackers; its processes may be killed soon after."""
    if _wanted() and not getattr(tracking, "_finished", False):
        follow(None).finish()


def config_of(config: Any) -> dict[str, Any]:
    """What verl's configuration says of the run, as fields of the run's configuration."""
    control = of(config, "algorithm", "kl_ctrl")
    adaptive = of(config, "algorithm", "use_kl_in_reward") and of(control, "type") == "adaptive"
    loss = of(config, "actor_rollout_ref", "actor")
    labels = {
        "bypass_mode": of(config, "algorithm", "rollout_correction", "bypass_mode") or None,
        "beta": of(loss, "kl_loss_coef") if of(loss, "use_kl_loss") else None,
    }
    found = {
        "framework": "verl",
        "algorithm": _algorithm(config),
        "group_size": of(config, "actor_rollout_ref", "rollout", "n"),
        "temperature": of(config, "actor_rollout_ref", "rollout", "temperature"),
        "target_kl": of(control, "target_kl") if adaptive else None,
        "critic_warmup": of(config, "trainer", "critic_warmup"),
        "labels": {name: str(value) for name, value in labels.items() if value is not None},
    }
    return {name: value for name, value in found.items() if value not in (None, {})}


def _algorithm(config: Any) -> str | None:
    if of(config, "actor_rollout_ref", "actor", "policy_loss", "loss_mode") == "gspo":
        return "gspo"
    estimator = of(config, "algorithm", "adv_estimator")
    if estimator is None:
        return None
    name = str(getattr(estimator, "value", estimator)).lower()
    return next((known for known in ("grpo", "rloo") if name.startswith(known)), _ESTIMATORS.get(name, name))


if "verl" in sys.modules:  # verl is loading its plug-ins: whatever goes wrong, it must go on
    guarded(nothing)(_listen)()
