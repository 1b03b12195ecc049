"""What trainers print: found between everything else, in colours, behind prefixes, torn and repeated."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin.readers import ReadError, read


@pytest.fixture
def printed(tmp_path):
    def write(*lines):
        path = tmp_path / "console.log"
        path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n")
        reading = read(path)
        return list(reading), reading

    return write


NOISE = [
    "2026-11-29 10:00:00,123 INFO worker.py:1918 -- Started a local Ray instance.",
    "{'actor_rollout_ref': {'actor': {'grad_clip': 1.0,",
    "[rank0]:[W1129 10:00:01.5 ProcessGroupNCCL.cpp:1250] Warning: step: 1 - not: really",
    "Initial validation metrics: {'val-core/openai/gsm8k/reward/mean@1': np.float64(0.3)}",
    "Training Progress:   0%|          | 0/105 [00:00<?, ?it/s]",
    "",
]


def test_verl_is_found_between_the_rest(printed):
    vectors, reading = printed(
        *NOISE,
        "\x1b[36m(TaskRunner pid=170)\x1b[0m step:0 - val-core/openai/gsm8k/acc/mean@1:np.float64(0.25)",
        *NOISE,
        "(TaskRunnerV1 pid=17, ip=10.0.0.7) step:1 - actor/kl_loss:0.0012 - actor/grad_norm:nan - perf/mfu:np.int64(3)"
        " - a:b:-1e-05 - done:True - x:inf - note:hello - y:np.float32(0.1) [repeated 2x across cluster]",
        "step:2",
        "Training Progress:   1%|\rTraining Progress:   2%|step\x1b[A",
        b"\xff\xfe\x00 garbage step:3 - kl:0.5 - broken:",
        "step:99999999999999999 - kl:1",
        "\x1b[36m(TaskRunner pid=17)\x1b[0m \x1b[1mstep:4 - kl:0.5\x1b[0m",
    )
    assert [vector.step for vector in vectors] == [0, 1, 3, 4]
    assert vectors[0].metrics == {"val-core/openai/gsm8k/acc/mean@1": 0.25}
    values = vectors[1].metrics
    assert math.isnan(values.pop("actor/grad_norm"))
    names = {"actor/kl_loss": 0.0012, "perf/mfu": 3.0, "a:b": -1e-05, "done": 1.0, "x": math.inf}
    assert values == {**names, "note:hello - y": 0.1}
    assert vectors[2].metrics == {"kl": 0.5}
    assert reading.framework == "verl"
    assert vectors[1].line == 14


def test_roll_prints_json(printed):
    told = json.dumps({"step": 4, "metrics": {"actor/kl_loss": 0.5, "critic/score/mean@mean": math.nan}})
    vectors, reading = printed(*NOISE, f"[INFO] tracking.py:31 metrics_tag: {told}", 'metrics_tag: {"step": 5, "metr')
    assert (vectors[0].step, vectors[0].metrics["actor/kl_loss"], len(vectors)) == (4, 0.5, 1)
    assert reading.framework == "roll"


def test_openrlhf_prints_dicts(printed):
    vectors, reading = printed(
        *NOISE,
        "\x1b[36m(PPOTrainer pid=9)\x1b[0m INFO 11-29 10:00:00 ppo_trainer.py:280] ✨ Global step 7: "
        "{'policy_loss': -0.01, 'kl': nan, 'reward': np.float64(0.5), 'generated_samples': ['a', 1.0]}",
        "Eval at step 7: {'eval_math_pass1': 0.25}",
    )
    assert [v.step for v in vectors] == [7, 7]
    assert vectors[0].metrics.keys() == {"policy_loss", "kl", "reward"}
    assert vectors[1].metrics == {"eval_math_pass1": 0.25}
    assert (reading.framework, reading.skipped) == ("openrlhf", 1)


def test_hugging_face_trainers_print_dicts_without_a_step(printed):
    vectors, reading = printed(
        "  0%|          | 0/100",
        "{'loss': 0.5, 'grad_norm': nan, 'learning_rate': -1e-06, 'epoch': 0.1}",
        "\r 10%|#  | 1/100\r{'loss': '0.25', 'reward': inf, 'epoch': '0.2'}",
        "{'train_runtime': 3.5, 'epoch': 1.0}",
        "{'model': 'x', 'epoch': 3}",
    )
    assert [(v.step, v.metrics.get("loss")) for v in vectors] == [(0, 0.5), (1, 0.25)]
    assert vectors[1].metrics["reward"] == math.inf
    assert reading.framework is None


@pytest.mark.parametrize(
    "hostile",
    ["step:1 - " + "a - " * 20_000, "Global step 1: " + "{'a':" * 5000, "{'" * 50_000, "step:1 - a" + " " * 300_000],
)
def test_hostile_lines_are_only_text(printed, hostile):
    vectors, _ = printed(hostile, "step:1 - kl:1", hostile)
    assert [v.step for v in vectors] == [1]


def test_a_log_that_tells_nothing_is_said(printed):
    with pytest.raises(ReadError, match="has no step with a number in it"):
        printed(*NOISE)


PRINT = """
import importlib.util, sys
from pathlib import Path
import numpy as np
file = Path(importlib.util.find_spec("verl").origin).parent / "utils" / "logger" / "aggregate_logger.py"
spec = importlib.util.spec_from_file_location("aggregate_logger", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
logger = module.LocalLogger()
logger.log({"val-core/openai/gsm8k/acc/mean@1": np.float64(0.5)}, step=0)
told = {"actor/kl_loss": 1.5e-7, "actor/grad_norm": float("nan"), "num_turns/max": np.int64(2), "text": "x"}
logger.log(told, step=1)
"""


def test_what_verl_itself_prints_is_read(tmp_path):
    if importlib.util.find_spec("verl") is None:
        pytest.skip("verl is not installed here: run scripts/e2e")
    log = tmp_path / "console.log"
    with log.open("wb") as file:
        subprocess.run([sys.executable, "-c", PRINT], stdout=file, check=True, timeout=100)
    first, second = read(log)
    assert (first.step, first.metrics) == (0, {"val-core/openai/gsm8k/acc/mean@1": 0.5})
    assert math.isnan(second.metrics.pop("actor/grad_norm"))
    assert (second.step, second.metrics) == (1, {"actor/kl_loss": 1.5e-7, "num_turns/max": 2.0})


def test_the_offline_check_knows_the_file_by_its_content(tmp_path):
    path = tmp_path / "run.csv"  # whatever its name
    path.write_text("step:1 - kl:0.5\nstep:2 - kl:0.25\n")
    assert [v.metrics["kl"] for v in read(Path(path))] == [0.5, 0.25]
