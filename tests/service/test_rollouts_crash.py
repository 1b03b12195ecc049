"""A service that is killed while rollouts come in: no broken file, and no row lost that was acknowledged."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import pyarrow.parquet as pq
from tests.service.rollout_rows import get, post, rows

ROWS = 20
SENDERS = 2


def test_killed_while_writing(start_process: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "rollouts"
    config = tmp_path / "tocsin.toml"
    config.write_text(f'db = "{tmp_path}/tocsin.db"\nrollout_dir = "{root}"\n')
    acknowledged: dict[str, set[int]] = {f"run {number}": set() for number in range(SENDERS)}
    for life in range(3):
        process = start_process("serve", "--config", str(config))
        api = process.api
        enough = threading.Semaphore(0)
        senders = [
            threading.Thread(target=_send, args=(api, run, life, steps, enough)) for run, steps in acknowledged.items()
        ]
        for sender in senders:
            sender.start()
        for _ in range(SENDERS * 12):  # more than are merged into one
            assert enough.acquire(timeout=60)
        process.kill()
        for sender in senders:
            sender.join(60)
    for path in root.glob("*/*.parquet"):  # names that begin with a dot are no files of the log
        pq.read_table(path)
    api = start_process("serve", "--config", str(config)).api
    for run, steps in acknowledged.items():
        found = {one["step"]: one["rows"] for one in get(api, "/steps", run=run, limit=10_000).json["steps"]}
        assert {step: found.get(step) for step in steps} == dict.fromkeys(steps, ROWS)
        assert set(found.values()) == {ROWS}  # nothing is there in part or twice
        assert api.get(f"/v1/runs/{run.replace(' ', '%20')}").json["vectors"] >= len(steps)
    one = acknowledged["run 0"]
    again = post(api, rows(ROWS, response=f"of {max(one)}"), run="run 0", step=max(one), time=1.7e9 + max(one))
    assert (again.json["accepted"], again.json["repeated"]) == (0, 1)


def _send(api: Any, run: str, life: int, steps: set[int], enough: threading.Semaphore) -> None:
    for step in range(life * 10_000, (life + 1) * 10_000):
        body = rows(ROWS, response=f"of {step}")
        try:
            answer = post(api, body, run=run, step=step, time=1.7e9 + step)
        except (OSError, http.client.HTTPException, ValueError):  # no answer, or half of one
            return
        if answer.status == 202:
            steps.add(step)
            enough.release()
