"""KL against the reference: verl's values and gradients, and means that a naive float64 sum agrees with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.detectors.rollout_corr.batches import Batch, Layout, filled, masks, run
from torch import Tensor

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.errors import OptionError
from tocsin_detectors.rollout_corr.kl import FAMILY, kl_penalty
from tocsin_detectors.rollout_corr.options import Options

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden"
EVERY = Options(kl_estimators=("k1", "abs", "k2", "k3"))


def naive(estimator: str, d: float) -> float:
    """The formula of one token; d = logp - logp_ref."""
    match estimator:
        case "k1":
            return d
        case "abs":
            return abs(d)
        case "k2":
            return d * d / 2
    x = min(max(-d, -20.0), 20.0)
    return min(float(np.exp(x)) - x - 1, 10.0)


def golden() -> dict[str, Any]:
    if not GOLDEN.exists():
        return {}
    cases = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))["cases"]
    return {name: case for name, case in cases.items() if case["function"] == "klpen"}


CASES = golden()


def test_the_golden_cases_are_here() -> None:
    if not CASES:
        pytest.skip(f"{GOLDEN} is not here: it lies beside the repository")
    assert len(CASES) == 13


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "metrics" in case])
def test_values_and_gradients_are_those_of_verl(name: str) -> None:
    case = CASES[name]
    inputs = load_file(GOLDEN / case["inputs"])
    mask = inputs["response_mask"].bool()
    log_prob = inputs["old_log_prob"].clone().requires_grad_()
    value = kl_penalty(log_prob, inputs["rollout_log_prob"], case["kwargs"]["kl_penalty"])
    (value[mask].sum() / mask.sum()).backward()
    assert log_prob.grad is not None
    found = {
        "masked_mean": value.detach()[mask].mean(),
        "max": value.detach()[mask].max(),
        "min": value.detach()[mask].min(),
        "grad_abs_sum": log_prob.grad.abs().sum(),
    }
    for part, expected in case["metrics"].items():
        assert float(found[part]) == pytest.approx(expected, rel=1e-5, abs=1e-6), part


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "error" in case])
def test_what_verl_refuses_is_refused_with_a_word(name: str) -> None:
    with pytest.raises(OptionError, match=r"valid: k1, abs, .*low_var_kl"):
        kl_penalty(torch.zeros(2), torch.zeros(2), CASES[name]["kwargs"]["kl_penalty"])


@settings(deadline=None)
@given(masks(), st.integers(0, 2**32), st.sampled_from(["padded", "ragged"]), st.booleans())
def test_means_are_those_of_a_naive_sum(mask: Any, seed: int, layout: Layout, during: bool) -> None:
    rng = np.random.default_rng(seed)
    current, reference = (filled(mask, rng.normal(-1, scale, mask.shape)) for scale in (1, 3))
    arrays = {("log_probs" if during else "old_log_probs"): current, "ref_log_prob": reference}
    batch = Batch(mask, arrays)
    said = run(FAMILY, batch, EVERY, layout)
    gaps = (current - reference)[mask]
    expected = {
        f"actor/kl_{name}": np.mean([naive(name, gap) for gap in gaps]) for name in EVERY.kl_estimators if gaps.size
    }
    assert said.metrics == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert all(lookup(name) is not None for name in said.metrics)


def test_k3_of_close_policies_survives_float32() -> None:
    mask = np.ones((32, 64), bool)
    rng = np.random.default_rng(3)
    reference = -rng.exponential(1.0, mask.shape).astype(np.float32)
    current = (reference + rng.normal(0, 3e-4, mask.shape)).astype(np.float32)
    said = run(FAMILY, Batch(mask, {"log_probs": current, "ref_log_prob": reference}))
    gaps = current.astype(np.float64) - reference
    assert said.metrics["actor/kl_k3"] == pytest.approx(np.mean(np.expm1(-gaps) + gaps), rel=1e-3)


def test_the_policy_during_the_update_is_preferred() -> None:
    mask = np.ones((2, 3), bool)
    arrays = {name: np.full((2, 3), value) for name, value in (("log_probs", -1.0), ("old_log_probs", -2.0))}
    said = run(FAMILY, Batch(mask, {**arrays, "ref_log_prob": np.full((2, 3), -1.5)}))
    assert said.metrics["actor/kl_k1"] == 0.5


def test_verls_names_are_the_same_metrics() -> None:
    mask = np.ones((2, 3), bool)
    batch = Batch(mask, {"log_probs": np.full((2, 3), -1.0), "ref_log_prob": np.full((2, 3), -1.5)})
    ours = run(FAMILY, batch, Options(kl_estimators=("k1", "k2", "k3")))
    verls = run(FAMILY, batch, Options(kl_estimators=("kl", "mse", "low_var_kl", "k3")))
    assert ours.metrics == verls.metrics


@pytest.mark.parametrize("base", ["k1", "abs", "k2", "k3", "kl", "mse", "low_var_kl"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_plus_keeps_the_value_and_takes_the_gradient_of_k2(base: str, dtype: torch.dtype) -> None:
    gaps = torch.linspace(-3, 3, 13, dtype=dtype)

    def of(estimator: str) -> tuple[Tensor, Tensor]:
        log_prob = gaps.clone().requires_grad_()
        value = kl_penalty(log_prob, torch.zeros_like(gaps), estimator)
        assert value.dtype == dtype
        value.sum().backward()
        assert log_prob.grad is not None
        return value.detach(), log_prob.grad

    plain, straight = of(base), of(f"{base}+")
    assert torch.equal(straight[0], plain[0])
    assert torch.equal(straight[1], gaps)  # of d^2 / 2


def test_k3_has_no_gradient_where_it_is_cut() -> None:
    log_prob = torch.tensor([-5.0, -1.0, 5.0], requires_grad=True)
    value = kl_penalty(log_prob, torch.zeros(3), "k3")
    value.sum().backward()
    assert value.detach()[0] == 10
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == pytest.approx([0, 1 - np.e, 1 - np.exp(-5)], rel=1e-6)
