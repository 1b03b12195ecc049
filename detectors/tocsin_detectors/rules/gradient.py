"""Gradient norms, before clipping."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import LevelShift
from tocsin_detectors.rules.base import Rule

RULES = (
    Rule(
        name="grad_norm_spike",
        family="gradient",
        metrics=("actor/grad_norm", "critic/grad_norm"),
        # Healthy runs have lone spikes of 30x that heal by themselves, and steps with an exact 0 (every group without
        # spread): neither may page. Two of three values far above the level, or a value that nothing explains.
        tests=(LevelShift("up", z=6, ratio=3.0, absolute=0.05, severe_factor=4.0, min_rows=8),),
        skip_zero=True,
        severity=Severity.WARNING,
        critical_after=6,
        critical_with=frozenset({"kl", "entropy", "reward", "actor"}),
        title="The gradient norm is far above its recent level",
        meaning=(
            "A healthy gradient norm starts high, may rise a little first, then declines. When a model collapses it "
            "suddenly becomes very large. A lone spike can heal; one that lasts means that the updates are destroying "
            "the policy."
        ),
        remedies=(
            "Lower the learning rate (verl actor_rollout_ref.actor.optim.lr, critic.optim.lr, TRL learning_rate).",
            "Clip the gradient harder (verl actor_rollout_ref.actor.grad_clip, TRL max_grad_norm).",
            "Look at the batch of that step: outlier rewards, tiny group std, very long responses.",
            "Skip updates whose norm is far out.",
        ),
        source="seed: Gradient Norm; appendix on temperature and gradient norm",
    ),
)
