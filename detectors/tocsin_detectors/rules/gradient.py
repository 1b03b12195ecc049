"""Gradient norms, before clipping."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Frozen, LevelShift, Trend
from tocsin_detectors.rules.base import Condition, Guarded, Rule

RULES = (
    Rule(
        name="grad_norm_spike",
        collapse=True,
        family="gradient",
        metrics=("actor/grad_norm", "critic/grad_norm"),
        # Healthy runs have lone spikes of 30x that heal by themselves, and steps with an exact 0 (every group without
        # spread): neither may page. Two of three values far above the level, or a value that nothing explains.
        tests=(
            LevelShift("up", z=6, ratio=3.0, absolute=0.05, severe_factor=7.0, min_rows=8),
            LevelShift("up", z=2, ratio=6.0, absolute=0.05, smooth=5, severe_factor=3.0, min_rows=12),
            LevelShift("up", z=3, ratio=60.0, absolute=0.05, alone=True, severe_factor=1.8, min_rows=8),
        ),
        skip_zero=True,
        severity=Severity.WARNING,
        critical_if_severe=True,
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
        source="notes on RL metrics: Gradient Norm; appendix on temperature and gradient norm",
    ),
    Rule(
        name="grad_norm_rising",
        unless=frozenset({"grad_norm_spike"}),
        family="gradient",
        metrics=("actor/grad_norm", "critic/grad_norm"),
        skip_zero=True,
        tests=(Trend("up", z=4.0, ratio=5.0, block=8, blocks=12, skip=30),),
        severity=Severity.WARNING,
        title="The gradient norm grows steadily",
        meaning="After its start a healthy gradient norm declines; this one has grown by a factor of five or more.",
        remedies=(
            "Lower the learning rate before it explodes.",
            "Look at the importance ratio and the entropy over the same steps.",
        ),
        source="notes on RL metrics: Gradient Norm",
    ),
    Rule(
        name="grad_norm_drop",
        unless=frozenset({"reward_floor", "reward_saturated", "reward_collapse", "reward_std_cliff"}),
        family="gradient",
        metrics=("actor/grad_norm",),
        skip_zero=True,
        tests=(LevelShift("down", z=3, ratio=3.0, absolute=0.005, smooth=7, local=16, min_rows=24),),
        severity=Severity.WARNING,
        title="The gradient norm fell to a fraction",
        meaning=(
            "The level fell to a third or less within few steps while training goes on. In mixture-of-experts runs that is a "
            "known precursor of a collapse; elsewhere it often means that there is hardly any signal left."
        ),
        remedies=(
            "Look at entropy, reward std and the share of groups without spread.",
            "Mixture of experts: look at the routers' balance and the training/inference gap.",
        ),
        source="beyond the notes: precursor in mixture-of-experts runs (0.07 to 0.02)",
    ),
    Rule(
        name="grad_norm_zero",
        unless=frozenset({"reward_floor", "reward_saturated"}),
        family="gradient",
        metrics=("actor/grad_norm",),
        tests=(Guarded(Frozen(rows=16, at=0.0), (Condition.LEARNING,)),),
        severity=Severity.WARNING,
        title="Steps that buy no update",
        meaning=(
            "The gradient norm has been exactly 0 for many steps in a row. If the rewards differ, the gradient is lost on the "
            "way (frozen parameters, a detached graph, a wrong mask); if they don't, no group has anything to teach."
        ),
        remedies=(
            "If the reward's std is above 0: check which parameters are trainable, and the loss mask.",
            "If it is 0: the data are too hard or too easy; see reward_saturated.",
        ),
        source="beyond the notes: documented reports of runs with reward spread and a gradient of exactly 0",
    ),
)
