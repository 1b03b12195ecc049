"""Layouts: blocks show every valid token once and 0 elsewhere, and what doesn't fit is refused with a text."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tocsin_detectors.rollout_corr import Options, Rows, TensorError, Totals, measure, native  # noqa: E402
from tocsin_detectors.rollout_corr import rows as rows_module  # noqa: E402


@st.composite
def masks(draw: st.DrawFn) -> Any:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, width = draw(st.integers(0, 12)), draw(st.sampled_from([1, 7, 64, 300, 2000]))
    mask = np.arange(width) < rng.integers(0, width + 1, count)[:, None]
    if draw(st.booleans()):
        mask &= rng.random(mask.shape) < 0.9
    return torch.from_numpy(mask)


@settings(max_examples=80, deadline=None)
@given(masks(), st.booleans(), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]), st.booleans())
def test_blocks_show_each_valid_token_once(mask: Any, ragged: bool, dtype: Any, small: bool) -> None:
    values = torch.arange(1, mask.numel() + 1, dtype=torch.float64).view(mask.shape).to(dtype)
    rows = Rows.ragged(mask.sum(1)) if ragged else Rows.padded(mask)
    given_values = values[mask] if ragged else torch.where(mask, values, torch.nan)
    assert torch.equal(rows.lengths, mask.sum(1))
    again = rows.output(dtype)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "CPU_BLOCK", 100 if small else 32_767)
        for block in rows.blocks(given_values, given_values.double()):
            first, second = block.values
            assert first.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert second.dtype == torch.float64
            assert torch.equal(first.double(), second)
            assert torch.equal(block.mask.sum(1), block.lengths)
            assert torch.equal(first.ne(0), block.mask)
            assert bool(block.mask.all()) or not block.full
            assert block.full or rows.holes or not bool(block.mask.all())  # with holes it may stay unnoticed
            assert torch.equal(rows.order[block.place], block.rows)
            assert torch.equal(rows.lengths[block.rows], block.lengths)
            assert torch.equal(block.pads, block.width - block.lengths)
            rows.write(again, block, first.to(dtype))
            seen.extend(block.rows.tolist())
    assert sorted(seen) == mask.any(1).nonzero().view(-1).tolist()
    assert torch.equal(again, given_values.nan_to_num(0))


@settings(max_examples=60, deadline=None)
@given(masks())
def test_the_kernel_scans_masks_as_torch_does(mask: Any) -> None:
    if native.kernel() is None:
        pytest.skip("numba is not installed")
    scanned = native.native_scan(mask.contiguous())
    assert scanned is not None
    assert torch.equal(scanned[0], mask.sum(1))
    assert torch.equal(scanned[1], rows_module._extents(mask))


def test_masks_of_numbers() -> None:
    wanted = Rows.padded(torch.tensor([[True, False, True]]))
    for dtype in (torch.uint8, torch.int64, torch.float32, torch.bfloat16):
        rows = Rows.padded(torch.tensor([[1, 0, 1]], dtype=dtype))
        assert torch.equal(rows.lengths, wanted.lengths)
        assert rows.mask is not None
        assert torch.equal(rows.mask, torch.tensor([[True, False, True]]))


X = torch.zeros(2, 3)
MASK = torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ({"old_log_probs": X, "rollout_log_probs": X}, "neither given; send one of response_mask"),
        ({"response_mask": MASK, "response_lengths": torch.tensor([3, 3])}, "response_mask and response_lengths given"),
        ({"response_mask": MASK[0], "old_log_probs": X}, r"response_mask has shape \[3\]; send \[B, T\]"),
        ({"response_mask": MASK.int() * 2, "old_log_probs": X}, "response_mask has values other than 0 and 1"),
        ({"response_mask": MASK, "old_log_probs": X.T}, r"old_log_probs has shape \[3, 2\]; send \[2, 3\]"),
        ({"response_mask": MASK, "old_log_probs": X.int()}, "old_log_probs is torch.int32; send float32"),
        ({"response_mask": MASK, "oldlogprobs": X}, "there is no tensor 'oldlogprobs'; valid: old_log_probs"),
        ({"response_mask": MASK, "old_log_probs": X}, "metrics asks for off_policy, which needs old_log_probs and"),
        ({"response_lengths": torch.tensor([2, 2]), "old_log_probs": X}, r"send \[4\], the sum of response_lengths"),
        ({"response_lengths": torch.tensor([2, -2]), "old_log_probs": X}, "response_lengths has negative values"),
        ({"response_lengths": torch.tensor([0.5]), "old_log_probs": X}, "response_lengths is torch.float32"),
        ({"cu_seqlens": torch.tensor([1, 2]), "old_log_probs": X}, "cu_seqlens"),
        ({"cu_seqlens": torch.tensor([0, 4, 2]), "old_log_probs": X}, "negative"),
        ({"response_mask": MASK, "old_log_probs": X, "scores": X}, r"scores has shape \[2, 3\]; send \[2\]"),
        ({"response_mask": MASK * 0.5, "old_log_probs": X}, "response_mask has values other than 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(tensors: dict[str, Any], text: str) -> None:
    with pytest.raises(TensorError, match=text):
        measure(tensors, Options(metrics=("off_policy",), compat="strict"))


def test_the_three_layouts_say_the_same() -> None:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([3, 0, 5, 1])
    mask = torch.arange(5) < lengths[:, None]
    old, rollout = torch.randn(2, 4, 5, generator=generator).unbind()
    options = Options(metrics=("off_policy", "debug"))
    padded = measure({"old_log_probs": old, "rollout_log_probs": rollout, "response_mask": mask}, options)
    flat = {"old_log_probs": old[mask], "rollout_log_probs": rollout[mask]}
    bounds = torch.tensor([0, 3, 3, 8, 9], dtype=torch.int32)
    for layout in ({"response_lengths": lengths}, {"cu_seqlens": bounds}):
        assert measure(flat | layout, options).metrics == pytest.approx(padded.metrics, rel=1e-6)


def test_totals_refuse_a_name_that_is_taken() -> None:
    totals = Totals()
    totals.add("sum", {"a": torch.tensor(1)})
    totals.add("max", {"b": torch.tensor(2.5)})
    with pytest.raises(ValueError, match="exist already"):
        totals.add("min", {"a": torch.tensor(1)})
    other = Totals()
    other.merge(totals, "of it.")
    assert other.to_host() == {"of it.a": 1.0, "of it.b": 2.5}


def test_without_torch_the_error_says_what_to_install() -> None:
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import tocsin_detectors\n"
        "try:\n"
        "    import tocsin_detectors.rollout_corr\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "pip install 'tocsin[torch]'" in said


def test_the_detectors_themselves_do_not_load_torch() -> None:
    script = "import sys, tocsin_detectors.engine; print('torch' in sys.modules, 'numba' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False"]
