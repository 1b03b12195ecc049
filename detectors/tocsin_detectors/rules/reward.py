"""The true reward: scores before any KL term."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Drawdown, LevelShift
from tocsin_detectors.rules.base import Rule

TRAIN_REWARD = ("critic/score/mean", "critic/rewards/mean")

RULES = (
    Rule(
        name="reward_collapse",
        family="reward",
        metrics=TRAIN_REWARD,
        first_of=True,
        # A sudden fall of the level, or the slow slide to half of the best level that no shift test sees.
        tests=(
            LevelShift("down", z=4, relative=0.35, local=8),
            LevelShift("down", z=3, relative=0.35, smooth=5, min_rows=12),
            LevelShift("down", z=2, relative=0.7, smooth=5, min_rows=12),
            Drawdown(share=0.6, z=3, smooth=15, min_rows=30),
        ),
        severity=Severity.WARNING,
        signs=3,
        among=4,
        critical_after=10,
        critical_with=frozenset({"kl", "entropy", "gradient", "actor", "length"}),
        title="The reward fell",
        meaning=(
            "A healthy reward rises and converges. A sudden fall usually means that the model has collapsed, mostly "
            "together with the KL; a slow one, that it is degenerating."
        ),
        remedies=(
            "Go back to the last checkpoint before the onset.",
            "Read the responses at the onset: garbage, repetition or an empty answer each point elsewhere.",
            "Lower the actor's learning rate, lengthen its warm-up (verl actor_rollout_ref.actor.optim, TRL "
            "learning_rate, warmup_steps).",
            "If the text is still good, check the reward function, its service and the data of these steps.",
        ),
        source="seed: true rewards/score",
    ),
)
