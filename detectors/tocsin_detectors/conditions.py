"""The conditions that rules put before their tests, answered from what a run has said and shown."""

from __future__ import annotations

from tocsin_detectors.entries import RunConfig
from tocsin_detectors.roster import Roster
from tocsin_detectors.rules import Condition

__all__ = ["holds"]

GROUP_ALGORITHMS = frozenset({"grpo", "dapo", "gspo", "drgrpo"})
PER_SEQUENCE_FRAMEWORKS = frozenset({"slime", "miles", "open-instruct"})


def holds(condition: Condition, config: RunConfig, roster: Roster) -> bool:  # noqa: C901, PLR0911, PLR0912 - one each
    """Whether a condition holds now. What nobody knows doesn't hold, so that a rule would rather say nothing.

    Args:
        condition: the question.
        config: what the trainer has told.
        roster: what its metrics show.
    """
    match condition:
        case Condition.REWARD_RISING:
            return _reward_change(roster) > 1.0
        case Condition.REWARD_NOT_RISING:
            return _reward_change(roster) <= 0.25
        case Condition.REWARD_SPREAD:
            return _reward_spread(roster) > 0
        case Condition.NO_REWARD_SPREAD:
            return _reward_spread(roster) == 0
        case Condition.LEARNING:
            return roster.value("actor/lr") != 0  # NaN, where nobody tells, isn't 0 either
        case Condition.MIXTURE_OF_EXPERTS:
            return config.profile == "moe"
        case Condition.DENSE:
            return config.profile != "moe"
        case Condition.WHITENED:
            return bool(config.whitened_advantages)
        case Condition.NOT_WHITENED:
            return config.whitened_advantages is False
        case Condition.HAS_CRITIC:
            return roster.has_critic
        case Condition.GROUP_NORMALISED:
            if config.algorithm is not None:
                return config.algorithm.lower() in GROUP_ALGORITHMS
            return not roster.has_critic
        case Condition.MEAN_PER_SEQUENCE:
            return _per_sequence(config, roster)
        case Condition.MEAN_PER_TOKEN:
            return not _per_sequence(config, roster)


def _reward_spread(roster: Roster) -> float:
    """Standard deviation or range of the newest step's rewards; NaN if unknown."""
    spread = roster.value("critic/rewards/std")
    return spread if spread == spread else roster.value("critic/score/max") - roster.value("critic/score/min")  # noqa: PLR0124 - NaN


def _reward_change(roster: Roster) -> float:
    """How far the reward's smoothed level is above its baseline, in robust standard deviations; NaN if unknown."""
    series = roster.reward()
    baseline = None if series is None else series.baseline
    if series is None or baseline is None:
        return float("nan")
    return (series.scale.transform(series.smoothed(9)) - baseline.median) / baseline.spread


def _per_sequence(config: RunConfig, roster: Roster) -> bool:
    if config.advantage_mean is not None:
        return config.advantage_mean == "sequence"
    return roster.framework in PER_SEQUENCE_FRAMEWORKS
