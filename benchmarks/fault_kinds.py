"""The kinds of faults that `faults.py` injects: what changes, which rules are right, how loud and how soon.

Changed values keep the run's own noise: they are its values times a factor, or pulled towards a floor. A metric that
the run doesn't report is added to all of its rows where a line says so, with noise of a usual size, before the fault
as well as after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fault_window import Unfit, Window, median, ramp

Tell = Literal["page", "warn", "info", "quiet"]
Inject = Callable[[Window], str | None]

KL = ("actor/kl_loss", "actor/reward_kl_penalty", "actor/reward_kl_sum")
REWARD = ("critic/score/mean", "critic/rewards/mean")
LENGTH, ENTROPY, GRADIENT = "response_length/mean", "actor/entropy", "actor/grad_norm"
ZERO_STD = "critic/rewards/zero_std_ratio"
GAP = ("rollout_corr/kl", "rollout_corr/k3_kl", "training/rollout_probs_diff_mean")


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        name: for the table.
        inject: changes a window from its fault row on; the metric in which the fault has to be visible, if any.
        right: the rules that name it; any of them will do.
        delay: rows within which one of them has to fire, from the first changed row.
        tell: how loud it should be: a page, a warning, an info, or nothing at all.
        prepare: adds metrics that the fault needs to the healthy run.
        before: rows of healthy run that it needs before it.
        config: what the trainer says of such a run.
    """

    name: str
    inject: Inject
    right: frozenset[str]
    delay: int
    tell: Tell = "warn"
    prepare: Callable[[Window], None] = lambda _window: None
    before: int = 32
    config: dict[str, Any] = field(default_factory=dict)


def scaled(metrics: tuple[str, ...], factor: float, over: int = 1, least: float = 0.0) -> Inject:
    """Times a factor, reached geometrically over some rows; ``least``: the larger of both levels, else not worth it."""

    def inject(window: Window) -> str:
        metric = window.first(*metrics)
        level = window.level(metric)
        if max(level, level * factor) < least:
            raise Unfit(f"{metric} is too small to matter")
        for each in metrics:
            window.change(each, lambda value, row: value * factor ** ramp(row, over))
        return metric

    return inject


def const(metrics: tuple[str, ...], value: float, *, once: bool = False, visible: bool = False) -> Inject:
    """The same value at every row from the fault on, or at that row only, in the first of these metrics."""

    def inject(window: Window) -> str | None:
        metric = window.first(*metrics)
        window.level(metric)
        window.change(metric, lambda old, row: old if once and row else value)
        return metric if visible else None

    return inject


def added(metric: str, level: float, noise: float) -> Callable[[Window], None]:
    """The metric, log-normal around a level."""
    return lambda window: window.put(metric, lambda _row: level * math.exp(window.rng.gauss(0, noise)))


def share_up(metric: str, by: float, over: int = 1) -> Inject:
    """A part of what is missing to 1 is added; a share that is above 0.3 anyway has little room to show it."""

    def inject(window: Window) -> str:
        if window.level(window.first(metric)) > 0.3:
            raise Unfit(f"{metric} is high anyway")
        window.change(metric, lambda value, row: value + (1 - value) * by * ramp(row, over))
        return metric

    return inject


def lone_spike(metrics: tuple[str, ...], factor: float) -> Inject:
    def inject(window: Window) -> None:
        metric = window.first(*metrics)
        if window.level(metric) <= 0:
            raise Unfit(f"{metric} is 0")
        window.change(metric, lambda value, row: value if row else abs(value) * factor)

    return inject


def lower_reward(over: int, left: float = 0.05) -> Inject:
    """Towards the floor: the least score, or 0, or the least mean if that is below. Spread and extremes go with it."""

    def inject(window: Window) -> str:
        metric = window.first(*REWARD)
        lowest = window.values("critic/score/min", 0, window.at) if window.has("critic/score/min") else [0.0]
        floor = min(*lowest, *window.values(metric, 0, window.at), 1e9)
        for group in ("critic/score", "critic/rewards"):
            for part in ("mean", "max", "min"):
                window.change(
                    f"{group}/{part}", lambda x, row: floor + (x - floor) * (1 - (1 - left) * ramp(row, over))
                )
            window.change(f"{group}/std", lambda x, row: x * (1 - (1 - left) * ramp(row, over)))
        return metric

    return inject


