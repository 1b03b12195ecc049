"""The core against a naive float64 reference on random and hostile batches, in both layouts, by kernel and by torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tests.detectors.rollout_corr import reference  # noqa: E402

from tocsin_detectors.rollout_corr import (  # noqa: E402
    REJECTIONS,
    Measured,
    Options,
    Rows,
    TensorError,
    core,
    log_ratio,
    measure,
    native,
)
from tocsin_detectors.rollout_corr.block import Plan, see_block  # noqa: E402

ENGINES = ("kernel", "torch", "torch blind")
OPTIONS = ",".join(REJECTIONS)
THRESHOLDS = "0.6_1.5,0.1,0.2,0.3_5,1.1,0.9,0.77_1.4,0.05,0.06,0.3,0.31"


@dataclass(frozen=True)
class Batch:
    old: np.ndarray
    rollout: np.ndarray
    mask: np.ndarray

    @property
    def rows(self) -> reference.Rows:
        def valid(values: np.ndarray) -> list[np.ndarray]:
            return [row[chosen].astype(np.float64) for row, chosen in zip(values, self.mask, strict=True)]

        return reference.Rows(valid(self.old), valid(self.rollout))

    def tensors(self, layout: str) -> dict[str, Any]:
        old, rollout, mask = (torch.from_numpy(value) for value in (self.old, self.rollout, self.mask))
        if layout == "padded":
            return {"old_log_probs": old, "rollout_log_probs": rollout, "response_mask": mask}
        return {
            "old_log_probs": old[mask],
            "rollout_log_probs": rollout[mask],
            "response_lengths": mask.sum(1),
        }


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, width = draw(st.integers(1, 7)), draw(st.sampled_from([1, 2, 9, 40, 300]))
    lengths = rng.integers(0, width + 1, rows)
    mask = np.arange(width) < lengths[:, None]
    match draw(st.sampled_from(["prefix", "holes", "one", "full", "none"])):
        case "holes":
            mask = rng.random((rows, width)) < 0.6
        case "one":
            mask[:] = False
            mask[rng.integers(rows), rng.integers(width)] = True
        case "full":
            mask[:] = True
        case "none":
            mask[:] = False
    old = -rng.exponential(1.0, (rows, width)).astype(np.float32)
    d = rng.normal(0, draw(st.sampled_from([0.0, 1e-4, 1e-2, 0.5, 8.0])), (rows, width)).astype(np.float32)
    rollout = old - d
    for _ in range(draw(st.integers(0, 2))):
        place = (rng.integers(rows), rng.integers(width))
        target = old if rng.random() < 0.5 else rollout
        target[place] = draw(st.sampled_from([np.nan, np.inf, -np.inf, -45.0, 0.0]))
    if draw(st.booleans()):
        old[~mask], rollout[~mask] = np.nan, np.inf
    return Batch(old, rollout, mask)


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Have the core computed by the compiled kernel, by torch, or by torch without its looks at the data."""
    with pytest.MonkeyPatch.context() as patch:
        if name != "kernel":
            patch.setattr(native, "kernel", lambda: None)
        if name == "torch blind":

            def blind(*tensors: Any, full: bool, plan: Plan, look: bool) -> Any:
                del look
                return see_block(*tensors, full=full, plan=plan, look=False)

            patch.setattr(log_ratio, "see_block", blind)
        yield


def same(ours: Mapping[str, float], right: Mapping[str, float], prefix: str) -> None:
    assert {name.removeprefix(prefix) for name in ours if name.startswith(prefix)} >= set(right)
    for name, value in right.items():
        said = ours[prefix + name]
        if math.isnan(value) or math.isinf(value):
            assert said == value or (math.isnan(said) and math.isnan(value)), f"{name}: {said}, not {value}"
            continue
        stem = name.removesuffix("std")
        size = 1.0 + max(np.nan_to_num([abs(right.get(stem + end, 0.0)) for end in ("mean", "max", "min")]))
        allowed = 2e-6 + 2e-5 * abs(value) + (1e-6 * size if name.endswith("std") else 0.0)
        assert abs(said - value) <= allowed, f"{name}: {said}, not {value}"


