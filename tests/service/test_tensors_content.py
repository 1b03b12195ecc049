"""Whatever tensors come, well or badly formed: they are measured, or refused in words. Nothing else ever happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.tensor_bodies import pack

from tocsin_service.tensors.errors import TensorsRefused
from tocsin_service.tensors.intake import Intake
from tocsin_service.tensors.names import NAMES

pytest.importorskip("torch")

from tocsin_detectors.rollout_corr.options import FAMILIES, Options
from tocsin_service.tensors.compute import Computed, compute

KINDS = ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "?")
PER_TOKEN = NAMES[:10]
PER_ROW = ("scores", "rewards", "prompt_lengths", "group", "prompt", "domain", "gradient_step")
ODD = (0.0, -1.0, 1.0, -0.5, 1e4, -1e4, np.nan, np.inf, -np.inf)
OPTIONS = (
    Options(),
    Options(compat="strict", rollout_is="token", rollout_rs="token_k1,seq_max_k3", rollout_rs_threshold="2"),
    Options(rollout_is="sequence", rollout_is_threshold="0.5_2", rollout_is_batch_normalize=True),
    Options(compat="strict", domains=("a", "b"), limits=(2, 3)),
    *(Options(metrics=(family,)) for family in FAMILIES),
)


def measured(tensors: dict[str, np.ndarray], options: Options) -> Computed | None:
    body = pack(tensors)
    intake = Intake(len(body), NAMES)
    refused = None
    try:
        intake.feed(body)
        return compute(intake.finish(), options, "cpu", 1)
    except TensorsRefused as error:
        refused = str(error)
    assert 10 < len(refused) < 600
    return None


@st.composite
def arrays(draw: Any, shapes: Any, kinds: Any = KINDS) -> np.ndarray:
    shape, kind = draw(shapes), draw(st.sampled_from(kinds))
    size = int(np.prod(shape))
    values = np.array(draw(st.lists(st.sampled_from(ODD), min_size=size, max_size=size)), np.float64)
    with np.errstate(all="ignore"):
        return (values if kind[0] == "f" else np.nan_to_num(values)).astype(kind).reshape(shape)


SMALL = st.one_of(st.just(()), st.tuples(st.integers(0, 4)), st.tuples(st.integers(0, 3), st.integers(0, 3)))


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from(NAMES), arrays(SMALL), min_size=1, max_size=5), st.sampled_from(OPTIONS))
def test_any_tensors(tensors: dict[str, np.ndarray], options: Options) -> None:
    measured(tensors, options)


@st.composite
def batches(draw: Any) -> dict[str, np.ndarray]:
    """Well formed, with the oddest values."""
    lengths = np.array(draw(st.lists(st.integers(0, 4), max_size=4)), np.int64)
    per_row = {name: draw(arrays(st.just(lengths.shape))) for name in draw(st.sets(st.sampled_from(PER_ROW)))}
    padded = draw(st.booleans())
    shape = (len(lengths), int(max(lengths, default=0))) if padded else (int(lengths.sum()),)
    floats = arrays(st.just(shape), ("f8", "f4", "f2"))
    per_token = {name: draw(floats) for name in draw(st.sets(st.sampled_from(PER_TOKEN), min_size=2))}
    mask = np.arange(shape[-1]) < lengths[:, None]
    layout = {"response_mask": mask} if padded else {"response_lengths": lengths}
    return {**layout, **per_row, **per_token}


@settings(deadline=None, max_examples=150)
@given(batches(), st.sampled_from(OPTIONS))
def test_any_values_in_a_good_form(tensors: dict[str, np.ndarray], options: Options) -> None:
    found = measured(tensors, options)
    if found is not None:
        assert all(isinstance(value, (float, int)) for value in found.metrics.values())
