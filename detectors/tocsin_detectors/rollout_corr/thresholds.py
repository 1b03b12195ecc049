"""Thresholds as people write them ("2.0", "0.5_5.0", "token_k1,seq_max_k2"), parsed into intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tocsin_detectors.rollout_corr.errors import OptionError

__all__ = ["REJECTIONS", "Estimator", "Interval", "Level", "Rejection", "parse_rejections", "parse_truncation"]

Level: TypeAlias = Literal["token", "sum", "mean", "max"]
Estimator: TypeAlias = Literal["k1", "k2", "k3"]

_OPTIONS: dict[str, tuple[Level, Estimator]] = {
    "token_k1": ("token", "k1"),
    "token_k2": ("token", "k2"),
    "token_k3": ("token", "k3"),
    "seq_sum_k1": ("sum", "k1"),
    "seq_sum_k2": ("sum", "k2"),
    "seq_sum_k3": ("sum", "k3"),
    "seq_mean_k1": ("mean", "k1"),
    "seq_mean_k2": ("mean", "k2"),
    "seq_mean_k3": ("mean", "k3"),
    "seq_max_k2": ("max", "k2"),
    "seq_max_k3": ("max", "k3"),
}
REJECTIONS = tuple(_OPTIONS)
_IS_FORMS = "a number > 0, or 'lower_upper' with 0 < lower <= upper"
_K1_FORMS = "'lower_upper' with 0 < lower <= upper, or a number >= 1"
_K23_FORMS = "a number > 0"


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a ratio, both inclusive.

    Attributes:
        lower: > 0; None: there is only the upper one (truncation).
        upper: >= lower.
    """

    lower: float | None
    upper: float


@dataclass(frozen=True, slots=True)
class Rejection:
    """One rejection option: which statistic of the log-ratio must lie in which interval.

    Attributes:
        name: one of ``REJECTIONS``.
        level: the statistic of a token, or the sum, mean or maximum over a row's valid tokens.
        estimator: k1 = -log r, k2 = (log r)²/2, k3 = r - 1 - log r, for r = π_train / π_rollout.
        lower: lower bound of the statistic, inclusive; None: there is none (k2, k3).
        upper: upper bound of the statistic, inclusive.
    """

    name: str
    level: Level
    estimator: Estimator
    lower: float | None
    upper: float

    @property
    def by_token(self) -> bool:
        return self.level == "token"


def parse_truncation(threshold: object, *, strict: bool) -> Interval:
    """The bounds of importance weights.

    Args:
        threshold: an upper bound, or "lower_upper".
        strict: refuse NaN, and digits grouped by underscores ("0.5_5_0", which Python reads as 0.5 and 50).

    Raises:
        OptionError: it is neither.
    """
    name = "rollout_is_threshold"
    text = _text(name, threshold, _IS_FORMS)
    lower, upper = _split(name, text, _IS_FORMS, strict=strict)
    if upper <= 0 or (lower is not None and (lower <= 0 or lower > upper)):
        raise OptionError(f"{name} is {threshold!r}; valid: {_IS_FORMS}")
    return Interval(lower, upper)


def parse_rejections(options: object, thresholds: object, *, strict: bool) -> tuple[Rejection, ...]:
    """The rejection options, duplicates dropped.

    Args:
        options: names out of ``REJECTIONS``, separated by commas.
        thresholds: one for all of them, or as many as there are different options, separated by commas.
        strict: keep ratios in [lower, upper], as documented. Otherwise, as verl does, -log r is compared with
            [log lower, log upper], which keeps ratios in [1/upper, 1/lower].

    Raises:
        OptionError: an unknown option, a threshold that is none, or too few or too many of them.
    """
    valid = ", ".join(REJECTIONS)
    if not isinstance(options, str):
        raise OptionError(f"rollout_rs is {options!r}; valid: options separated by commas, out of {valid}")
    names = list(dict.fromkeys(name.strip() for name in options.split(",") if name.strip()))
    if not names:
        raise OptionError(f"rollout_rs names no option; valid: {valid}")
    for name in names:
        if name not in _OPTIONS:
            raise OptionError(f"rollout_rs has {name!r}; valid: {valid}")
    forms = f"{_K1_FORMS} for k1, {_K23_FORMS} for k2 and k3, separated by commas"
    text = _text("rollout_rs_threshold", thresholds, forms)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) not in {1, len(names)}:
        raise OptionError(
            f"rollout_rs_threshold has {len(parts)} thresholds for {len(names)} options; "
            "send one for all, or one for each"
        )
    if len(parts) == 1:
        parts *= len(names)
    return tuple(_rejection(name, part, strict=strict) for name, part in zip(names, parts, strict=True))


def _rejection(option: str, text: str, *, strict: bool) -> Rejection:
    level, estimator = _OPTIONS[option]
    name = f"rollout_rs_threshold of {option}"
    if estimator != "k1":
        if "_" in text:
            raise OptionError(f"{name} is {text!r}; valid: {_K23_FORMS} (there is no lower bound)")
        upper = _number(name, text, _K23_FORMS, strict=strict)
        if upper <= 0:
            raise OptionError(f"{name} is {text!r}; valid: {_K23_FORMS}")
        return Rejection(option, level, estimator, None, upper)
    lower, upper_ratio = _split(name, text, _K1_FORMS, strict=strict)
    if upper_ratio == 0:
        raise OptionError(f"{name} is {text!r}; valid: {_K1_FORMS}")
    lower_ratio = 1 / upper_ratio if lower is None else lower
    if lower_ratio <= 0 or upper_ratio <= 0 or lower_ratio > upper_ratio:
        raise OptionError(f"{name} is {text!r}; valid: {_K1_FORMS}")
    low, high = math.log(lower_ratio), math.log(upper_ratio)
    return (
        Rejection(option, level, estimator, -high, -low) if strict else Rejection(option, level, estimator, low, high)
    )


def _text(name: str, threshold: object, forms: str) -> str:
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float, str)):
        raise OptionError(f"{name} is {threshold!r}; valid: {forms}")
    return threshold if isinstance(threshold, str) else repr(float(threshold))


def _split(name: str, text: str, forms: str, *, strict: bool) -> tuple[float | None, float]:
    lower, mark, upper = text.partition("_")
    if not mark:
        return None, _number(name, text, forms, strict=strict)
    return _number(name, lower, forms, strict=strict), _number(name, upper, forms, strict=strict)


def _number(name: str, text: str, forms: str, *, strict: bool) -> float:
    try:
        number = float(text)
    except ValueError:
        raise OptionError(f"{name} is {text!r}; valid: {forms}") from None
    if strict and (math.isnan(number) or "_" in text):
        raise OptionError(f"{name} is {text!r}; valid: {forms}")
    return number
