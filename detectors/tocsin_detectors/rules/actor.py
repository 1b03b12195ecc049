"""The actor's loss."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift, Trend
from tocsin_detectors.expressions import Expression
from tocsin_detectors.rules.base import Rule

RULES = (
    Rule(
        name="actor_loss_jump",
        collapse=True,
        family="actor",
        metrics=("actor/pg_loss",),
        skip_zero=True,
        # The loss of a policy gradient is noise around a small number: no trend, no meaning in its value. So it has to
        # leave that noise by far, upwards, and stay there.
        tests=(LevelShift("up", z=4, relative=1.0, absolute=0.02, smooth=5, min_rows=12),),
        severity=Severity.WARNING,
        critical_with=frozenset({"kl", "entropy", "reward", "gradient"}),
        title="The actor's loss jumped",
        meaning=(
            "The value of a policy-gradient loss means little and may swing without converging, but it doesn't climb. "
            "When it was stable and jumps, the model has most likely collapsed at this step."
        ),
        remedies=(
            "Look at KL, entropy and gradient norm of the same steps: if one of them broke too, go back to the checkpoint "
            "before the onset.",
            "Lower the actor's learning rate (verl actor_rollout_ref.actor.optim.lr, TRL learning_rate).",
            "Look at the advantages of this batch: the loss is about minus advantage times ratio.",
        ),
        source="notes on RL metrics: Actor Loss",
    ),
    Rule(
        name="actor_loss_rising",
        unless=frozenset({"actor_loss_jump"}),
        family="actor",
        metrics=("actor/pg_loss",),
        skip_zero=True,
        tests=(Trend("up", z=4.0, relative=0.6, block=8, blocks=12, skip=40),),
        severity=Severity.WARNING,
        title="The actor's loss climbs steadily",
        meaning="A policy-gradient loss may swing without converging, but it shouldn't climb.",
        remedies=(
            "Look at KL and entropy over the same steps.",
            "Lower the actor's learning rate (verl actor_rollout_ref.actor.optim.lr, TRL learning_rate).",
        ),
        source="notes on RL metrics: Actor Loss",
    ),
    Rule(
        name="actor_loss_sign",
        family="actor",
        metrics=("loss_times_advantage",),
        # loss = -advantage * ratio, so the product of the two is negative wherever neither is noise.
        expression=Expression(
            "{actor/pg_loss} * {critic/advantages/mean} * (abs({critic/advantages/mean}) > 0.05) * "
            "(abs({actor/pg_loss}) > 0.2 * abs({critic/advantages/mean}))"
        ),
        tests=(Bound(above=0.0),),
        signs=15,
        among=16,
        severity=Severity.INFO,
        title="Loss and advantage have the same sign",
        meaning=(
            "The loss is about minus advantage times ratio, so it should go down when the mean advantage goes up. Here both "
            "have had the same sign at nearly every step."
        ),
        remedies=("Check the sign of the loss in the objective and in what is reported.",),
        source="notes on RL metrics: Actor Loss (loss and mean advantage go opposite ways)",
    ),
    Rule(
        name="loss_spike",
        family="actor",
        metrics=("actor/nll_loss", "actor/mtp_losses/{name}"),
        skip_zero=True,
        tests=(LevelShift("up", z=6, ratio=3.0, relative=2.0, absolute=0.05, local=8, min_rows=12),),
        severity=Severity.WARNING,
        title="An auxiliary loss jumped",
        meaning="One of the losses beside the policy's (NLL, multi-token prediction) left its level.",
        remedies=(
            "Look at the batch of the onset.",
            "Lower this loss' coefficient, or its learning rate.",
        ),
        source="notes on RL metrics: NLL Loss, MTP Loss, KL Loss, Entropy Loss",
    ),
)
