"""KL of the current policy against the reference."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import LevelShift
from tocsin_detectors.rules.base import Rule

REFERENCE_KL = ("actor/kl_loss", "actor/reward_kl_penalty", "actor/reward_kl_sum")

RULES = (
    Rule(
        name="kl_collapse",
        family="kl",
        metrics=REFERENCE_KL,
        # Two of three values, since the k3 estimator throws lone spikes of 100x on healthy runs. An exact 0 is no
        # measurement: while the actor warms up (LR 0) the KL measured after the rollout is 0 at the second step too,
        # when kl_loss, measured in the gradient step, no longer is.
        tests=(LevelShift("both", z=6, ratio=1.6, absolute=0.03, local=8, severe_factor=3.0),),
        skip_zero=True,
        signs=3,
        among=4,
        severity=Severity.WARNING,
        critical_if_severe=True,
        critical_after=8,
        critical_with=frozenset({"reward", "entropy", "gradient", "actor", "length"}),
        title="KL against the reference policy broke away from its slow growth",
        meaning=(
            "A healthy KL grows slowly and settles. A sudden change of its level is how a collapse of the model usually "
            "shows first; entropy and reward often follow. Even while the reward still looks fine, the run is probably "
            "broken from here on."
        ),
        remedies=(
            "Stop, and go back to the last checkpoint before the onset.",
            "Lower the actor's learning rate (verl actor_rollout_ref.actor.optim.lr, TRL learning_rate).",
            "Raise the KL coefficient (verl actor_rollout_ref.actor.kl_loss_coef or algorithm.kl_ctrl.kl_coef, TRL beta).",
            "Read the responses logged at the onset step.",
            "If the log-probs are wrong from the first step on, switch off fused kernels or sequence parallelism.",
        ),
        source="seed: KL divergence (current policy against the reference)",
    ),
)
