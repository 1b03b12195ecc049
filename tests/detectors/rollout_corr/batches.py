"""Random batches for the kin of the correction metrics, and the way of one family over them in either layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tocsin_detectors.rollout_corr.family import Family, Finding
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows

Layout = Literal["padded", "ragged"]
Floats = NDArray[np.float64]
TOKEN_LEVEL = frozenset(
    {"log_probs", "old_log_probs", "rollout_log_probs", "ref_log_prob", "entropys", "advantages", "returns", "values"}
    | {"token_level_scores", "token_level_rewards"}
)


@dataclass(frozen=True)
class Batch:
    """Padded tensors as numpy arrays: the token-level ones hold NaN wherever the mask is false."""

    mask: NDArray[np.bool_]
    arrays: Mapping[str, NDArray[Any]]

    def tokens(self, name: str) -> Floats:
        """The valid tokens, float64."""
        return self.arrays[name][self.mask].astype(np.float64)

    def by_row(self, name: str) -> list[Floats]:
        """The valid tokens of each row, float64."""
        return [row[chosen].astype(np.float64) for row, chosen in zip(self.arrays[name], self.mask, strict=True)]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.mask.sum(1)


@dataclass(frozen=True)
class Said:
    metrics: dict[str, float]
    findings: list[Finding]
    outputs: dict[str, Tensor]


def masks(most_rows: int = 9, most_tokens: int = 12) -> st.SearchStrategy[NDArray[np.bool_]]:
    """Masks of any shape: prefixes, holes, empty rows, nothing at all."""

    def make(rows: int, width: int, seed: int, kind: str) -> NDArray[np.bool_]:
        rng = np.random.default_rng(seed)
        if kind == "holes":
            return rng.random((rows, width)) < rng.random()
        lengths = rng.integers(0, width + 1, rows) if kind == "prefixes" else np.full(rows, width)
        return np.arange(width) < lengths[:, None]

    kinds = st.sampled_from(["prefixes", "prefixes", "holes", "full"])
    return st.builds(make, st.integers(1, most_rows), st.integers(1, most_tokens), st.integers(0, 2**32), kinds)


def filled(mask: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[Any]:
    """The values with NaN where no token is valid: nothing may look there."""
    return np.where(mask, values, np.nan).astype(values.dtype)


def run(family: Family, batch: Batch, options: Options | None = None, layout: Layout = "padded") -> Said:
    """What the family says of the batch. Ragged batches lose their holes: the flat tensors are the valid tokens."""
    options = options or Options()
    mask = torch.from_numpy(batch.mask)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.arrays.items()}
    if layout == "padded":
        rows = Rows.padded(mask)
    else:
        rows = Rows.ragged(torch.from_numpy(batch.lengths.astype(np.int32)))
        tensors = {name: tensor[mask] if name in TOKEN_LEVEL else tensor for name, tensor in tensors.items()}
    accumulated = family.accumulate(tensors, rows, options)
    finished = family.finish(accumulated.totals.to_host(), accumulated.outputs, options)
    return Said(finished.metrics, [*accumulated.findings, *finished.findings], accumulated.outputs)


def by_group(ids: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each group's id and rows, by ascending id."""
    for number in sorted(set(ids.tolist())):
        yield number, np.flatnonzero(ids == number)
