"""KL of the current policy against the reference, per token and as means.

    d = logp - logp_ref

    k1   d                           unbiased, of either sign, steady
    abs  |d|
    k2   d^2 / 2                     its gradient is that of the KL
    k3   exp(-d) - 1 + d             unbiased, never negative, spiky

verl's names for them are "kl" (k1), "mse" (k2) and "low_var_kl" (k3); a "+" at the end asks for the gradient of k2
under the value of any of them. Source: verl ``core_algos.kl_penalty``; J. Schulman, Approximating KL Divergence (2020).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from tocsin_detectors.rollout_corr.errors import OptionError
from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finished
from tocsin_detectors.rollout_corr.options import KL_ESTIMATORS, Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.tally import Tally

__all__ = ["FAMILY", "kl_penalty"]

VERL_NAMES: Mapping[str, str] = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
STRAIGHT_THROUGH = "+"
LARGEST_LOG_RATIO = 20.0  # of k3: beyond it exp() says nothing any more
LARGEST_K3 = 10.0  # per token


def kl_penalty(log_prob: Tensor, ref_log_prob: Tensor, estimator: str) -> Tensor:
    """A KL estimate per token, with its gradient: for losses and for rewards.

    Args:
        log_prob: log-probabilities of the sampled tokens under the current policy; any shape.
        ref_log_prob: the same under the reference; same shape.
        estimator: "k1", "abs", "k2", "k3", or verl's "kl", "mse", "low_var_kl". With "+" at the end the value stays and
            the gradient becomes that of k2, whose expectation is the gradient of the KL (straight-through).

    Returns:
        Nats per token, of the inputs' shape and type. k3 takes a log ratio within 20 and gives at most 10, as in verl;
        where it is cut its gradient is 0.

    Raises:
        OptionError: no such estimator.
    """
    log_ratio = log_prob - ref_log_prob
    value = _estimate(log_ratio, canonical(estimator))
    if not estimator.endswith(STRAIGHT_THROUGH):
        return value
    bearer = _estimate(log_ratio, "k2")
    return value.detach() + (bearer - bearer.detach())


def canonical(estimator: str) -> str:
    """The estimator's own name ("k3") of any of its names ("low_var_kl+").

    Raises:
        OptionError: no such estimator.
    """
    plain = estimator.removesuffix(STRAIGHT_THROUGH)
    name = VERL_NAMES.get(plain, plain)
    if name not in KL_ESTIMATORS:
        known = ", ".join((*KL_ESTIMATORS, *VERL_NAMES))
        raise OptionError(f"there is no KL estimator {estimator!r}; valid: {known}, each also with + at the end")
    return name


def _estimate(log_ratio: Tensor, estimator: str) -> Tensor:
    if estimator == "k1":
        return log_ratio
    if estimator == "abs":
        return log_ratio.abs()
    if estimator == "k2":
        return 0.5 * log_ratio.square()
    backward = log_ratio.neg().clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    # Not exp() - 1 - x: in float32 that is rounding, where the policies are close.
    return (backward.expm1() - backward).clamp(max=LARGEST_K3)


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    current = tensors.get("log_probs", tensors.get("old_log_probs"))
    assert current is not None  # noqa: S101 - the family's needs
    names = tuple(dict.fromkeys(canonical(estimator) for estimator in options.kl_estimators))
    tally = Tally(rows.device, ("tokens", *names))
    for block in rows.blocks(current, tensors["ref_log_prob"]):
        log_prob, ref_log_prob = block.values
        log_ratio = log_prob - ref_log_prob
        tally.add(block.lengths, *(_estimate(log_ratio, name) for name in names))
    return Accumulated(tally.totals())


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    del outputs  # it has none
    tokens = totals["tokens"]
    names = {canonical(estimator) for estimator in options.kl_estimators}
    return Finished({f"actor/kl_{name}": totals[name] / tokens for name in sorted(names)} if tokens else {})


FAMILY = Family(
    names=("kl",),
    needs=(("log_probs", "ref_log_prob"), ("old_log_probs", "ref_log_prob")),
    accumulate=_accumulate,
    finish=_finish,
)
