"""KL of the current policy against the reference."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, Frozen, LevelShift, RepeatedSpikes, Trend
from tocsin_detectors.expressions import Expression
from tocsin_detectors.rules.base import Condition, Guarded, Rule

# The last is what the tensor endpoint makes of log-probs and reference, whatever the trainer itself reports.
REFERENCE_KL = ("actor/kl_loss", "actor/reward_kl_penalty", "actor/reward_kl_sum", "actor/kl_k3")

RULES = (
    Rule(
        name="kl_collapse",
        collapse=True,
        family="kl",
        metrics=REFERENCE_KL,
        # Two of three values, since the k3 estimator throws lone spikes of 100x on healthy runs. An exact 0 is no
        # measurement: while the actor warms up (LR 0) the KL measured after the rollout is 0 at the second step too,
        # when kl_loss, measured in the gradient step, no longer is.
        tests=(
            LevelShift("both", z=6, ratio=1.6, absolute=0.03, local=8, severe_factor=3.0),
            LevelShift("both", z=6, ratio=2.2, absolute=0.03, by_steps=True, severe_factor=20.0, min_rows=12),
        ),
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
        source="notes on RL metrics: KL divergence (current policy against the reference)",
    ),
    Rule(
        name="kl_runaway",
        family="kl",
        metrics=REFERENCE_KL,
        unless=frozenset({"kl_collapse"}),
        skip_zero=True,
        tests=(
            Guarded(
                Trend("up", z=3.6, ratio=3.5, block=5, blocks=10, skip=10, at_least=0.1), (Condition.REWARD_NOT_RISING,)
            ),
        ),
        severity=Severity.WARNING,
        title="The KL grows by orders of magnitude while the reward stands still",
        meaning=(
            "The policy moves ever farther from the reference, and the reward no longer pays for it. Nothing breaks "
            "suddenly, but such runs end with the same answer to every prompt, or with a reward of 0."
        ),
        remedies=(
            "Raise the KL coefficient (verl actor_rollout_ref.actor.kl_loss_coef or algorithm.kl_ctrl.kl_coef, TRL beta).",
            "Stop at the checkpoint after which the reward stood still.",
            "Read the responses: have they become alike?",
        ),
        source="documented reports (a KL that grows while the reward is flat); notes on RL metrics: KL divergence",
    ),
    Rule(
        name="kl_high_from_start",
        family="kl",
        metrics=("actor/kl_loss", "actor/reward_kl_penalty"),
        # At the first step the policy is the reference, so the KL per token is 0 up to rounding; a baseline that is wrong
        # from the start can't tell.
        tests=(Bound(above=1.0, severe=10.0, until=12),),
        signs=3,
        among=4,
        severity=Severity.WARNING,
        critical_if_severe=True,
        title="The KL is large from the first steps on",
        meaning=(
            "Policy and reference are the same model at the beginning, so their KL per token starts at 0. More than 1 within "
            "the first steps means that the two sides compute different log-probs, or that the first updates were huge."
        ),
        remedies=(
            "Check that the reference is the model that the run started from, with the same tokenizer and template.",
            "Switch off fused kernels or sequence parallelism, one of them at a time: they give wrong log-probs together in some versions.",
            "Lower the learning rate, or lengthen its warm-up.",
        ),
        source="documented reports of wrong log-probs from the first step; notes on RL metrics: KL divergence",
    ),
    Rule(
        name="kl_spikes",
        unless=frozenset({"kl_collapse"}),
        family="kl",
        metrics=REFERENCE_KL,
        tests=(RepeatedSpikes(count=4, rows=64, z=10, ratio=8, min_rows=16),),
        skip_zero=True,
        severity=Severity.WARNING,
        title="The KL spikes again and again",
        meaning=(
            "Single steps with a KL many times its level, which falls back each time. In GRPO that is typical of groups "
            "whose rewards hardly differ: dividing by a tiny standard deviation makes huge advantages out of nothing."
        ),
        remedies=(
            "Mask groups with a small reward std, or raise the floor that is added to it.",
            "Don't divide by the std, as in Dr. GRPO (verl algorithm.norm_adv_by_std_in_grpo=False, TRL scale_rewards=False).",
            "Compute the normalisation in float64.",
        ),
        source="notes on RL metrics: KL divergence; appendix on a GRPO advantage mean that isn't 0 (remedies shrink KL spikes)",
    ),
    Rule(
        name="kl_off_target",
        family="kl",
        metrics=("kl_over_target",),
        expression=Expression("{actor/reward_kl_penalty} / {config.target_kl}"),
        tests=(Bound(above=2.0, skip=50), Bound(below=0.3, skip=50)),
        signs=12,
        among=16,
        severity=Severity.WARNING,
        title="The KL stays off its target",
        meaning=(
            "The adaptive coefficient should hold the KL near the configured target once the warm-up is over; it is more "
            "than twice, or less than a third of it, and stays there."
        ),
        remedies=(
            "Look at the coefficient (verl actor/reward_kl_penalty_coeff): at its bound, or hardly moving?",
            "Shorten the controller's horizon (verl algorithm.kl_ctrl.horizon), or set a target that can be reached.",
        ),
        source="notes on RL metrics: KL divergence (target KL)",
    ),
    Rule(
        name="kl_frozen",
        family="kl",
        metrics=REFERENCE_KL,
        tests=(Guarded(Frozen(rows=20, at=0.0), (Condition.LEARNING,)),),
        severity=Severity.INFO,
        title="The KL is exactly 0 and stays there",
        meaning=(
            "Either no KL term is computed, or the policy isn't being updated. If the gradient norm and the reward move, it "
            "is the first; if the gradient norm is 0 as well, the second."
        ),
        remedies=(
            "If a KL term is wanted, check its coefficient (verl actor_rollout_ref.actor.use_kl_loss and kl_loss_coef, TRL beta).",
            "If the gradient norm is 0 too, see grad_norm_zero.",
        ),
        source="notes on RL metrics: KL divergence (actor warm-up)",
    ),
    Rule(
        name="kl_estimators_disagree",
        family="kl",
        metrics=("kl_estimators_ratio",),
        # Early on both are rounding noise; what counts is after both have settled.
        expression=Expression(
            "max(abs({actor/kl_loss}), abs({actor/reward_kl_penalty})) / "
            "min(abs({actor/kl_loss}), abs({actor/reward_kl_penalty})) * (min(abs({actor/kl_loss}), "
            "abs({actor/reward_kl_penalty})) > 0.001)"
        ),
        tests=(Bound(above=5.0, skip=50),),
        signs=14,
        among=16,
        severity=Severity.INFO,
        title="Two estimators of the same KL disagree",
        meaning=(
            "For a small, well-behaved difference of the policies k1 and k3 are both about half the variance of the log "
            "ratio, so they have to agree. A lasting factor of five means heavy tails, different masks or a wrong reference."
        ),
        remedies=(
            "Check that both use the same tokens, mask and reference.",
            "Look at the largest log ratios of a batch.",
        ),
        source="notes on RL metrics: KL divergence (k1 and k3); appendix on temperature (self-check)",
    ),
)
