"""The critic's loss."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift, Plateau, Trend
from tocsin_detectors.rules.base import Rule

RULES = (
    Rule(
        name="critic_loss_above_plateau",
        family="critic",
        metrics=("critic/vf_loss",),
        tests=(
            Plateau(ratio=1.5, z=4, smooth=5, settle=24),
            LevelShift("up", z=6, ratio=4.0, smooth=3, min_rows=24),
        ),
        signs=3,
        among=4,
        severity=Severity.WARNING,
        critical_if_severe=True,
        critical_with=frozenset({"reward", "kl"}),
        title="The critic's loss stays above the plateau it had converged to",
        meaning=(
            "The critic's loss falls far while the critic is pretrained, converges, and should stay there while actor and "
            "critic train together. Above that plateau the critic can't keep up with the actor, and the advantages it "
            "feeds to the actor become noise."
        ),
        remedies=(
            "Lower the actor's learning rate (verl actor_rollout_ref.actor.optim.lr).",
            "Raise the critic's learning rate (verl critic.optim.lr).",
            "More critic steps per actor step (verl critic.ppo_epochs), or a longer critic warm-up "
            "(verl trainer.critic_warmup).",
            "If the reward's scale changed at the onset, normalise the rewards.",
        ),
        source="notes on RL metrics: Critic Loss",
    ),
    Rule(
        name="critic_loss_rising",
        unless=frozenset({"critic_loss_above_plateau"}),
        family="critic",
        metrics=("critic/vf_loss",),
        tests=(Trend("up", z=4.0, ratio=1.6, block=8, blocks=12, skip=40),),
        severity=Severity.WARNING,
        title="The critic's loss climbs steadily",
        meaning="In joint training the critic's loss should stay converged; it grows, so the critic falls behind the actor.",
        remedies=(
            "Lower the actor's learning rate, raise the critic's (verl critic.optim.lr).",
            "More critic steps per actor step (verl critic.ppo_epochs).",
        ),
        source="notes on RL metrics: Critic Loss",
    ),
    Rule(
        name="critic_explained_variance_low",
        family="critic",
        metrics=("critic/vf_explained_var",),
        tests=(Bound(below=0.0, skip=50),),
        signs=12,
        among=16,
        severity=Severity.WARNING,
        title="The critic explains nothing",
        meaning=(
            "The explained variance has been negative for many steps after the warm-up: the value estimates are worse than "
            "a constant, so the advantages are noise."
        ),
        remedies=(
            "Pretrain the critic longer (verl trainer.critic_warmup), or raise its learning rate.",
            "Start the critic from the reward model instead of from the policy.",
            "Normalise rewards and returns.",
        ),
        source="notes on RL metrics: verl appendix, critic/vf_explained_var",
    ),
    Rule(
        name="critic_clip_high",
        family="critic",
        metrics=("critic/vf_clipfrac",),
        tests=(Bound(above=0.5, skip=20),),
        signs=10,
        among=12,
        severity=Severity.INFO,
        title="Most of the critic's updates are clipped",
        meaning="More than half of the value predictions leave the clip range, so the critic can't move as fast as it should.",
        remedies=("Widen the value clip range (verl critic.cliprange_value), or lower the critic's learning rate.",),
        source="notes on RL metrics: verl appendix, critic/vf_clipfrac",
    ),
)
