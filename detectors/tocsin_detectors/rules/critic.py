"""The critic's loss."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Plateau
from tocsin_detectors.rules.base import Rule

RULES = (
    Rule(
        name="critic_loss_above_plateau",
        family="critic",
        metrics=("critic/vf_loss",),
        tests=(Plateau(ratio=1.5, z=4, smooth=5, settle=24),),
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
        source="seed: Critic Loss",
    ),
)
