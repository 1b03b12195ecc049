"""wandb, trackio, SwanLab and MLflow themselves, offline: what is logged with them is heard, and they don't notice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integrations.conftest import Heard, needs, run_program

WANDB = """
import wandb
{before}
tracked = wandb.init(project="p", mode="offline")
{after}
wandb.log({{"kl": 0.5, "note": "a text", "table": [1, 2], "bad": float("nan")}}, step=1)
tracked.log({{"kl": 0.25}}, step=2)
wandb.log({{"train/kl": 0.125, "train/global_step": 7}})
print("summary", tracked.summary["kl"])
wandb.finish()
"""
TRACKIO = """
import trackio
{before}
trackio.init(project="p")
{after}
trackio.log({{"kl": 0.5, "note": "a text", "bad": float("nan")}}, step=1)
trackio.log({{"kl": 0.25}}, step=2)
trackio.log({{"train/kl": 0.125, "train/global_step": 7}})
trackio.finish()
"""
SWANLAB = """
import swanlab
{before}
tracked = swanlab.init(project="p", mode="disabled")
{after}
swanlab.log({{"kl": 0.5, "bad": float("nan")}}, step=1)
tracked.log({{"kl": 0.25}}, step=2)
swanlab.log({{"train/kl": 0.125, "train/global_step": 7}})
swanlab.finish()
"""
MLFLOW = """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db" if {sqlite} else "file:./mlruns")
{before}
mlflow.start_run()
{after}
mlflow.log_metrics({{"kl": 0.5, "bad": float("nan")}}, step=1)
mlflow.log_metric("kl", 0.25, step=2)
mlflow.log_metrics({{"train/kl": 0.125, "train/global_step": 7}}, step=7)
mlflow.end_run()
"""
WATCH = "import tocsin.integrations.{name}; tocsin.integrations.{name}.watch(); tocsin.integrations.{name}.watch()"


@pytest.mark.parametrize("late", [False, True], ids=["before init", "after init"])
@pytest.mark.parametrize(
    ("name", "program"), [("wandb", WANDB), ("trackio", TRACKIO), ("swanlab", SWANLAB), ("mlflow", MLFLOW)]
)
def test_what_is_logged_is_heard(heard: Heard, tmp_path: Path, name: str, program: str, late: bool) -> None:
    needs(name)
    watch = WATCH.format(name=name)
    code = program.format(before="" if late else watch, after=watch if late else "", sqlite=False)
    done = run_program(
        "-c",
        f"{code}\nimport tocsin\nassert tocsin.finish(60)",
        folder=tmp_path,
        TOCSIN_URL=heard.url,
        TOCSIN_RUN="run",
        HF_HUB_OFFLINE="1",
        TRACKIO_DIR=str(tmp_path / "trackio"),
        MLFLOW_ALLOW_FILE_STORE="true",
    )
    heard.settle()
    kl = heard.series("run", "kl")
    assert [kl[step] for step in (1, 2)] == [0.5, 0.25]
    assert heard.series("run", "train/kl")[7] == 0.125
    assert heard.series("run", "bad") == {1: "NaN"}
    if name == "wandb":
        assert "summary 0.25" in done.stdout
