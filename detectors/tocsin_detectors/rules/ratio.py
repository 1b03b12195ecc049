"""The importance ratio inside PPO: current policy against the one that sampled."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift, Trend
from tocsin_detectors.rules.base import Rule

RULES = (
    Rule(
        name="ratio_variance_growing",
        family="ratio",
        # The variance at the second gradient step where the tensor endpoint measures it, over all steps where it is
        # reported (TRL's PPO, open-instruct), else verl's proxies.
        metrics=("actor/second_ratio_var", "actor/ratio_var", "actor/ppo_kl", "actor/pg_clipfrac"),
        first_of=True,
        skip_zero=True,
        tests=(Trend("up", z=3.5, ratio=5.0, relative=0.8, block=5, blocks=16, skip=20, magnitude=True),),
        signs=1,
        among=1,
        severity=Severity.WARNING,
        title="Each update disturbs the policy more unevenly than the last",
        meaning=(
            "At the first gradient step of a rollout the policies are equal. When at the second the variance of their "
            "difference grows from rollout to rollout, single updates have become violent: some tokens are pushed hard up, "
            "others hard down. Without whitened advantages the cause may be exploding advantages (rewards out of "
            "distribution, reward hacking, a KL penalty that is too weak); otherwise a critic that lags behind the actor."
        ),
        remedies=(
            "Raise the KL penalty (verl actor_rollout_ref.actor.kl_loss_coef, TRL kl_coef).",
            "Raise the critic's learning rate, lower the actor's, or do more critic steps per actor step.",
            "Whiten the advantages; if they are whitened already, exploding advantages are ruled out.",
            "Fewer gradient steps per rollout.",
        ),
        source="notes on RL metrics: appendix on the growing difference between current and old policy in PPO",
    ),
    Rule(
        name="clip_fraction_high",
        collapse=True,
        family="ratio",
        metrics=("actor/pg_clipfrac",),
        tests=(
            LevelShift("up", z=5, absolute=0.05, local=8),
            LevelShift("up", z=3, absolute=0.05, smooth=5, local=16, min_rows=12),
        ),
        severity=Severity.WARNING,
        title="Much more of the update is being clipped away",
        meaning=(
            "The share of tokens whose ratio leaves the clip range rose suddenly: the updates within one rollout go much "
            "farther than before, and what is clipped teaches nothing."
        ),
        remedies=(
            "Lower the actor's learning rate (verl actor_rollout_ref.actor.optim.lr, TRL learning_rate).",
            "Fewer gradient steps per rollout (verl actor_rollout_ref.actor.ppo_epochs, TRL num_iterations).",
            "Look for outliers among the advantages of this batch.",
        ),
        source="notes on RL metrics: importance-sampling clip in PPO",
    ),
    Rule(
        name="first_minibatch_ratio_not_one",
        family="ratio",
        metrics=("actor/first_ratio_deviation",),
        tests=(Bound(beyond=0.01, severe=0.1),),
        signs=3,
        among=4,
        severity=Severity.WARNING,
        title="The policies differ before the first update",
        meaning=(
            "At the first gradient step of a rollout the current policy is the one that sampled, so the ratio is exactly 1. "
            "It isn't: the old log-probs come from another policy, another precision or another mask."
        ),
        remedies=(
            "Use the same micro-batch size and precision for the old log-probs as in the update.",
            "Check that the old log-probs are recomputed by the training engine, after its weights have been loaded.",
        ),
        source="notes on RL metrics: appendix on the growing difference between current and old policy in PPO",
    ),
)
