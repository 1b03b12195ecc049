"""verl's own numbers: all cases that were recorded from it, by the compiled kernel and by torch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from tocsin_detectors.rollout_corr import Measured, OptionError, Options, TensorError, kl_penalty, measure, native  # noqa: E402

GOLDEN = Path(__file__).parents[4] / "shared" / "golden"
ABSENT = not (GOLDEN / "golden.json").exists()
CASES: dict[str, Any] = {} if ABSENT else json.loads((GOLDEN / "golden.json").read_text())["cases"]
NAMES = {"old_log_prob": "old_log_probs", "rollout_log_prob": "rollout_log_probs", "response_mask": "response_mask"}

pytestmark = pytest.mark.skipif(ABSENT, reason="the recorded numbers of verl are not beside this checkout")


def tensors(case: dict[str, Any]) -> dict[str, Any]:
    loaded = safetensors.load_file(GOLDEN / case["inputs"])
    return {NAMES[name]: tensor for name, tensor in loaded.items()}


def run(case: dict[str, Any]) -> Measured:
    if case["function"] == "klpen":
        return kl(case)
    if case["function"] == "debug":
        return measure(tensors(case), Options(metrics=("debug",)))
    kwargs = dict(case["kwargs"])
    families = ["off_policy"]
    families += ["is"] if kwargs.get("rollout_is") is not None else []
    families += ["rs"] if kwargs.get("rollout_rs") is not None else []
    options = Options(metrics=tuple(families), return_weights=True, return_mask=True, **kwargs)
    return measure(tensors(case), options)


def kl(case: dict[str, Any]) -> Measured:
    given = tensors(case)
    policy = given["old_log_probs"].requires_grad_()
    mask = given["response_mask"]
    penalty = kl_penalty(policy, given["rollout_log_probs"], case["kwargs"]["kl_penalty"])
    loss = (penalty * mask).sum() / mask.sum()
    loss.backward()
    assert policy.grad is not None
    return Measured(
        {
            "masked_mean": loss.item(),
            "max": penalty[mask].max().item(),
            "min": penalty[mask].min().item(),
            "grad_abs_sum": policy.grad.abs().sum().item(),
        }
    )


def close(name: str, ours: float, right: float, size: float) -> bool:
    if math.isnan(right) or math.isinf(right):
        return ours == right or (math.isnan(right) and math.isnan(ours))
    relative = 5e-5 if name.endswith("chi2_token") else 2e-4 if "log_ppl" in name and "diff" in name else 1e-5
    if abs(ours - right) <= 1e-6 + relative * abs(right):
        return True
    # The source takes the difference of two float32 means of squares: of equal values it finds a deviation of rounding.
    return name.endswith("_std") and abs(ours**2 - right**2) <= 4e-7 * size**2


@pytest.mark.parametrize("engine", ["kernel", "torch"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_golden(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "torch":
        monkeypatch.setattr(native, "kernel", lambda: None)
    elif native.kernel() is None:
        pytest.skip("numba is not installed")
    case = CASES[name]
    if "error" in case:
        with pytest.raises((OptionError, TensorError), match=r".{20}"):
            run(case)
        return
    measured = run(case)
    right = {key: float(value) for key, value in case["metrics"].items()}
    assert set(measured.metrics) == set(right)
    for key, value in right.items():
        stem = key.removesuffix("_std")
        size = max(abs(right.get(f"{stem}_{end}", 1.0)) for end in ("mean", "max", "min"))
        assert close(key, measured.metrics[key], value, size), key


@pytest.mark.parametrize("name", sorted(name for name, case in CASES.items() if case.get("outputs")))
def test_golden_outputs(name: str) -> None:
    case = CASES[name]
    measured = run(case)
    mask = tensors(case)["response_mask"]
    right = safetensors.load_file(GOLDEN / case["outputs"])
    if "rollout_is_weights" in right:
        weights = measured.outputs["rollout_is_weights"]
        expected = torch.where(
            mask.bool(), right["rollout_is_weights"], 0
        )  # the source has NaN in padding here and there
        assert weights.dtype == expected.dtype
        torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    if case["kwargs"].get("rollout_rs"):
        kept = measured.outputs["response_mask"]
        assert kept.dtype == mask.dtype
        assert torch.equal(kept, right["modified_response_mask"])


def test_there_are_all_of_them() -> None:
    assert len(CASES) == 153
    assert sum("error" in case for case in CASES.values()) == 37
