"""Which runs are recorded, and with what settings: plain data, standard library only."""

from dataclasses import dataclass
from typing import Literal

HEALTHY_STEPS = 240
COLLAPSE_STEPS = 180
SABOTAGE_STEP = 121  # by then reward and entropy have levelled off

# What each sabotage does, for the index; the trainer modules carry it out.
SABOTAGES = {
    "lr_x100": "learning rate raised 100x",
    "reward_constant": "the reward function returns 0 for every completion",
    "reward_broken": "the reward function returns noise, uniform between -0.8 and 1, whatever the completion",
    "reward_sign_flipped": "the reward function returns the negative of the reward",
    "no_kl_high_lr": "KL term removed (weight 1e-12, so that the KL is still logged) and learning rate raised 10x",
    "nan_weights": "one weight of the last MLP set to NaN",
    "temperature_mismatch": "sampling temperature raised to 2 while the trainer goes on scoring at 1",
    "critic_lr_x100": "learning rate of the value model raised 100x",
    "reward_scale_x10": "the reward is multiplied by 10",
}


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One training run to record.

    Attributes:
        name: Name of the run and, with `.jsonl`, of its file.
        seed: Seeds the weights, the prompts and the sampling.
        learning_rate: Constant learning rate of Adam, before any sabotage.
        algorithm: Which trainer, GRPOTrainer or PPOTrainer.
        steps: Optimiser steps (GRPO) or updates (PPO).
        sabotage: Key into `SABOTAGES`, or None for a healthy run.
        sabotage_step: First step that runs sabotaged: its completions, reward and update are already affected.
        beta: Weight of the KL term.
        temperature: Sampling temperature; the trainer scores with the same one.
        group_size: Completions per prompt.
        reuse: Optimiser steps made on each batch of completions (TRL: `num_iterations`, `num_ppo_epochs`).
        measure_gap: Sample in bfloat16 and log the gap to the float32 trainer under TRL's names.
        hide_nan_loss: The trainer's own default: a loss that is not finite is logged as the mean of the others.
        note: What to know when using the recording.
    """

    name: str
    seed: int
    learning_rate: float
    algorithm: Literal["grpo", "ppo"] = "grpo"
    steps: int = HEALTHY_STEPS
    sabotage: str | None = None
    sabotage_step: int | None = None
    beta: float = 0.02
    temperature: float = 1.0
    group_size: int = 8
    reuse: int = 1
    measure_gap: bool = False
    hide_nan_loss: bool = True
    note: str = ""


def _collapse(sabotage: str, seed: int, note: str, *, measure_gap: bool = False, hide_nan_loss: bool = True) -> RunSpec:
    return RunSpec(
        name=f"collapse_{sabotage}" if hide_nan_loss else f"collapse_{sabotage}_loss",
        seed=seed,
        learning_rate=2e-3,
        steps=COLLAPSE_STEPS,
        sabotage=sabotage,
        sabotage_step=SABOTAGE_STEP,
        measure_gap=measure_gap,
        hide_nan_loss=hide_nan_loss,
        note=note,
    )


def _ppo(name: str, seed: int, steps: int, sabotage: str | None, note: str) -> RunSpec:
    return RunSpec(
        name=name,
        seed=seed,
        learning_rate=1e-3,
        algorithm="ppo",
        steps=steps,
        sabotage=sabotage,
        sabotage_step=None if sabotage is None else SABOTAGE_STEP,
        group_size=1,
        reuse=2,
        note=note,
    )


_SPECS = (
    RunSpec(
        "healthy_base",
        seed=11,
        learning_rate=2e-3,
        note="Strictly on-policy: clip shares are 0 throughout. Learns within 100 steps, then levels off.",
    ),
    RunSpec("healthy_slow", seed=12, learning_rate=1e-3, note="Half the learning rate: still creeping up at the end."),
    RunSpec("healthy_fast", seed=13, learning_rate=2.5e-3, note="The highest learning rate that holds; the noisiest."),
    RunSpec(
        "healthy_reuse",
        seed=14,
        learning_rate=1e-3,
        reuse=2,
        note="Two optimiser steps per batch of completions: reward and length metrics only on odd steps, clipping on "
        "even ones. One bad batch at step 203 (reward 0.44, gradient 10x) that heals at once.",
    ),
    RunSpec(
        "healthy_gap",
        seed=15,
        learning_rate=1.5e-3,
        measure_gap=True,
        note="Samples in bfloat16, trains in float32: the gap grows tenfold as the policy gets sharper; harmless.",
    ),
    _collapse("lr_x100", 21, "Reward, length and entropy go within four steps; the policy ends in one repeated word."),
    _collapse(
        "reward_constant",
        22,
        "No group has any variance left, so only the KL term trains: the policy drifts back to the random one, KL "
        "falls and entropy rises over 50 steps.",
    ),
    _collapse(
        "reward_broken",
        23,
        "The reward drops and turns noisy at once; the policy unlearns slowly, by way of ever longer completions.",
    ),
    _collapse(
        "reward_sign_flipped",
        24,
        "The reward drops below zero and then rises again: the policy learns to be as bad as it can.",
    ),
    _collapse(
        "no_kl_high_lr", 25, "Reward gone within five steps; length swings from 2 to 24, gradient spikes of 20x."
    ),
    _collapse(
        "nan_weights",
        26,
        "The gradient norm is NaN, entropy and KL are null, and the loss reads 0: the trainer's default setting hides "
        "a loss that is not finite. Sampling goes on with the invalid logits removed.",
    ),
    _collapse(
        "nan_weights", 26, "As collapse_nan_weights, with the setting off that hides the loss.", hide_nan_loss=False
    ),
    _collapse(
        "temperature_mismatch",
        27,
        "The gap between sampler and trainer jumps by two orders of magnitude and the KL follows; the reward drops by "
        "a fifth and is partly won back.",
        measure_gap=True,
    ),
    _ppo("ppo_healthy", 31, HEALTHY_STEPS, None, "The critic's loss falls to a tenth in 30 updates and stays there."),
    _ppo(
        "ppo_collapse_critic_lr",
        32,
        165,
        "critic_lr_x100",
        "The critic's loss rises 2,000-fold within two updates, heals in part, and the policy goes 25 updates later. "
        "A dozen updates after the recording ends every completion is empty and the trainer stops with an exception.",
    ),
    _ppo(
        "ppo_collapse_reward_scale",
        33,
        COLLAPSE_STEPS,
        "reward_scale_x10",
        "The score is ten times what it was and the critic's loss 1,500 times; the policy breaks 20 updates later.",
    ),
)

RUNS: dict[str, RunSpec] = {spec.name: spec for spec in _SPECS}
