"""A rule's tests, conditions and urgency in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tocsin_detectors.algorithms import (
    Bound,
    Drawdown,
    FromStart,
    Frozen,
    LevelShift,
    Plateau,
    RankShift,
    RepeatedSpikes,
    Test,
    Trend,
)
from tocsin_detectors.catalogue import lookup
from tocsin_detectors.engine import TEMPERATURE_FAMILIES
from tocsin_detectors.rules import Condition, Guarded, Rule
from tocsin_detectors.rules.data import VITAL_FAMILIES
from tocsin_detectors.scale import Scale
from tocsin_detectors.watch import SETTLED

__all__ = [
    "CONDITIONS",
    "NO_TESTS",
    "describe",
    "exceptions",
    "knows_severe",
    "needs_company",
    "plain_tests",
    "scale_kinds",
    "signs_of",
    "urgency",
]

NEVER = 1e4  # a factor beyond which a rule means that no change of that size is to be severe

CONDITIONS: Mapping[Condition, str] = {
    Condition.REWARD_RISING: "the reward rises",
    Condition.REWARD_NOT_RISING: "the reward doesn't rise",
    Condition.REWARD_SPREAD: "the rewards of a step differ",
    Condition.NO_REWARD_SPREAD: "the rewards of a step are all alike",
    Condition.LEARNING: "the learning rate isn't 0",
    Condition.MIXTURE_OF_EXPERTS: "the run's profile is `moe`",
    Condition.DENSE: "the run's profile isn't `moe`",
    Condition.WHITENED: "the advantages are told to be whitened",
    Condition.NOT_WHITENED: "the advantages are told not to be whitened",
    Condition.HAS_CRITIC: "the run has a critic",
    Condition.GROUP_NORMALISED: "the advantages are normalised within groups (GRPO and kin)",
    Condition.MEAN_PER_SEQUENCE: "the reported mean weighs every sequence the same",
    Condition.MEAN_PER_TOKEN: "the reported mean weighs every token the same",
}

# The rules that have no tests of their own: the engine looks for them.
NO_TESTS: Mapping[str, str] = {
    "non_finite": f"Any metric is NaN or infinite. Severe in the families {', '.join(sorted(VITAL_FAMILIES))}.",
    "impossible_value": (
        "A value is outside the range that the catalogue gives for its metric, or a mean is outside its own minimum "
        "and maximum."
    ),
    "metric_missing": (
        "Nothing has come of a metric for 32 steps and more that had come regularly, while others still come."
    ),
    "step_went_back": "A step is lower than one that has come before.",
    "step_gap": "The step number jumps much farther than it usually does.",
    "run_stalled": (
        "No vector has come for ten times the usual distance of steps, or three times the longest of late, and for "
        "five minutes at least, by the service's clock; and the run hasn't been told to have finished."
    ),
    "too_many_metrics": "The run has used more than 8192 distinct metric names.",
    "model_collapse": (
        "Alerts of at least two families begin within a few steps of one another, at least one of them in KL, entropy, "
        "reward or length. Only rules that say so on their page count as signs."
    ),
}


def describe(test: Test, kinds: tuple[str, ...], *, severe: bool = True) -> str:
    """What makes a sign, as a sentence.

    Args:
        test: with its parameters.
        kinds: of the scales on which it is applied.
        severe: also say what makes a reading severe, if the test knows.

    Raises:
        TypeError: nobody has written the words for such a test yet.
    """
    match test:
        case Bound():
            return _bound(test, severe=severe)
        case LevelShift():
            return _level_shift(test, kinds, severe=severe)
        case Trend():
            return _trend(test, kinds)
        case RepeatedSpikes():
            least = f"a factor of {test.ratio:g}" if kinds == ("symlog",) else f"{test.absolute:g} in the metric's unit"
            return (
                f"{test.count} or more spikes among the last {test.rows} values: each at least {test.z:g} robust "
                f"standard deviations and {least} above the baseline (of {test.min_rows} values and more), and each "
                "falling back."
            )
        case Drawdown():
            return (
                f"The median of the last {test.smooth} values has fallen below the best such median by at least "
                f"{test.share * 100:g} % of the best level's size and {test.z:g} standard deviations of the noise "
                f"(after {test.min_rows} values)."
            )
        case FromStart():
            return _from_start(test)
        case Frozen():
            which = "exactly equal" if test.at is None else f"exactly {test.at:g}"
            return f"{test.rows} values in a row are {which}."
        case Plateau():
            return (
                f"The median of the last {test.smooth} values is at least {test.ratio:g} times the plateau, and "
                f"{test.z:g} robust spreads above it. The plateau is the level to which the metric had converged while "
                "only the critic was trained; without such a phase it is the lowest level, once none lower came for "
                f"{test.settle} values, and {test.ratio**2:.3g} times that is asked for."
            )
        case RankShift():
            side = "lower" if test.direction == "down" else "higher"
            return (
                f"The last {test.later} values rank {side} than the {test.earlier} before them (Mann-Whitney z of "
                f"{test.z:g} and more), and the trimmed means differ by at least {test.relative * 100:g} % of the "
                "level's size."
            )
        case _:
            raise TypeError(f"no words for {type(test).__name__} yet: add them to {__name__}")


def signs_of(rule: Rule) -> list[str]:
    """What makes a sign of the rule, a text for each of its tests; of one without tests, what is looked for."""
    if not rule.tests:
        return [NO_TESTS[rule.name]] if rule.name in NO_TESTS else []
    kinds = scale_kinds(rule)
    severe = rule.critical_if_severe or rule.signs > 2  # what is severe needs one sign less, if that leaves two
    told = []
    for entry in rule.tests:
        test, conditions = (entry.test, entry.conditions) if isinstance(entry, Guarded) else (entry, ())
        when = f" Counts only while {' and '.join(CONDITIONS[one] for one in conditions)}." if conditions else ""
        told.append(f"{describe(test, kinds, severe=severe)}{when}")
    return told


def _bound(test: Bound, *, severe: bool) -> str:
    subject, limit = "The value", test.above
    side = "above"
    if test.below is not None:
        side, limit = "below", test.below
    elif test.beyond is not None:
        subject, limit = "The value's magnitude", test.beyond
    when = f", after the first {test.skip} values" if test.skip else ""
    when += f", within the first {test.until} values" if test.until is not None else ""
    beyond = f" Severe {side} {test.severe:g}." if severe and test.severe is not None else ""
    return f"{subject} is {side} {limit:g}{when}, whatever the run's own history.{beyond}"


def _level_shift(test: LevelShift, kinds: tuple[str, ...], *, severe: bool) -> str:
    subject = "The value" if test.smooth == 1 else f"The median of the last {test.smooth} values"
    side = {"up": "above", "down": "below", "both": "above or below"}[test.direction]
    center, unit = "the baseline's median", "robust standard deviations"
    if test.by_steps:
        center, unit = "the median of the last values", "times the usual step from value to value"
    size = _size(kinds, test.ratio, test.relative, test.absolute)
    local = f" The change from the {test.local} values just before has to be as large." if test.local else ""
    alone = " One such value is enough." if test.alone else ""
    factor = test.ratio**test.severe_factor
    beyond = f"a factor of {factor:.3g}" if kinds == ("symlog",) else f"{test.severe_factor:g} times the least change"
    return (
        f"{subject} lies {side} {center} by at least {test.z:g} {unit}, {size} (once {test.min_rows} values have come)."
        f"{local}{alone}{f' Severe from {beyond} on.' if severe and factor < NEVER else ''}"
    )


def _trend(test: Trend, kinds: tuple[str, ...]) -> str:
    verb = "rise" if test.direction == "up" else "fall"
    subject = "magnitudes" if test.magnitude else "values"
    reach = "" if test.at_least is None else f", to at least {test.at_least:g}"
    size = _size(tuple("linear" if kind == "logit" else kind for kind in kinds), test.ratio, test.relative, 0)
    return (
        f"The medians of the last {test.blocks} blocks of {test.block} {subject} {verb} steadily (Mann-Kendall z of "
        f"{test.z:g} and more), in all {size}{reach} (after the first "
        f"{test.skip} values)."
    )


def _from_start(test: FromStart) -> str:
    side = "at most" if test.ratio < 1 else "at least"
    early = f"the first {test.early} values" + (f" after {test.skip}" if test.skip else "")
    reach = "" if test.at_least is None else f", and at least {test.at_least:g}"
    return f"The median of the last {test.smooth} values is {side} {test.ratio:g} times that of {early}{reach}."


def _size(kinds: tuple[str, ...], ratio: float, relative: float, absolute: float) -> str:
    """How large a change has to be, on each of the scales."""
    unit = f" and by {absolute:g} in the metric's unit" if absolute else ""
    by_kind = {
        "symlog": f"by a factor of {ratio:g}{unit}",
        "logit": f"by {absolute or relative:g} (a difference of shares)",
        "linear": f"by {relative * 100:g} % of the level's size{unit}",
    }
    return " (or, on another scale, ".join(by_kind[kind] for kind in kinds) + ")" * (len(kinds) - 1)


def scale_kinds(rule: Rule) -> tuple[str, ...]:
    """The kinds of scale on which a rule's metrics are watched, those of ratios first."""
    if rule.expression is not None:
        return ((rule.scale or Scale()).kind,)
    found = {metric.scale.kind if (metric := lookup(name)) else "linear" for name in rule.metrics}
    return tuple(kind for kind in ("symlog", "logit", "linear") if kind in found)