def longer(window: Window) -> str:
    """To nine tenths of the way to the limit, and most answers are cut off."""
    metric = window.first(LENGTH)
    level = window.level(metric)
    longest = window.values("response_length/max", 0, window.at) if window.has("response_length/max") else []
    limit = max(longest, default=3 * level)
    if level + 0.9 * (limit - level) < 1.8 * level:
        raise Unfit("no room up to the length limit")
    window.change(metric, lambda value, row: value + 0.9 * max(limit - value, 0) * ramp(row, 2))
    window.change("response_length/max", lambda value, _row: max(value, limit))
    window.change("response_length/clip_ratio", lambda value, row: value + 0.8 * (1 - value) * ramp(row, 2))
    return metric


def shorter(window: Window) -> str:
    for part in ("mean", "max", "min"):
        window.change(f"response_length/{part}", lambda value, row: value * 0.1 ** ramp(row, 2))
    window.change("response_length/clip_ratio", lambda _value, _row: 0.0)
    return window.first(LENGTH)


def dissolve(window: Window) -> str:
    """Entropy to four times its level over 6 rows, and by half a nat at least."""
    level = window.level(window.first(ENTROPY))
    factor = max(4.0, (level + 0.5) / max(level, 1e-6))
    window.change(ENTROPY, lambda value, row: value * factor ** ramp(row, 6))
    return ENTROPY


def loss_jump(window: Window) -> str:
    """Up by 12 of its robust standard deviations, and by 0.1 at least."""
    metric = window.first("actor/pg_loss")
    values = window.before(metric)
    level = window.level(metric)
    rise = max(12 * 1.5 * median([abs(value - level) for value in values]), 0.1)
    window.change(metric, lambda value, _row: value + rise)
    return metric


def offset_mean(by: float) -> Inject:
    def inject(window: Window) -> None:
        window.change(window.first("critic/advantages/mean"), lambda value, _row: value + by)
        window.change("critic/advantages/max", lambda value, _row: value + by)

    return inject


def advantage_is_reward(window: Window) -> None:
    parts = ("mean", "max", "min")
    if not all(window.has(f"critic/score/{part}", f"critic/advantages/{part}") for part in parts):
        raise Unfit("reports no extremes of score and advantage")
    for row in range(window.at, len(window.vectors)):
        for part in parts:
            score = window.get(row, f"critic/score/{part}")
            if score is not None and window.get(row, f"critic/advantages/{part}") is not None:
                window.set(row, f"critic/advantages/{part}", score)


def engines_gap(window: Window) -> None:
    """A healthy dense run's gap between training and inference engine."""
    window.put("rollout_corr/kl", lambda _row: 0.0012 * math.exp(window.rng.gauss(0, 0.15)))
    base = "rollout_corr/kl"
    window.put("rollout_corr/k3_kl", lambda row: (window.get(row, base) or 0.0) * math.exp(window.rng.gauss(0, 0.05)))
    window.put("training/rollout_probs_diff_mean", lambda _row: 0.003 * math.exp(window.rng.gauss(0, 0.1)))


def wide_gap(window: Window) -> None:
    engines_gap(window)
    for row in range(len(window.vectors)):
        for metric in GAP[:2]:
            window.set(row, metric, 7.5 * (window.get(row, metric) or 0.0))  # 0.009: large, and steady


def drifting_gap(window: Window) -> str:
    for metric in GAP[:2]:
        window.change(metric, lambda value, row: value * 30 ** ramp(row, 30))
    window.change(GAP[2], lambda value, row: value * 5.5 ** ramp(row, 30))
    return GAP[0]


def critic(window: Window) -> None:
    """A cold critic's loss: from 1 down to 0.1 within 30 rows."""
    window.put("critic/vf_loss", lambda row: (0.1 + 0.9 * math.exp(-row / 10)) * math.exp(window.rng.gauss(0, 0.12)))


def no_spread(window: Window) -> str:
    """Every group's answers get the same reward."""
    metric = window.first(ZERO_STD)
    window.change(metric, lambda _value, _row: 1.0)
    window.change("critic/rewards/std", lambda _value, _row: 0.0)
    return metric


