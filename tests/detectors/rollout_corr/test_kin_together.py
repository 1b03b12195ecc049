"""The kin through the one call: what the tensors allow, both layouts alike, and batches spread over processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.detectors.rollout_corr.batches import TOKEN_LEVEL
from torch import Tensor

from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.measure import measure
from tocsin_detectors.rollout_corr.options import Options

ROWS, WIDTH = 24, 10
KIN = ("kl", "ratio", "entropy", "extremes", "advantages", "data", "accuracy")
OPTIONS = Options(metrics=KIN, domains=("math", "code"), limits=(4, 8), response_limit=WIDTH, prompt_limit=20)


def everything(seed: int = 5) -> dict[str, Tensor]:
    """A batch with every tensor, three of whose six groups are degenerate."""
    rng = np.random.default_rng(seed)
    mask = np.arange(WIDTH) < rng.integers(0, WIDTH + 1, ROWS)[:, None]
    mask[::4, 0] = True  # every group has an answer
    group = np.tile(np.arange(6), 4)  # neighbours are of different groups
    rewards = np.where(group % 2 == 0, 1 / 3, rng.random(ROWS)).astype(np.float32)
    names = ("old_log_probs", "rollout_log_probs", "log_probs", "ref_log_prob")
    arrays = {name: -rng.exponential(1, mask.shape) for name in names}
    arrays |= {"entropys": rng.exponential(1, mask.shape), "advantages": rng.normal(0, 1, mask.shape)}
    arrays |= {"returns": rng.normal(0, 1, mask.shape), "scores": rng.integers(0, 2, ROWS).astype(float)}
    arrays |= {"rewards": rewards, "group": group, "domain": group % 2, "gradient_step": np.arange(ROWS) // 8}
    arrays |= {"prompt_lengths": rng.integers(1, 21, ROWS), "response_mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def ragged(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    mask = tensors["response_mask"]
    flat = {name: tensor[mask] if name in TOKEN_LEVEL else tensor for name, tensor in tensors.items()}
    del flat["response_mask"]
    return {**flat, "response_lengths": mask.sum(1)}


def test_every_metric_is_one_that_the_catalogue_knows() -> None:
    measured = measure(everything(), OPTIONS)
    assert len(measured.metrics) > 60
    for name, value in measured.metrics.items():
        metric = lookup(name)
        assert metric is not None, name
        assert metric.allows(value), name


def test_both_layouts_say_the_same() -> None:
    padded, flat = measure(everything(), OPTIONS), measure(ragged(everything()), OPTIONS)
    assert padded.metrics == pytest.approx(flat.metrics, rel=1e-12, abs=1e-15)
    assert [finding.kind for finding in padded.findings] == [finding.kind for finding in flat.findings]


@pytest.mark.parametrize("family", KIN)
def test_a_family_is_computed_alone(family: str) -> None:
    every = measure(everything(), OPTIONS).metrics
    options = Options(metrics=(family,), domains=("math", "code"), limits=(4, 8), response_limit=WIDTH, prompt_limit=20)
    alone = measure(everything(), options).metrics
    assert alone
    assert alone == {name: every[name] for name in alone}


@pytest.mark.parametrize("family", [name for name in KIN if name != "data"])
def test_a_family_that_is_asked_for_says_what_it_needs(family: str) -> None:
    with pytest.raises(TensorError, match=f"metrics asks for {family}, which needs "):
        measure({"response_mask": torch.ones(2, 3, dtype=torch.bool)}, Options(metrics=(family,)))


def test_lengths_are_told_of_any_batch() -> None:
    metrics = measure({"response_lengths": torch.tensor([3, 9_000, 40_000])}).metrics
    assert metrics["response_length/max"] == 40_000
    assert metrics["response_length/clip_ratio/8192"] == pytest.approx(2 / 3)
    assert metrics["response_length/clip_ratio/32768"] == pytest.approx(1 / 3)


PROCESS = """
import json, sys
import torch
from torch import distributed
from tests.detectors.rollout_corr.test_kin_together import OPTIONS, everything
from tocsin_detectors.rollout_corr.measure import measure

rank, address = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
part = slice(0, 9) if rank == 0 else slice(9, None)
measured = measure({name: tensor[part] for name, tensor in everything().items()}, OPTIONS, reduce=True)
found = [[one.kind, one.text, dict(one.data)] for one in measured.findings]
print(json.dumps([measured.metrics, found]))
distributed.destroy_process_group()
"""


def test_groups_spread_over_processes_are_whole_again(tmp_path: Path) -> None:
    """Each process has some rollouts of every group; both say what one process with all of them says."""
    address = f"file://{tmp_path / 'meeting'}"
    root = Path(__file__).resolve().parents[3]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(rank), address], stdout=subprocess.PIPE, cwd=root, env=env)
        for rank in range(2)
    ]
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    whole = measure(everything(), OPTIONS)
    assert whole.metrics["critic/advantages/degenerate_groups"] == 3
    for metrics, findings in answers:
        assert metrics == pytest.approx(whole.metrics, rel=1e-12, abs=1e-15)
        assert findings == [[one.kind, one.text, dict(one.data)] for one in whole.findings]