def needs_company(test: Test) -> bool:
    """Whether one sign isn't enough; tests that judge several values at once are sure of theirs."""
    if isinstance(test, LevelShift):
        return test.smooth == 1 and not test.alone
    return isinstance(test, Bound)


def knows_severe(test: Test) -> bool:
    """Whether the test calls some single values severe."""
    return isinstance(test, LevelShift) or (isinstance(test, Bound) and test.severe is not None)


def urgency(rule: Rule) -> Iterator[str]:
    """What makes an alert critical, one sentence each."""
    if rule.critical_if_severe:
        yield "a value is severe"
    if rule.critical_after is not None:
        yield f"{rule.critical_after} signs come in one episode"
    if rule.critical_with:
        families = ", ".join(sorted(rule.critical_with))
        yield f"an alert that is a sign of collapse begins within a few steps in one of: {families}"


def exceptions(rule: Rule) -> Iterator[str]:
    """What keeps it from firing, one sentence each."""
    if rule.skip_zero:
        yield "An exact 0 is no measurement and is passed over."
    if rule.unless:
        names = ", ".join(f"`{name}`" for name in sorted(rule.unless))
        yield f"It doesn't begin while one of these fires, which say it better: {names}."
    if rule.tests and rule.family in TEMPERATURE_FAMILIES:
        yield "A change of the configured temperature begins the baselines anew."
    if rule.tests and all(test.start().adapts for test in plain_tests(rule)):
        yield f"Once it has lasted {SETTLED} values what is not critical is taken for the new level."


def plain_tests(rule: Rule) -> list[Test]:
    """The rule's tests without their conditions."""
    return [entry.test if isinstance(entry, Guarded) else entry for entry in rule.tests]
