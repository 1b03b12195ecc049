"""TRL's own trainer, on a CPU: broken in the middle it stops with a checkpoint, its healthy twin runs to the end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.conftest import Heard, needs, run_program

PROGRAM = str(Path(__file__).with_name("toy_grpo.py"))
WITHIN = 10
"""Steps from the first broken one until the training has ended."""

# What `make e2e` adds: more ways to break, and a long healthy run.
FULL = os.environ.get("TOCSIN_E2E") == "full"
full_only = pytest.mark.skipif(not FULL, reason="takes minutes: scripts/e2e --full")


def train(heard: Heard, folder: Path, **options: object) -> dict[str, Any]:
    needs("trl", "datasets", "accelerate")
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    output = folder / "output"
    done = run_program(PROGRAM, "--url", heard.url, "--run", "run", "--output", str(output), *words, folder=folder)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["said"] = done.stderr
    return found


def check_stopped(heard: Heard, found: dict[str, Any], at: int, steps: int) -> None:
    assert at <= found["step"] <= at + WITHIN < steps
    assert found["checkpoints"][-1] == f"checkpoint-{found['step']}"
    assert "the training is asked to stop" in found["said"]
    critical = [one for one in heard.incidents("run") if one["severity"] == "critical"]
    assert critical
    assert at - 1 <= critical[-1]["last_good_step"] + 1 <= found["step"]
    assert heard.config("run")["finished"] is True


@pytest.mark.timeout(300)
def test_a_broken_run_stops_with_a_checkpoint(heard: Heard, tmp_path: Path) -> None:
    found = train(heard, tmp_path, sabotage="nan_weights", at=20, steps=60)
    check_stopped(heard, found, at=20, steps=60)
    assert found["stats"]["delivered"] == found["stats"]["logged"] == found["step"]
    config = heard.config("run")
    assert (config["framework"], config["algorithm"], config["group_size"]) == ("trl", "grpo", 8)
    assert (config["temperature"], config["labels"]) == (1.0, {"beta": "0.02"})


@pytest.mark.timeout(300)
def test_a_healthy_run_ends_by_itself(heard: Heard, tmp_path: Path) -> None:
    found = train(heard, tmp_path, steps=150 if FULL else 30)
    assert found["step"] == (150 if FULL else 30)
    assert found["checkpoints"] == []
    assert not [one for one in heard.incidents("run") if one["severity"] != "info"]  # nobody is told anything
    assert found["rewards"][-1] > found["rewards"][0]


@full_only
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sabotage", ["lr_x100", "reward_sign_flipped", "nan_weights"])
def test_any_breakage_after_a_long_healthy_time(heard: Heard, tmp_path: Path, sabotage: str) -> None:
    found = train(heard, tmp_path, sabotage=sabotage, at=81, steps=120)
    check_stopped(heard, found, at=81, steps=120)