def answer(batch: Batch, layout: str, options: Options) -> Measured | None:
    """None: refused, as it has to be. The tensors sent have to be as they were."""
    tensors = batch.tensors(layout)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    try:
        measured = measure(tensors, options)
    except TensorError as error:
        refusal = str(error)
    else:
        for name, tensor in tensors.items():
            assert torch.equal(tensor.nan_to_num(), before[name].nan_to_num()), f"{name} was written to"
        return measured
    assert not options.strict
    assert not batch.mask.any() or "weights are 0" in refusal
    return None


def by_token(batch: Batch, layout: str, values: list[np.ndarray]) -> np.ndarray:
    """The reference's values of valid tokens as a tensor of the layout would have them."""
    flat = np.concatenate([*values, np.zeros(0, values[0].dtype)])
    if layout == "ragged":
        return flat
    whole = np.zeros(batch.mask.shape, flat.dtype)
    whole[batch.mask] = flat
    return whole


@pytest.mark.parametrize("name", ENGINES)
@settings(max_examples=40, deadline=None)
@given(batches(), st.sampled_from(["padded", "ragged"]), st.sampled_from(["verl", "strict"]))
def test_off_policy(name: str, batch: Batch, layout: str, compat: Any) -> None:
    with engine(name), np.errstate(all="ignore"):
        measured = answer(batch, layout, Options(compat=compat, metrics=("off_policy",)))
        if measured is None:
            return
        same(measured.metrics, reference.off_policy(batch.rows, strict=compat == "strict"), "rollout_corr/")


@pytest.mark.parametrize("name", ENGINES)
@settings(max_examples=50, deadline=None)
@given(
    batches(),
    st.sampled_from(["padded", "ragged"]),
    st.sampled_from(["verl", "strict"]),
    st.sampled_from(["token", "sequence"]),
    st.sampled_from([(None, 2.0), (None, 0.8), (0.5, 5.0), (0.99, 1.01), (1.2, 3.0)]),
)
def test_weights(
    name: str, batch: Batch, layout: str, compat: Any, level: Any, bounds: tuple[float | None, float]
) -> None:
    lower, upper = bounds
    options = Options(
        compat=compat,
        metrics=("is",),
        rollout_is=level,
        rollout_is_threshold=upper if lower is None else f"{lower}_{upper}",
        rollout_is_batch_normalize=True,
        return_weights=True,
    )
    with engine(name), np.errstate(all="ignore"):
        measured = answer(batch, layout, options)
        applied, right = reference.weights(batch.rows, level, lower, upper, strict=compat == "strict")
        if measured is None:
            assert not any(row.any() for row in applied)
            return
        if not right["mean"] > 1e-3:  # lost in float32, and in the source's 1e-8
            right.pop("eff_sample_size")
        same(measured.metrics, right, "rollout_corr/rollout_is_")
        factor = measured.metrics["rollout_corr/rollout_is_batch_norm_factor"]
        expected = by_token(batch, layout, [row / factor for row in applied])
        # Weights are kept as 1 + (w - 1): of a small one float32 leaves 1e-7, whatever it is divided by then.
        close = 2e-5 + 1e-7 / max(factor, 1e-7)
        np.testing.assert_allclose(measured.outputs["rollout_is_weights"].numpy(), expected, rtol=close, atol=1e-6)


