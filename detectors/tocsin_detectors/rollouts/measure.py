"""The metrics of one step's rollouts. Each is there only if what it is made of is known.

    critic/rewards/*          final reward: mean, ends, spread, quantiles, histogram; groups without any spread
    critic/score/*            the true score, before penalties; also by domain
    critic/accuracy/*         share of right answers: over all, by domain, by prompt. Only if every true score is 0 or 1
    gdpo/{function}/*         each reward model or rule
    critic/advantages/*       their mean over responses, 0 where they are normalised within groups
    response_length/*         in tokens; share cut off: by the finish reason, and of at least 8K, 16K, 32K tokens
    response/*                empty, identical and self-repeating answers; response_chars/*: lengths in characters

A mean over rewards one of which is NaN is NaN, which the rule ``non_finite`` looks for; quantiles and histogram are of
the finite ones. Source: notes on RL metrics: training log, true rewards/score, response length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tocsin_detectors.rollouts.columns import Floats, Groups, Numbers, Rollouts, Truths

__all__ = ["EDGES", "LIMITS", "measure"]

LIMITS = (8_192, 16_384, 32_768)  # tokens
QUANTILES = (5, 25, 50, 75, 95)
EDGES = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0)  # fixed, so that a bin means the same at every step
TRUNCATED = frozenset({"length", "max_length", "max_tokens", "truncated"})
MOST_DOMAINS, MOST_FUNCTIONS = 64, 32
LONGEST_PART = 64  # characters of a name that becomes part of a metric's
EQUAL = 5e-7  # share of their size by which equal rewards may differ: some roundings of float32
REPETITIVE = 0.5  # a response of which half repeats the rest

Metrics = dict[str, float]


def measure(rollouts: Rollouts, limits: Sequence[int] = LIMITS, response_limit: int | None = None) -> Metrics:
    """The metrics by canonical name.

    Args:
        rollouts: of one step; any number of rows.
        limits: lengths in tokens for which the share of responses at least so long is told.
        response_limit: the longest possible response in tokens; says what is cut off where no finish reason does.
    """
    if not rollouts.responses:
        return {}
    with np.errstate(invalid="ignore", over="ignore"):  # what isn't finite is told as it is
        return {
            **_rewards(rollouts),
            **_scores(rollouts),
            **_advantages(rollouts),
            **_lengths(rollouts, limits, response_limit),
            **_texts(rollouts),
        }


def _rewards(rollouts: Rollouts) -> Metrics:
    rewards = rollouts.rewards
    if not rewards.known.any():
        return {}
    metrics = _spread("critic/rewards", rewards.present)
    finite = rewards.present[np.isfinite(rewards.present)]
    if finite.size:
        places = np.quantile(finite, [percent / 100 for percent in QUANTILES])
        metrics |= {f"critic/rewards/quantile/{n}": float(place) for n, place in zip(QUANTILES, places, strict=True)}
        counts = np.bincount(np.searchsorted(EDGES, finite, side="right"), minlength=len(EDGES) + 1)
        names = ("-inf", *(f"{edge:g}" for edge in EDGES))
        metrics |= {
            f"critic/rewards/histogram/{name}": count / finite.size for name, count in zip(names, counts, strict=True)
        }
    return metrics | _spreadless(rollouts)


def _spreadless(rollouts: Rollouts) -> Metrics:
    """Groups in which all rewards are equal: they teach a group-normalised policy nothing."""
    rewards = rollouts.rewards
    groups = Groups(rollouts.groups, rewards.known)
    several = groups.sizes > 1
    count = int(several.sum())
    if not count:
        return {}
    least, most = groups.extremes(rewards.values)
    size = np.maximum(np.maximum(np.abs(least), np.abs(most)), 1.0)
    equal = several & (most - least <= EQUAL * size)
    middle = (rewards.present.min() + rewards.present.max()) / 2
    low, high = equal & (most < middle), equal & (least > middle)
    metrics = {
        "critic/rewards/zero_std_ratio": float(equal.sum()) / count,
        "critic/rewards/zero_std_count": float(equal.sum()),
    }
    if _binary(rollouts.true_scores):
        return metrics  # all_failed_ratio and all_solved_ratio say it more clearly
    shares = {"low": float(low.sum()) / count, "high": float(high.sum()) / count}
    return metrics | {f"critic/rewards/zero_std_{end}_ratio": share for end, share in shares.items()}


def _scores(rollouts: Rollouts) -> Metrics:
    metrics: Metrics = {}
    for name, column in _named(rollouts.scores, MOST_FUNCTIONS):
        if column.known.any():
            metrics |= _spread(f"gdpo/{name}", column.present)
    true = rollouts.true_scores
    if not true.known.any():
        return metrics
    metrics |= _ends("critic/score", true.present)
    binary = _binary(true)
    domains = Groups([None if one is None else _part(one) for one in rollouts.domains], true.known)
    means = domains.means(true.values)
    for number in np.argsort(-domains.sizes, kind="stable")[:MOST_DOMAINS]:
        metrics[f"critic/score/{domains.names[number]}/mean"] = float(means[number])
        if binary:
            metrics[f"critic/accuracy/{domains.names[number]}/mean"] = float(means[number])
    if binary:
        metrics["critic/accuracy/mean"] = float(true.present.mean())
        metrics |= _accuracy_by_prompt(Groups(rollouts.groups, true.known), true)
    return metrics


def _accuracy_by_prompt(prompts: Groups, scores: Numbers) -> Metrics:
    if not prompts.sizes.size:
        return {}
    accuracy = prompts.means(scores.values)
    return {
        "critic/accuracy/prompt_mean": float(accuracy.mean()),
        "critic/accuracy/prompt_std": float(accuracy.std()),
        "critic/rewards/all_failed_ratio": float((accuracy == 0.0).mean()),
        "critic/rewards/all_solved_ratio": float((accuracy == 1.0).mean()),
    }


def _advantages(rollouts: Rollouts) -> Metrics:
    known = rollouts.advantages.present
    return {"critic/advantages/seq_mean": float(known.mean())} if known.size else {}


def _lengths(rollouts: Rollouts, limits: Sequence[int], response_limit: int | None) -> Metrics:
    lengths = rollouts.lengths.present
    metrics: Metrics = {}
    if lengths.size:
        metrics = _ends("response_length", lengths)
        metrics["response/aborted_ratio"] = float((lengths == 0).mean())
        metrics |= {f"response_length/clip_ratio/{limit}": float((lengths >= limit).mean()) for limit in limits}
    reasons = [reason.lower() for reason in rollouts.finish_reasons if reason is not None]
    if reasons:
        metrics["response_length/clip_ratio"] = sum(reason in TRUNCATED for reason in reasons) / len(reasons)
    elif response_limit is not None and lengths.size:
        metrics["response_length/clip_ratio"] = float((lengths >= response_limit).mean())
    return metrics


def _texts(rollouts: Rollouts) -> Metrics:
    count = len(rollouts.responses)
    written = np.array([bool(text.strip()) for text in rollouts.responses])
    chars = np.array([len(text) for text in rollouts.responses], dtype=np.float64)
    metrics = {
        "rollouts/rows": float(count),
        "response/empty_ratio": 1.0 - float(written.mean()),
        "response/identical_ratio": _identical(rollouts, written),
        "response_chars/mean": float(chars.mean()),
        "response_chars/max": float(chars.max()),
    }
    if rollouts.repetition is not None:
        metrics["response/repetition_mean"] = float(rollouts.repetition.mean())
        metrics["response/repetitive_ratio"] = float((rollouts.repetition >= REPETITIVE).mean())
    return metrics


def _identical(rollouts: Rollouts, written: Truths) -> float:
    """Share of the responses with the same text as another of their group (of the batch, where no groups are known)."""
    keys = rollouts.groups if any(key is not None for key in rollouts.groups) else [0] * len(rollouts.responses)
    pairs = [None if key is None else (key, text) for key, text in zip(keys, rollouts.responses, strict=True)]
    same = Groups(pairs, written)
    return float(same.sizes[same.sizes > 1].sum()) / len(rollouts.responses)


def _ends(name: str, values: Floats) -> Metrics:
    numbers = {"mean": values.mean(), "max": values.max(), "min": values.min()}
    return {f"{name}/{kind}": float(value) for kind, value in numbers.items()}


def _spread(name: str, values: Floats) -> Metrics:
    return _ends(name, values) | {f"{name}/std": float(values.std())}


def _binary(scores: Numbers) -> bool:
    """Whether the scores say right or wrong."""
    return bool(scores.known.any()) and bool(np.isin(scores.present, (0.0, 1.0)).all())


def _named(columns: Mapping[str, Numbers], most: int) -> Iterator[tuple[str, Numbers]]:
    """The first columns under names that can be part of a metric's, each once."""
    seen: set[str] = set()
    for name in sorted(columns)[:most]:
        part = _part(name)
        if part not in seen:
            seen.add(part)
            yield part, columns[name]


def _part(name: str) -> str:
    """``name`` as one part of a metric's name: data sets are called like repositories, "openai/gsm8k"."""
    text = "".join(char if char.isprintable() else "_" for char in name.replace("/", "-"))
    return text[:LONGEST_PART] or "_"
