"""The options of a call: what to compute, and in which of the two behaviours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from tocsin_detectors.rollout_corr.errors import OptionError
from tocsin_detectors.rollout_corr.thresholds import Interval, Rejection, parse_rejections, parse_truncation

__all__ = ["FAMILIES", "KL_ESTIMATORS", "Compat", "Options"]

Compat: TypeAlias = Literal["verl", "strict"]
FAMILIES = (
    "off_policy",
    "is",
    "rs",
    "debug",
    "kl",
    "ratio",
    "entropy",
    "extremes",
    "advantages",
    "data",
    "accuracy",
)
KL_ESTIMATORS = ("k1", "abs", "k2", "k3", "kl", "mse", "low_var_kl")  # the last three: verl's names of k1, k2, k3
ENTROPY_AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
LIMITS = (8_192, 16_384, 32_768)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to compute of a batch. All have defaults; ``Options.parse`` makes them of JSON.

    Attributes:
        compat: "verl" gives verl's numbers, oddities included; "strict" leaves empty rows out, tests rejection
            intervals as they are documented and says what saturated. The differences stand in ``docs/rollout_corr.md``.
        metrics: families to compute, out of ``FAMILIES``; None: all that the tensors allow.
        rollout_is: level of the importance weights, "token" or "sequence"; None: no weights.
        rollout_is_threshold: an upper bound > 0 (larger weights are truncated to it), or "lower_upper" (weights outside
            become 0: IcePop). Needed with ``rollout_is``.
        rollout_is_batch_normalize: divide the returned weights by their mean.
        rollout_rs: rejection options, separated by commas, out of ``REJECTIONS``; None: no rejection.
        rollout_rs_threshold: one threshold for all options, or one for each, separated by commas: for k1 "lower_upper"
            or an upper bound >= 1 (its reciprocal is the lower one), for k2 and k3 an upper bound > 0.
        return_weights: return the importance weights.
        return_mask: return the mask with what is rejected taken out.
        kl_estimators: estimators of the family "kl", out of ``KL_ESTIMATORS``.
        entropy_aggregation: how the family "entropy" averages, out of ``ENTROPY_AGGREGATIONS``.
        clip_low: lower clip range ε of the policy ratio: ratios below 1 - ε count as clipped. In [0, 1).
        clip_high: upper clip range ε: ratios above 1 + ε count as clipped. > 0.
        limits: response lengths in tokens, ascending; the share of responses that reach each of them is a metric.
        response_limit: the longest possible response in tokens; None: the width of padded tensors (ragged: unknown, so
            nothing is said of truncated responses).
        prompt_limit: the longest possible prompt in tokens; None: unknown, so nothing is said of truncated prompts.
        advantage_std: the std by which advantages are divided: "sample" (G - 1; torch's default) or "population" (G).
            Decides how large an advantage in a group of G can be: (G - 1) / sqrt(G) or sqrt(G - 1).
        success_threshold: a row whose score is at least this is a success (family "accuracy").
        domains: names of the domains that the tensor ``domain`` counts from 0.
    """

    compat: Compat = "verl"
    metrics: tuple[str, ...] | None = None
    rollout_is: Literal["token", "sequence"] | None = None
    rollout_is_threshold: float | str | None = 2.0
    rollout_is_batch_normalize: bool = False
    rollout_rs: str | None = None
    rollout_rs_threshold: float | str | None = None
    return_weights: bool = False
    return_mask: bool = False
    kl_estimators: tuple[str, ...] = ("k1", "k2", "k3")
    entropy_aggregation: str = "token-mean"
    clip_low: float = 0.2
    clip_high: float = 0.2
    limits: tuple[int, ...] = LIMITS
    response_limit: int | None = None
    prompt_limit: int | None = None
    advantage_std: Literal["sample", "population"] = "sample"
    success_threshold: float = 0.5
    domains: tuple[str, ...] = ()
    truncation: Interval | None = field(init=False, repr=False)
    rejections: tuple[Rejection, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _one_of("compat", self.compat, ("verl", "strict"))
        _all_of("metrics", self.metrics or (), FAMILIES)
        _all_of("kl_estimators", self.kl_estimators, KL_ESTIMATORS)
        _one_of("entropy_aggregation", self.entropy_aggregation, ENTROPY_AGGREGATIONS)
        _one_of("advantage_std", self.advantage_std, ("sample", "population"))
        if self.rollout_is is not None:
            _one_of("rollout_is", self.rollout_is, ("token", "sequence"))
        if not 0 <= self.clip_low < 1 or not self.clip_high > 0:
            raise OptionError(f"clip_low is {self.clip_low}, clip_high {self.clip_high}; valid: 0 <= low < 1, high > 0")
        if any(limit < 1 for limit in self.limits) or list(self.limits) != sorted(set(self.limits)):
            raise OptionError(f"limits are {list(self.limits)}; valid: ascending numbers of tokens, each 1 or more")
        for name, limit in (("response_limit", self.response_limit), ("prompt_limit", self.prompt_limit)):
            if limit is not None and (not _is_whole(limit) or limit < 1):
                raise OptionError(f"{name} is {limit!r}; valid: a number of tokens, 1 or more")
        if len({name.replace("/", "-") for name in self.domains}) < len(self.domains) or "" in self.domains:
            raise OptionError(
                f"domains are {list(self.domains)}; valid: different names, not empty (a / counts as a -)"
            )
        object.__setattr__(self, "truncation", self._truncation())
        object.__setattr__(self, "rejections", self._rejections())

    @property
    def strict(self) -> bool:
        return self.compat == "strict"

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Options:
        """Options of plain data, such as parsed JSON: lists for tuples.

        Raises:
            OptionError: an unknown option, or a value that is not valid.
        """
        known = {option.name for option in fields(cls) if option.init}
        for name in values:
            if name not in known:
                raise OptionError(f"there is no option {name!r}; valid: {', '.join(sorted(known))}")
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        _check_types(plain)
        return cls(**plain)

    def _truncation(self) -> Interval | None:
        if self.rollout_is is None:
            return None
        if self.rollout_is_threshold is None:
            if self.strict:
                raise OptionError(
                    "rollout_is is set, rollout_is_threshold is not; valid: a number > 0, or 'lower_upper'"
                )
            return None  # verl computes no weights then, without a word
        return parse_truncation(self.rollout_is_threshold, strict=self.strict)

    def _rejections(self) -> tuple[Rejection, ...]:
        if self.rollout_rs is None:
            return ()
        return parse_rejections(self.rollout_rs, self.rollout_rs_threshold, strict=self.strict)


def _one_of(name: str, value: object, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise OptionError(f"{name} is {value!r}; valid: {', '.join(valid)}")


def _all_of(name: str, values: tuple[str, ...], valid: tuple[str, ...]) -> None:
    for value in values:
        if value not in valid:
            raise OptionError(f"{name} has {value!r}; valid: {', '.join(valid)}")


_TUPLES_OF_TEXT = ("metrics", "kl_estimators", "domains")
_NUMBERS = ("clip_low", "clip_high", "success_threshold")
_FLAGS = ("rollout_is_batch_normalize", "return_weights", "return_mask")


def _check_types(values: Mapping[str, Any]) -> None:
    """Refuse what has the wrong type before it can be compared with anything."""
    for name, value in values.items():
        if name in _TUPLES_OF_TEXT:
            right = (name == "metrics" and value is None) or _tuple_of(value, str)
            expected = "a list of texts"
        elif name == "limits":
            right, expected = _tuple_of(value, int), "a list of whole numbers"
        elif name in _FLAGS:
            right, expected = isinstance(value, bool), "true or false"
        elif name in _NUMBERS:
            right, expected = isinstance(value, (int, float)) and not isinstance(value, bool), "a number"
        else:
            continue  # texts and thresholds are compared with what is valid anyway
        if not right:
            raise OptionError(f"{name} is {value!r}; valid: {expected}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tuple_of(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, kind) and not isinstance(item, bool) for item in value)