def stop_coming(*metrics: str) -> Inject:
    def inject(window: Window) -> None:
        metric = window.first(*metrics)
        if len(window.values(metric, 0, window.at)) < window.at // 2:
            raise Unfit(f"{metric} comes too rarely")
        name = window.names[metric][0]
        for row in range(window.at, len(window.vectors)):
            window.metrics(row).pop(name, None)

    return inject


def go_back(window: Window) -> None:
    """Resume from the checkpoint 20 rows ago: the same step numbers with other values."""
    back = window.vectors[window.at].step - window.vectors[window.at - 20].step
    for row in range(window.at, len(window.vectors)):
        window.vectors[row] = replace(window.vectors[row], step=window.vectors[row].step - back)


def leap(window: Window) -> None:
    """Fifty steps' worth of vectors are lost."""
    stride = max(window.vectors[window.at].step - window.vectors[window.at - 1].step, 1)
    for row in range(window.at, len(window.vectors)):
        window.vectors[row] = replace(window.vectors[row], step=window.vectors[row].step + 50 * stride)


def collapse(window: Window) -> str:
    """Reward to nothing, KL up, entropy and length up or down, the gradient up: whatever the run reports of these."""
    if not window.has(ENTROPY) and not any(map(window.has, KL)) and not window.has(LENGTH):
        raise Unfit("reports no sign beside the reward")
    up = window.rng.random() < 0.5
    window.change(ENTROPY, lambda value, row: value * (4.0 if up else 0.15) ** ramp(row, 5))
    for metric in KL:
        window.change(metric, lambda value, row: value * 20 ** ramp(row, 4))
    for part in ("mean", "max", "min"):
        window.change(f"response_length/{part}", lambda value, row: value * (1.8 if up else 0.15) ** ramp(row, 6))
    window.change(GRADIENT, lambda value, row: value * 6 ** ramp(row, 3))
    return str(lower_reward(5)(window))


def rules(*names: str) -> frozenset[str]:
    return frozenset(names)


