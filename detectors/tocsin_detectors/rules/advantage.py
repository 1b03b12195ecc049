"""Advantages: what is pushed up and what is pushed down."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift
from tocsin_detectors.rules.base import Condition, Guarded, Rule

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
        source="seed: Advantages; appendix on a GRPO advantage mean that isn't 0",
    ),
)
