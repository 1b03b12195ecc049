"""Two processes with half of the rows each say what one process says of all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tocsin_detectors.rollout_corr import Options, Rows, measure, offpolicy_metrics  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed")

SHARED = textwrap.dedent(
    """
    import torch
    from tocsin_detectors.rollout_corr import Options

    def batch(bad):
        generator = torch.Generator().manual_seed(5)
        mask = torch.arange(40) < torch.tensor([40, 0, 3, 17, 9, 1, 30, 22])[:, None]
        old, noise = torch.randn(2, 8, 40, generator=generator).unbind()
        rollout = old + 0.4 * noise
        if bad:
            rollout[6, 2] = torch.nan
        return {"old_log_probs": old, "rollout_log_probs": rollout, "response_mask": mask}

    CASES = [(4, False), (4, True), (8, True)]  # with 8 the second process has no rows at all
    OPTIONS = Options(
        metrics=("off_policy", "is", "rs", "debug"),
        rollout_is="token",
        rollout_is_threshold="0.5_2.0",
        rollout_is_batch_normalize=True,
        rollout_rs="token_k1,seq_max_k3",
        rollout_rs_threshold="0.5_2.0,0.5",
        return_weights=True,
    )
    """
)
WORKER = SHARED + textwrap.dedent(
    """
    import json, sys
    from tocsin_detectors.rollout_corr import measure

    rank, meeting = int(sys.argv[1]), sys.argv[2]
    store = torch.distributed.FileStore(meeting, 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    said = []
    for cut, bad in CASES:
        mine = slice(0, cut) if rank == 0 else slice(cut, None)
        part = {name: tensor[mine] for name, tensor in batch(bad).items()}
        measured = measure(part, OPTIONS, reduce=True)
        said.append([measured.metrics, measured.outputs["rollout_is_weights"].tolist()])
    torch.distributed.destroy_process_group()
    print(json.dumps(said))
    """
)


def test_two_processes_say_what_one_says(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER]
    workers = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meeting")], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    said = [json.loads(worker.communicate(timeout=100)[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    space: dict[str, Any] = {}
    exec(SHARED, space)  # noqa: S102 - the very batch of the workers
    for number, (_, bad) in enumerate(space["CASES"]):
        whole = measure(space["batch"](bad), space["OPTIONS"])
        for rank in (0, 1):
            assert said[rank][number][0] == pytest.approx(whole.metrics, rel=1e-9, abs=1e-12, nan_ok=True)
        weights = torch.tensor(said[0][number][1] + said[1][number][1])
        torch.testing.assert_close(weights, whole.outputs["rollout_is_weights"], equal_nan=True)


def test_reduction_of_one_process_is_what_it_says_alone(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "meeting"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        old, rollout = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(2)).unbind()
        rows = Rows.padded(torch.ones(3, 5, dtype=torch.bool))
        assert offpolicy_metrics(old, rollout, rows, reduce=True) == offpolicy_metrics(old, rollout, rows)
        half = measure(
            {"old_log_probs": old.bfloat16(), "rollout_log_probs": rollout, "response_mask": rows.mask},
            Options(metrics=("off_policy",)),
            reduce=True,
        )
        right = offpolicy_metrics(old.bfloat16().float(), rollout, rows)
        assert half.metrics == pytest.approx(right)
    finally:
        torch.distributed.destroy_process_group()
