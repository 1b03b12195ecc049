"""Entropy of the policy: how much it still explores."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, FromStart, LevelShift
from tocsin_detectors.rules.base import Condition, Guarded, Rule

RULES = (
    Rule(
        name="entropy_collapse",
        collapse=True,
        family="entropy",
        metrics=("actor/entropy",),
        # A slow decline by 70 % over 200 steps is healthy: the baseline follows it. What counts is a fall within few
        # steps, or an entropy near 0 that buys no reward any more.
        tests=(
            LevelShift("down", z=6, ratio=1.6, absolute=0.03, local=8, severe_factor=2.5),
            Guarded(Bound(below=0.01, skip=20), (Condition.REWARD_NOT_RISING,)),
        ),
        severity=Severity.WARNING,
        critical_with=frozenset({"reward"}),
        title="The policy's entropy collapsed",
        meaning=(
            "The policy has become (nearly) deterministic, so the rollouts of a prompt are alike, groups have no spread "
            "and there is nothing left to learn from. A slow decline that converges is healthy, and so is decline, rise, "
            "converge; this fall was neither."
        ),
        remedies=(
            "Raise the upper clip bound (verl actor_rollout_ref.actor.clip_ratio_high, TRL epsilon_high).",
            "Add or raise the entropy bonus (verl actor_rollout_ref.actor.entropy_coeff).",
            "Raise the sampling temperature (verl actor_rollout_ref.rollout.temperature, TRL temperature).",
            "Lower the actor's learning rate.",
            "Fewer gradient steps per rollout keep the data closer to on-policy.",
        ),
        source="notes on RL metrics: Entropy",
    ),
    Rule(
        name="entropy_explosion",
        collapse=True,
        family="entropy",
        metrics=("actor/entropy",),
        tests=(
            LevelShift("up", z=6, ratio=1.6, absolute=0.1, local=8, severe_factor=3.0),
            LevelShift("up", z=3, ratio=1.6, absolute=0.1, smooth=5, local=16, min_rows=12),
            LevelShift("up", z=2, ratio=3.0, absolute=0.3, smooth=5, min_rows=12),
            FromStart(ratio=2.2, early=20, smooth=15, at_least=1.5),
        ),
        severity=Severity.WARNING,
        critical_with=frozenset({"reward", "kl", "length"}),
        title="The policy's entropy rose suddenly",
        meaning=(
            "The policy is turning to noise: it gives its probability to ever more tokens. Garbage and endless answers "
            "often follow within a few steps. A slow rise together with longer answers can be healthy."
        ),
        remedies=(
            "Go back to the last checkpoint before the onset, and resume with a lower learning rate.",
            "Lower or drop the entropy bonus (verl actor_rollout_ref.actor.entropy_coeff).",
            "Tighten the upper clip bound (verl actor_rollout_ref.actor.clip_ratio_high, TRL epsilon_high).",
            "Read the responses at the onset.",
        ),
        source="notes on RL metrics: Entropy; documented reports of TRL",
    ),
)