@pytest.mark.parametrize("name", ENGINES)
@settings(max_examples=40, deadline=None)
@given(
    batches(),
    st.sampled_from(["padded", "ragged"]),
    st.sampled_from(["verl", "strict"]),
    st.sets(st.integers(0, 10), min_size=1),
)
def test_rejection(name: str, batch: Batch, layout: str, compat: Any, chosen: set[int]) -> None:
    names = [OPTIONS.split(",")[i] for i in sorted(chosen)]
    thresholds = [THRESHOLDS.split(",")[i] for i in sorted(chosen)]
    options = Options(
        compat=compat,
        metrics=("rs",),
        rollout_rs=",".join(names),
        rollout_rs_threshold=",".join(thresholds),
        return_mask=True,
    )
    bounds: list[tuple[str, float | None, float]] = []
    for option, text in zip(names, thresholds, strict=True):
        if option.endswith("k1"):
            low, high = (math.log(float(part)) for part in text.split("_"))
            bounds.append((option, low, high) if compat == "verl" else (option, -high, -low))
        else:
            bounds.append((option, None, float(text)))
    with engine(name), np.errstate(all="ignore"):
        measured = answer(batch, layout, options)
        if measured is None:
            return
        kept, right = reference.rejection(batch.rows, bounds, strict=compat == "strict")
        same(measured.metrics, right, "rollout_corr/rollout_rs_")
        assert np.array_equal(measured.outputs["response_mask"].numpy(), by_token(batch, layout, kept))


@settings(max_examples=40, deadline=None)
@given(batches(), st.sampled_from(["padded", "ragged"]))
def test_probability_differences(batch: Batch, layout: str) -> None:
    batch = Batch(np.minimum(batch.old, 0), np.minimum(batch.rollout, 0), batch.mask)
    with np.errstate(all="ignore"):
        said = measure(batch.tensors(layout), Options(metrics=("debug",))).metrics
        train, rollout = (np.exp(np.concatenate(rows)) for rows in (batch.rows.old, batch.rows.rollout))
        gap = np.abs(train - rollout)
        many = len(gap) > 1
        right = {
            "valid": float(len(gap) > 0),
            "max": reference.most(gap),
            "mean": reference.mean(gap),
            "std": float(np.std(gap, ddof=1)) if many else math.nan,
        }
        same(said, right, "training/rollout_probs_diff_")
        if many and np.std(train) > 1e-3 and np.std(rollout) > 1e-3:
            correlation = float(np.corrcoef(train, rollout)[0, 1])
            same(said, {"corr": correlation}, "training/rollout_actor_probs_pearson_")


@pytest.mark.parametrize("name", ENGINES)
def test_small_gaps_are_measured_to_four_digits(name: str) -> None:
    """Where float32's exp(d) - 1 - d is rounding error, ours isn't."""
    rng = np.random.default_rng(7)
    rollout = np.zeros((40, 2000), np.float32)
    old = rng.normal(0, 1e-4, rollout.shape).astype(np.float32)
    batch = Batch(old, rollout, np.ones(old.shape, bool))
    with engine(name):
        said = measure(batch.tensors("padded"), Options(metrics=("off_policy",))).metrics
    right = reference.off_policy(batch.rows, strict=False)
    for key in ("kl", "k3_kl", "chi2_token", "log_ppl_diff"):
        assert said[f"rollout_corr/{key}"] == pytest.approx(right[key], rel=1e-4), key


@pytest.mark.parametrize("name", ENGINES)
def test_equal_weights_have_no_deviation(name: str) -> None:
    rollout = np.full((3, 50), -1.0, np.float32)
    batch = Batch(rollout + np.float32(3.7), rollout, np.ones(rollout.shape, bool))
    options = Options(
        metrics=("is", "rs"),
        rollout_is="token",
        rollout_is_threshold=1.7,
        rollout_rs="token_k2",
        rollout_rs_threshold=0.3,
    )
    with engine(name):
        said = measure(batch.tensors("padded"), options).metrics
    assert said["rollout_corr/rollout_is_std"] == pytest.approx(0, abs=1e-7)
    assert said["rollout_corr/rollout_rs_token_k2_std"] == pytest.approx(0, abs=1e-7)


def test_long_rows_and_rows_of_many_lengths() -> None:
    rng = np.random.default_rng(3)
    old = -rng.exponential(1.0, (30, 40_000)).astype(np.float32)
    d = rng.normal(0, 0.3, old.shape).astype(np.float32)
    lengths = np.concatenate([[40_000, 39_990, 0, 1], rng.integers(0, 3000, 26)])
    batch = Batch(old, old - d, np.arange(40_000) < lengths[:, None])
    right = reference.off_policy(batch.rows, strict=True)
    right.pop("chi2_seq")  # e^40 against what is left of it: the sums' last digits decide
    for name in ENGINES:
        for layout in ("padded", "ragged"):
            with engine(name):
                same(
                    measure(batch.tensors(layout), Options(compat="strict", metrics=("off_policy",))).metrics,
                    right,
                    "rollout_corr/",
                )


