"""The actor's loss."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import LevelShift
from tocsin_detectors.rules.base import Rule

RULES = (
    Rule(
        name="actor_loss_jump",
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
        source="seed: Actor Loss",
    ),
)