NAN = math.nan
FAULTS: tuple[Fault, ...] = (
    Fault("KL x5", scaled(KL, 5, least=0.05), rules("kl_collapse"), 6),
    Fault("KL x30", scaled(KL, 30, least=0.05), rules("kl_collapse"), 6),
    Fault("KL to a tenth", scaled(KL, 0.1, least=0.05), rules("kl_collapse"), 8),
    Fault("lone KL spike x50", lone_spike(KL, 50), rules(), 12, "quiet"),
    Fault("lone gradient spike x30", lone_spike((GRADIENT,), 30), rules(), 12, "quiet"),
    Fault("entropy to 15 % in 4 rows", scaled((ENTROPY,), 0.15, 4, least=0.1), rules("entropy_collapse"), 8),
    Fault("entropy x4 in 6 rows", dissolve, rules("entropy_explosion"), 10),
    Fault("reward falls at once", lower_reward(2), rules("reward_collapse"), 8),
    Fault("reward slides over 40 rows", lower_reward(40), rules("reward_collapse"), 60),
    Fault("NaN in the loss", const(("actor/pg_loss",), NAN), rules("non_finite"), 1, "page"),
    Fault("NaN in the gradient norm", const((GRADIENT,), NAN), rules("non_finite"), 1, "page"),
    Fault("NaN in the KL", const(KL, NAN), rules("non_finite"), 1, "page"),
    Fault("one infinite gradient norm", const((GRADIENT,), math.inf, once=True), rules("non_finite"), 0),
    Fault("gradient norm x20", scaled((GRADIENT,), 20, least=0.1), rules("grad_norm_spike"), 6),
    Fault("gradient norm to a fifth", scaled((GRADIENT,), 0.2, least=0.02), rules("grad_norm_drop"), 16),
    Fault("gradient norm exactly 0", const((GRADIENT,), 0.0), rules("grad_norm_zero"), 24),
    Fault("actor loss jumps", loss_jump, rules("actor_loss_jump", "actor_loss_rising"), 8),
    Fault(
        "advantage mean 0.3 (sequences)", offset_mean(0.3), rules("grpo_advantage_mean_nonzero"), 4,
        prepare=lambda window: window.put("critic/advantages/mean", lambda _row: window.rng.gauss(0, 1e-8)),
        config={"advantage_mean": "sequence", "algorithm": "grpo"},
    ),
    Fault(
        "advantage mean +1 (tokens)", offset_mean(1.0), rules("grpo_advantage_mean_nonzero"), 6,
        prepare=lambda window: window.put("critic/advantages/mean", lambda _row: window.rng.gauss(-0.05, 0.04)),
        config={"advantage_mean": "token", "algorithm": "grpo"},
    ),
    Fault(
        "3 degenerate groups a step", const(("critic/advantages/degenerate_groups",), 3.0),
        rules("advantage_degenerate_group"), 2,
        prepare=lambda window: window.put("critic/advantages/degenerate_groups", lambda _row: 0.0),
        config={"algorithm": "grpo"},
    ),
    Fault("advantage equals reward", advantage_is_reward, rules("advantage_equals_reward"), 12, "page"),
    Fault(
        "critic loss x3 in 10 rows", scaled(("critic/vf_loss",), 3, 10),
        rules("critic_loss_above_plateau", "critic_loss_rising"), 20, prepare=critic, before=80,
    ),
    Fault(
        "ratio variance x20 in 60 rows", scaled(("actor/ratio_var",), 20, 60, least=0.002),
        rules("ratio_variance_growing"), 80, prepare=added("actor/ratio_var", 1e-3, 0.3),
    ),
    Fault(
        "clip fraction +0.2", share_up("actor/pg_clipfrac", 0.2), rules("clip_fraction_high"), 6,
        prepare=added("actor/pg_clipfrac", 0.01, 0.2),
    ),
    Fault(
        "mismatch 0.009 to 0.27 in 30 rows", drifting_gap,
        rules("mismatch_kl_rising", "mismatch_kl_gross", "probs_diff_high"), 30, prepare=wide_gap,
    ),
    Fault("mismatch 0.3 at once", scaled(GAP[:2], 250), rules("mismatch_kl_gross"), 5, "page", engines_gap),
    Fault(
        "truncated +50 % in 6 rows", share_up("response_length/clip_ratio", 0.5, 6), rules("truncation_high"), 10,
        prepare=added("response_length/clip_ratio", 0.02, 0.3),
    ),
    Fault("length to its limit", longer, rules("length_shift", "truncation_high"), 6),
    Fault("length to a tenth", shorter, rules("length_shift"), 6),
    Fault(
        "a third aborted", share_up("response/aborted_ratio", 0.3), rules("aborted_high"), 5,
        prepare=lambda window: window.put("response/aborted_ratio", lambda _row: 0.0),
    ),
    Fault(
        "no group has spread", no_spread, rules("reward_saturated"), 20,
        prepare=lambda window: window.put(ZERO_STD, lambda _row: window.rng.betavariate(2, 8)),
    ),
    Fault(
        "reward std to a twentieth", scaled(("critic/rewards/std",), 0.05), rules("reward_std_cliff"), 24,
        prepare=added("critic/rewards/std", 0.4, 0.15),
    ),
    Fault("metric stops coming", stop_coming(*KL, ENTROPY), rules("metric_missing"), 64, "info", before=96),
    Fault(
        "clip fraction 1.7", const(("actor/pg_clipfrac",), 1.7), rules("impossible_value"), 3,
        prepare=added("actor/pg_clipfrac", 0.01, 0.2),
    ),
    Fault("entropy -1", const((ENTROPY,), -1.0), rules("impossible_value"), 3),
    Fault("resume 20 rows back", go_back, rules("step_went_back"), 0, "info"),
    Fault("50 steps lost", leap, rules("step_gap"), 0, "info"),
    Fault(
        "throughput x0.4", scaled(("perf/throughput",), 0.4), rules("throughput_drop"), 18,
        prepare=added("perf/throughput", 1500.0, 0.08),
    ),
    Fault(
        "step time x3", scaled(("timing_s/step",), 3, least=3.0), rules("step_time_up"), 18,
        prepare=added("timing_s/step", 60.0, 0.1),
    ),
    Fault(
        "memory doubles in 80 rows", scaled(("perf/max_memory_allocated_gb",), 2.2, 80), rules("memory_creep"), 110,
        prepare=added("perf/max_memory_allocated_gb", 40.0, 0.02),
    ),
    Fault("model collapse", collapse, rules("model_collapse"), 8, "page"),
)  # fmt: skip