def test_strict_says_what_it_left_out_and_what_saturated() -> None:
    mask = np.ones((3, 4), bool)
    mask[1] = False
    old = np.zeros((3, 4), np.float32)
    rollout = np.zeros((3, 4), np.float32)
    rollout[0, 0], rollout[2, 1], old[2, 2] = -30.0, np.nan, -np.inf
    batch = Batch(old, rollout, mask)
    for name in ENGINES:
        with engine(name):
            measured = measure(batch.tensors("padded"), Options(compat="strict", metrics=("off_policy",)))
        said = {key.removeprefix("rollout_corr/"): value for key, value in measured.metrics.items()}
        assert said["saturated_tokens"] == 2
        assert said["non_finite_rollout_log_probs"] == 1
        assert said["non_finite_old_log_probs"] == 1
        assert said["empty_rows"] == 1
        kinds = [finding.kind for finding in measured.findings]
        assert kinds == ["non_finite", "non_finite", "saturated", "empty_rows"]


@pytest.mark.parametrize("rejections", [None, (OPTIONS, THRESHOLDS)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_block_is_one_graph(rejections: tuple[str, str] | None, *, masked: bool) -> None:
    """What CUDA gets fused: no operation reads a number back, whatever is asked for."""
    asked: dict[str, Any] = {"rollout_is": "token", "rollout_is_threshold": "0.5_2"}
    if rejections is not None:
        asked |= {"rollout_rs": rejections[0], "rollout_rs_threshold": rejections[1]}
    plan = core._plan(Options(**asked, return_weights=True, return_mask=True))
    graph = torch.compile(see_block, fullgraph=True, backend="aot_eager")
    for count, width in ((3, 17), (5, 40)):
        lengths = torch.randint(0, width + 1, (count,), generator=torch.Generator().manual_seed(width))
        mask = torch.arange(width) < lengths[:, None]
        old = torch.randn(count, width, generator=torch.Generator().manual_seed(1)).where(mask, 0.0)
        rollout = torch.randn(count, width, generator=torch.Generator().manual_seed(2)).where(mask, 0.0)
        arguments = (old, rollout, lengths, mask if masked else None)
        plain, fused = (see(*arguments, full=False, plan=plan, look=False) for see in (see_block, graph))
        for name, column in plain.columns.items():
            torch.testing.assert_close(fused.columns[name], column, equal_nan=True)
        torch.testing.assert_close((fused.weights, fused.kept), (plain.weights, plain.kept))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_says_the_same() -> None:
    rng = np.random.default_rng(11)
    old = -rng.exponential(1.0, (64, 700)).astype(np.float32)
    mask = np.arange(700) < rng.integers(0, 700, 64)[:, None]
    batch = Batch(old, old - rng.normal(0, 0.3, old.shape).astype(np.float32), mask)
    options = Options(
        metrics=("off_policy", "is", "rs", "debug"),
        rollout_is="token",
        rollout_rs=OPTIONS,
        rollout_rs_threshold=THRESHOLDS,
        return_weights=True,
        return_mask=True,
    )
    for layout in ("padded", "ragged"):
        tensors = batch.tensors(layout)
        there = measure({name: tensor.cuda() for name, tensor in tensors.items()}, options)
        here = measure(tensors, options)
        same(there.metrics, here.metrics, "")
        for name, tensor in here.outputs.items():
            torch.testing.assert_close(there.outputs[name].cpu(), tensor)


def test_rows_takes_a_batch_without_rows() -> None:
    empty = torch.zeros(0, 5)
    for rows in (Rows.padded(empty.bool()), Rows.ragged(torch.zeros(0, dtype=torch.int64))):
        assert rows.count == 0
        assert list(rows.blocks(torch.zeros(rows.shape))) == []
