"""Advantages: what is pushed up and what is pushed down."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift, Trend
from tocsin_detectors.expressions import Expression
from tocsin_detectors.rules.base import Condition, Guarded, Rule
from tocsin_detectors.scale import Scale

RULES = (
    Rule(
        name="grpo_advantage_mean_nonzero",
        family="advantage",
        metrics=("critic/advantages/mean",),
        # Within a group normalised advantages add up to 0, so their mean over sequences is 0 up to rounding. A mean
        # over tokens (verl) weighs long answers more: lengths that go with the reward move it by several tenths
        # without any bug. It is judged by its own history and by a bound that no mixture of lengths reaches.
        tests=(
            Guarded(Bound(beyond=1e-3, severe=0.1), (Condition.GROUP_NORMALISED, Condition.MEAN_PER_SEQUENCE)),
            Guarded(
                LevelShift("both", z=8, relative=2.0, absolute=0.5, min_rows=20),
                (Condition.GROUP_NORMALISED, Condition.MEAN_PER_TOKEN),
            ),
        ),
        signs=3,
        among=4,
        severity=Severity.WARNING,
        critical_if_severe=True,
        title="The mean of the group-normalised advantages is not 0",
        meaning=(
            "Advantages that are centred within each group have mean 0. A known cause of another mean: all rewards of a "
            "group are equal, but not representable in float32. Subtracting the mean then leaves about 1e-8, and dividing "
            "that by (std + 1e-8) makes advantages of about plus or minus 1 for the whole group: large updates out of "
            "nothing."
        ),
        remedies=(
            "Compute the normalisation in float64: the exact fix.",
            "Mask groups whose reward std is tiny.",
            "Raise the floor that is added to the std.",
            "Don't divide by the std, as in Dr. GRPO (verl algorithm.norm_adv_by_std_in_grpo=False, TRL "
            "scale_rewards=False).",
        ),
        source="notes on RL metrics: Advantages; appendix on a GRPO advantage mean that isn't 0",
    ),
    Rule(
        name="advantage_degenerate_group",
        family="advantage",
        metrics=("critic/advantages/degenerate_groups",),
        # An exact count from the tensors, no estimate: any is wrong. Such groups come when the data have them, so two of
        # eight values are enough, and it is over only when sixteen in a row had none.
        tests=(Guarded(Bound(above=0.0), (Condition.GROUP_NORMALISED,)),),
        signs=2,
        among=8,
        recovery=16,
        severity=Severity.WARNING,
        title="Groups whose rewards are all equal get advantages that aren't 0",
        meaning=(
            "Where every rollout of a prompt got the same reward there is nothing to prefer, and every advantage has to be "
            "0. Here it isn't: the equal rewards are no exact float32 numbers (0.1, 1/3), subtracting their rounded mean "
            "leaves about 1e-8, and dividing that by a std as small makes about plus or minus 1 for the whole group. The "
            "updates push towards, or away from, everything that was said. critic/advantages/first_degenerate_group is the "
            "id of the first such group; the answer of the tensor endpoint to this step lists each with its rewards and "
            "advantages."
        ),
        remedies=(
            "Compute the normalisation in float64: the exact fix.",
            "Mask groups whose reward std is tiny.",
            "Raise the floor that is added to the std.",
            "Don't divide by the std, as in Dr. GRPO (verl algorithm.norm_adv_by_std_in_grpo=False, TRL "
            "scale_rewards=False).",
        ),
        source="notes on RL metrics: appendix on a GRPO advantage mean that isn't 0",
    ),
    Rule(
        name="ppo_advantage_mean_nonzero",
        family="advantage",
        metrics=("critic/advantages/mean",),
        tests=(
            Guarded(Bound(beyond=0.05, severe=0.5), (Condition.HAS_CRITIC, Condition.WHITENED)),
            Guarded(Bound(above=0.5, skip=30), (Condition.HAS_CRITIC, Condition.NOT_WHITENED)),
        ),
        signs=10,
        among=12,
        severity=Severity.WARNING,
        title="The mean of PPO's advantages stays away from 0",
        meaning=(
            "Whitened advantages have mean 0 by construction: another mean is a bug in the whitening or its mask. Raw ones "
            "whose mean stays above 0 tell that the critic hasn't converged yet."
        ),
        remedies=(
            "Whitened: check that mean and variance are taken over valid tokens of all ranks.",
            "Raw: pretrain the critic longer (verl trainer.critic_warmup), or raise its learning rate.",
        ),
        source="notes on RL metrics: Advantages",
    ),
    Rule(
        name="advantage_out_of_bounds",
        family="advantage",
        metrics=("advantage_over_bound",),
        # G values x_i with mean m: the largest |x_i - m| for a given spread is reached when one differs and the others are
        # equal. Then |x_i - m| / std is (G-1)/sqrt(G) with the sample std and sqrt(G-1) with the population std, the larger
        # of the two; nothing normalised within a group can exceed it.
        expression=Expression("max({critic/advantages/max}, -{critic/advantages/min}) / sqrt({config.group_size} - 1)"),
        tests=(Guarded(Bound(above=1.001), (Condition.GROUP_NORMALISED,)),),
        severity=Severity.WARNING,
        title="An advantage is larger than its normalisation allows",
        meaning=(
            "Advantages normalised by the std of a group of G can't exceed sqrt(G-1). They do, so they are normalised "
            "otherwise, not at all, or over another group than is told."
        ),
        remedies=(
            "Check the group size (verl actor_rollout_ref.rollout.n, TRL num_generations) and how rollouts are grouped.",
            "Check that the std is that of the group, with its small floor.",
        ),
        source="notes on RL metrics: Advantages (the maximum can't exceed its theoretical limit)",
    ),
    Rule(
        name="advantage_equals_reward",
        family="advantage",
        metrics=("advantage_minus_score",),
        # 1 where mean, max and min of advantage and score agree to 2 % of their size, and are no zeros.
        expression=Expression(
            "(abs({critic/advantages/max} - {critic/score/max}) <= 0.02 * abs({critic/score/max}) + 0.001) * "
            "(abs({critic/advantages/min} - {critic/score/min}) <= 0.02 * abs({critic/score/min}) + 0.001) * "
            "(abs({critic/advantages/mean} - {critic/score/mean}) <= 0.1 * abs({critic/score/mean}) + 0.01) * "
            "(abs({critic/score/max}) + abs({critic/score/min}) > 0.01)"
        ),
        tests=(Bound(above=0.5),),
        signs=7,
        among=10,
        severity=Severity.CRITICAL,
        title="The advantages are the rewards: no baseline is subtracted",
        meaning=(
            "Mean, maximum and minimum of the advantages equal those of the scores at nearly every step. A group of one "
            "rollout, or an estimator that isn't the one configured: the policy is pushed towards whatever it did, as long "
            "as it got a positive reward."
        ),
        remedies=(
            "Check the number of rollouts per prompt (verl actor_rollout_ref.rollout.n, TRL num_generations): more than 1.",
            "Check the advantage estimator (verl algorithm.adv_estimator).",
            "Check that the prompts' group ids reach the advantage computation.",
        ),
        source="beyond the notes: seen in public runs from the first to the last step",
    ),
    Rule(
        name="advantage_variance_growing",
        family="advantage",
        metrics=("advantage_range",),
        expression=Expression("{critic/advantages/max} - {critic/advantages/min}"),
        scale=Scale("symlog", 0.1),
        tests=(Guarded(Trend("up", z=3.5, ratio=3.0, block=5, blocks=12, skip=20), (Condition.NOT_WHITENED,)),),
        severity=Severity.WARNING,
        title="The advantages spread ever wider",
        meaning=(
            "Without whitening the range of the advantages grows steadily: rewards out of distribution, reward hacking, or "
            "a critic that lags. Updates grow as violent as the advantages."
        ),
        remedies=(
            "Whiten the advantages.",
            "Raise the KL penalty; look for outliers among the rewards.",
            "Raise the critic's learning rate.",
        ),
        source="notes on RL metrics: appendix on the growing difference between current and old policy in PPO, cause 1",
    ),
)
