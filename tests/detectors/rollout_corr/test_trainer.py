"""What a trainer calls: one function per thing, the same numbers as ``measure``."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tocsin_detectors.rollout_corr import (  # noqa: E402
    Options,
    Rows,
    TensorError,
    importance_weights,
    measure,
    offpolicy_metrics,
    rejection_mask,
    rollout_probs_diff,
)

MASK = torch.arange(12) < torch.tensor([12, 5, 0, 8])[:, None]
OLD, NOISE = torch.randn(2, 4, 12, generator=torch.Generator().manual_seed(9)).unbind()
ROLLOUT = OLD - 0.5 * NOISE
ROWS = Rows.padded(MASK)
EVERYTHING = measure(
    {"old_log_probs": OLD, "rollout_log_probs": ROLLOUT, "response_mask": MASK},
    Options(
        metrics=("off_policy", "is", "rs", "debug"),
        rollout_is="sequence",
        rollout_is_threshold=1.5,
        rollout_is_batch_normalize=True,
        rollout_rs="token_k1,seq_sum_k1",
        rollout_rs_threshold="0.5_2",
        return_weights=True,
        return_mask=True,
    ),
)


def test_each_function_says_its_part() -> None:
    off = offpolicy_metrics(OLD, ROLLOUT, ROWS)
    weights, of_weights = importance_weights(OLD, ROLLOUT, ROWS, level="sequence", threshold=1.5, batch_normalize=True)
    mask, of_mask = rejection_mask(OLD, ROLLOUT, ROWS, rejections="token_k1,seq_sum_k1", thresholds="0.5_2")
    debug = rollout_probs_diff(OLD, ROLLOUT, ROWS)
    assert off | of_weights | of_mask | debug == EVERYTHING.metrics
    assert torch.equal(weights, EVERYTHING.outputs["rollout_is_weights"])
    assert torch.equal(mask, EVERYTHING.outputs["response_mask"])
    assert not (mask & ~MASK).any()


def test_tensors_with_gradients_and_of_other_strides_are_taken() -> None:
    strange = OLD.T.contiguous().T.requires_grad_()
    assert not strange.is_contiguous()
    assert offpolicy_metrics(strange, ROLLOUT, ROWS) == pytest.approx(offpolicy_metrics(OLD, ROLLOUT, ROWS), rel=1e-5)
    weights, _ = importance_weights(strange, ROLLOUT, ROWS, level="token", threshold=2.0)
    assert not weights.requires_grad


def test_float64_stays_float64() -> None:
    fine = ROLLOUT.double() - 1e-9
    weights, metrics = importance_weights(fine + 1e-9, fine, ROWS, level="token", threshold=2.0)
    assert weights.dtype == torch.float64
    assert metrics["rollout_corr/rollout_is_mean"] - 1 == pytest.approx(1e-9, rel=1e-4)


def test_weights_that_are_all_zero() -> None:
    arguments = (OLD, OLD - 3, ROWS)
    for level in ("token", "sequence"):
        with pytest.raises(TensorError, match=r"all importance weights are 0.*strict"):
            importance_weights(*arguments, level=level, threshold="0.5_2")
        weights, metrics = importance_weights(*arguments, level=level, threshold="0.5_2", compat="strict")
        assert metrics["rollout_corr/rollout_is_eff_sample_size"] == 0
        assert not weights.any()


def test_strict_leaves_empty_rows_out() -> None:
    live = MASK.any(1)
    rows = Rows.padded(MASK[live])
    strict = offpolicy_metrics(OLD, ROLLOUT, ROWS, compat="strict")
    assert strict.pop("rollout_corr/empty_rows") == 1
    without = offpolicy_metrics(OLD[live], ROLLOUT[live], rows)
    assert {name: strict[name] for name in without} == pytest.approx(without)
    assert offpolicy_metrics(OLD, ROLLOUT, ROWS) != pytest.approx(without)


def test_strict_keeps_the_ratios_of_the_interval() -> None:
    rollout = torch.zeros(1, 3)
    old = torch.tensor([[0.65, 1.0, 1.6]]).log()
    rows = Rows.padded(torch.ones(1, 3, dtype=torch.bool))
    for compat, kept in (("strict", [True, True, False]), ("verl", [False, True, True])):
        mask, _ = rejection_mask(old, rollout, rows, rejections="token_k1", thresholds="0.6_1.4", compat=compat)
        assert mask.tolist() == [kept]


def test_half_precision_is_told_of() -> None:
    tensors = {"old_log_probs": OLD.bfloat16(), "rollout_log_probs": ROLLOUT.bfloat16(), "response_mask": MASK}
    for compat in ("verl", "strict"):
        measured = measure(tensors, Options(compat=compat, metrics=("off_policy",)))
        assert [finding.kind for finding in measured.findings][:2] == ["low_precision", "low_precision"]
    wide = measure(
        {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()},
        Options(compat="strict", metrics=("off_policy",)),
    )
    assert wide.metrics == pytest.approx(measured.metrics)
