"""The entries of a run's log: everything that can change the engine's mind, in order.

The log is the truth and the engine's state a cache of its fold, so an entry carries all that the
engine may know: there is no clock, no setting and no environment beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "Entry",
    "Rebaseline",
    "RunConfig",
    "StepVector",
    "entry_from_json",
    "entry_to_json",
    "number_from_json",
    "number_to_json",
]

Algorithm = Literal["ppo", "grpo", "dapo", "rloo", "reinforce", "gspo", "other"]
Profile = Literal["dense", "moe"]


@dataclass(frozen=True, slots=True)
class StepVector:
    """The metrics of one training step, as the trainer wrote them.

    Several vectors may carry the same step (train, then validation); the engine merges them.

    Attributes:
        step: the trainer's own step number, >= 0.
        metrics: name as written by the trainer to its value. NaN and infinities are legal: they are
            what the data-quality rules look for.
        time: Unix time in seconds at which the trainer logged the step, if known.
        attempt: the trainer's restart counter, if it has one. A larger number than before opens the
            next attempt of the run; without it a step that goes back does.
        computed: Tocsin itself has computed these metrics, of the step's tensors. They have canonical names, which
            tell nothing of the framework, and may come after the trainer has gone on to later steps.
    """

    step: int
    metrics: Mapping[str, float]
    time: float | None = None
    attempt: int | None = None
    computed: bool = False


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What the trainer says of the run. Every field is optional; a later entry overrides the fields it sets.

    Attributes:
        algorithm: the RL algorithm, lower case ("grpo", "ppo", ...).
        framework: the training framework, lower case ("verl", "trl", ...): picks the metric aliases.
        group_size: rollouts per prompt (G), >= 1.
        target_kl: target of an adaptive KL controller, > 0.
        temperature: sampling temperature, > 0.
        profile: "dense" or "moe": which train/inference mismatch is normal.
        critic_warmup: steps that train only the critic, >= 0.
        actor_warmup: steps with an actor learning rate of (nearly) 0, >= 0.
        advantage_mean: how the reported advantage mean is averaged: over tokens (verl) or sequences.
        whitened_advantages: True if advantages are normalised over the batch before the loss.
        finished: True when the trainer has said that the run has ended; the next vector takes it back.
        labels: free key/value texts for routing and display.
        link: address of the run's page in an experiment tracker.
    """

    algorithm: str | None = None
    framework: str | None = None
    group_size: int | None = None
    target_kl: float | None = None
    temperature: float | None = None
    profile: Profile | None = None
    critic_warmup: int | None = None
    actor_warmup: int | None = None
    advantage_mean: Literal["token", "sequence"] | None = None
    whitened_advantages: bool | None = None
    finished: bool | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    link: str | None = None

    def updated(self, newer: RunConfig) -> RunConfig:
        """This configuration with the fields that ``newer`` sets."""
        changes = {name: value for name, value in asdict(newer).items() if value is not None and value != {}}
        return RunConfig(**{**asdict(self), **changes, "labels": {**self.labels, **newer.labels}})


@dataclass(frozen=True, slots=True)
class Rebaseline:
    """A "new normal": forget the baselines and resolve the alerts that they raised.

    Attributes:
        metric: canonical name of the one metric meant; None means every metric of the run.
        note: who said so and why, for the record.
    """

    metric: str | None = None
    note: str = ""


Entry: TypeAlias = StepVector | RunConfig | Rebaseline

_SPECIAL = {
    "nan": math.nan,
    "none": math.nan,
    "null": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "true": 1.0,
    "false": 0.0,
}
# What str() and repr() of Python, numpy and torch scalars look like in logs: "np.float64(0.5)", "tensor(nan)".
_WRAPPED = re.compile(
    r"^(?:np|numpy|torch|jnp|jax\.numpy)?\.?(?:tensor|Array|array|bfloat16|float\d*|int\d*|uint\d+|bool_?)\(([^(),]*)(?:,[^()]*)?\)$"
)


def number_to_json(value: float) -> float | str:
    """A finite number as itself, NaN and infinities as "NaN", "Infinity", "-Infinity" (JSON has no such numbers)."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def number_from_json(value: object) -> float:
    """The number that a trainer meant by ``value``.

    Accepts numbers, booleans (0 or 1), null (trackers write it for NaN: it becomes NaN) and texts of a number, with
    every spelling of NaN and infinity that Python, numpy, torch and JavaScript print.

    Raises:
        ValueError: the value is no number: a list, a mapping or any other text.
    """
    if value is None:
        return math.nan
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        text = value.strip()
        wrapped = _WRAPPED.match(text)
        text = (wrapped.group(1) if wrapped else text).strip()
        sign = -1.0 if text.startswith("-") else 1.0
        special = _SPECIAL.get(text.lstrip("+-").lower())
        if special is not None:
            return sign * special
        if len(text) <= 64 and "_" not in text:
            return float(text)
    raise ValueError("not a number")


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """An entry as a strict-JSON mapping with its ``kind``; inverse of :func:`entry_from_json`."""
    match entry:
        case StepVector():
            data: dict[str, Any] = {
                "kind": "vector",
                "step": entry.step,
                "metrics": _metrics_to_json(entry.metrics),
            }
            if entry.time is not None:
                data["time"] = entry.time
            if entry.attempt is not None:
                data["attempt"] = entry.attempt
            if entry.computed:
                data["computed"] = True
            return data
        case RunConfig():
            fields = {name: value for name, value in asdict(entry).items() if value is not None and value != {}}
            return {"kind": "config", **fields}
        case Rebaseline():
            return {"kind": "rebaseline", "metric": entry.metric, "note": entry.note}


def entry_from_json(data: Mapping[str, Any]) -> Entry:
    """The entry that :func:`entry_to_json` wrote.

    Raises:
        ValueError: the kind is unknown.
    """
    match data["kind"]:
        case "vector":
            metrics = _metrics_from_json(data["metrics"])
            computed = data.get("computed", False)
            return StepVector(data["step"], metrics, data.get("time"), data.get("attempt"), computed)
        case "config":
            return RunConfig(**{name: value for name, value in data.items() if name != "kind"})
        case "rebaseline":
            return Rebaseline(data["metric"], data["note"])
        case kind:
            raise ValueError(f"unknown kind of log entry: {kind!r}")


# Nearly always all metrics are finite floats; to find that out for all at once is much quicker than one by one.
def _metrics_to_json(metrics: Mapping[str, float]) -> dict[str, float | str]:
    if math.isfinite(sum(metrics.values())):
        return {**metrics}
    return {name: number_to_json(value) for name, value in metrics.items()}


def _metrics_from_json(metrics: Mapping[str, Any]) -> dict[str, float]:
    if {*map(type, metrics.values())} == {float}:
        return {**metrics}
    return {name: number_from_json(value) for name, value in metrics.items()}
