"""The callback for transformers' trainers, event by event; with a stand-in for the base class where it isn't there."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import subprocess
import sys
import types
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integrations import stand_ins
from tests.integrations.conftest import PATIENCE, Heard

import tocsin

MAIN = SimpleNamespace(is_world_process_zero=True, global_step=3)
OTHER = SimpleNamespace(is_world_process_zero=False, global_step=3)


class GRPOConfig(SimpleNamespace):
    pass


@pytest.fixture
def trl(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    if importlib.util.find_spec("transformers") is None:
        stand_ins.module(monkeypatch, "transformers", TrainerCallback=type("TrainerCallback", (), {}))
    monkeypatch.delitem(sys.modules, "tocsin.integrations.trl", raising=False)
    with warnings.catch_warnings(action="ignore"):  # those of the host
        return importlib.import_module("tocsin.integrations.trl")


def control() -> SimpleNamespace:
    return SimpleNamespace(should_training_stop=False, should_save=False)


def test_a_run_from_begin_to_end(heard: Heard, trl: types.ModuleType) -> None:
    run = tocsin.Run("run", url=heard.url)
    callback = trl.TocsinCallback(run)
    args = GRPOConfig(num_generations=8, temperature=0.9, beta=0.0, logging_steps=1)
    callback.on_train_begin(args, MAIN, control())
    callback.on_log(args, MAIN, control(), logs={"kl": None, "grad_norm": math.nan, "loss": 0.0, "eta": "1h"})
    callback.on_log(args, MAIN, control(), logs={"eval_reward": 0.5})
    callback.on_log(args, MAIN, control(), logs={"train_runtime": 12.0, "train_loss": 9.0})
    callback.on_log(args, MAIN, control())
    callback.on_train_end(args, MAIN, control())
    heard.settle()
    assert heard.series("run", "kl") == {3: "NaN"}
    assert heard.series("run", "grad_norm") == {3: "NaN"}
    assert heard.series("run", "eval_reward") == {3: 0.5}
    assert heard.series("run", "train_loss") == {}
    assert heard.config("run") == {
        "framework": "trl",
        "algorithm": "grpo",
        "group_size": 8,
        "temperature": 0.9,
        "labels": {"beta": "0.0"},
        "finished": True,
    }
    assert run.stats()["skipped"] == 0


def test_only_the_main_process_sends(heard: Heard, trl: types.ModuleType) -> None:
    run = tocsin.Run("run", url=heard.url)
    callback = trl.TocsinCallback(run, stop_on="critical")
    callback.on_train_begin(GRPOConfig(), OTHER, control())
    callback.on_log(GRPOConfig(), OTHER, control(), logs={"kl": 1.0})
    callback.on_step_end(GRPOConfig(), OTHER, control())
    callback.on_train_end(GRPOConfig(), OTHER, control())
    assert run.stats()["logged"] == 0
    assert heard.get("/v1/runs") == {"runs": []}


class Deciding:
    """A run that has seen an incident."""

    def __init__(self, *, stop: bool, save: bool) -> None:
        self.stop, self.save = stop, save

    def should_stop(self) -> bool:
        return self.stop

    def should_checkpoint(self) -> bool:
        return self.save


@pytest.mark.parametrize(("stop", "save"), [(True, True), (False, True), (False, False)])
def test_it_passes_on_what_is_asked_for(trl: types.ModuleType, stop: bool, save: bool) -> None:
    callback = trl.TocsinCallback(Deciding(stop=stop, save=save), stop_on="critical", checkpoint_on="warning")
    told = control()
    callback.on_step_end(GRPOConfig(), MAIN, told)
    assert (told.should_training_stop, told.should_save) == (stop, save)


def test_it_takes_nothing_back(trl: types.ModuleType) -> None:
    callback = trl.TocsinCallback(Deciding(stop=False, save=False), stop_on="critical")
    told = SimpleNamespace(should_training_stop=True, should_save=True)
    callback.on_step_end(GRPOConfig(), MAIN, told)
    assert (told.should_training_stop, told.should_save) == (True, True)


def test_it_is_off_by_default(trl: types.ModuleType) -> None:
    told = control()
    trl.TocsinCallback(Deciding(stop=True, save=True)).on_step_end(GRPOConfig(), MAIN, told)
    assert (told.should_training_stop, told.should_save) == (False, False)


def test_errors_stay_inside(
    trl: types.ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    callback = trl.TocsinCallback(object(), stop_on="critical")
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        for _ in range(2):
            callback.on_train_begin(GRPOConfig(), MAIN, control())
            callback.on_log(GRPOConfig(), MAIN, control(), logs={"kl": 1.0})
            callback.on_step_end(GRPOConfig(), MAIN, control())
            callback.on_train_end(GRPOConfig(), MAIN, control())
    assert len(caplog.records) == 4


def test_smoothed_logs_are_advised_against(
    heard: Heard, trl: types.ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    callback = trl.TocsinCallback(tocsin.Run("run", url=heard.url))
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        callback.on_train_begin(GRPOConfig(logging_steps=10), MAIN, control())
    assert "logging_steps=1 is better" in caplog.text


@pytest.mark.parametrize(
    ("name", "level", "algorithm"),
    [
        ("GRPOConfig", "token", "grpo"),
        ("UnslothGRPOConfig", "sequence", "gspo"),
        ("RLOOConfig", None, "rloo"),
        ("PPOConfig", None, "ppo"),
        ("SFTConfig", None, None),
    ],
)
def test_the_algorithm(trl: types.ModuleType, name: str, level: str | None, algorithm: str | None) -> None:
    args = type(name, (), {"importance_sampling_level": level})()
    assert trl.config_of(args).get("algorithm") == algorithm


def test_swift_is_known(trl: types.ModuleType) -> None:
    args = type("GRPOConfig", (), {"__module__": "swift.rlhf_trainers"})()
    assert trl.config_of(args)["framework"] == "ms-swift"


TOGETHER = """
import sys, types
from types import SimpleNamespace
import torch.distributed
rank, file = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
try:
    import transformers
except ImportError:
    sys.modules["transformers"] = types.ModuleType("transformers")
    sys.modules["transformers"].TrainerCallback = object
from tocsin.integrations.trl import TocsinCallback
class Deciding:
    def should_stop(self): return True
    def should_checkpoint(self): return False
callback = TocsinCallback(Deciding() if rank == 0 else None, stop_on="critical")
control = SimpleNamespace(should_training_stop=False, should_save=False)
args = SimpleNamespace(device=torch.device("cpu"))
callback.on_step_end(args, SimpleNamespace(is_world_process_zero=rank == 0), control)
print(control.should_training_stop, control.should_save)
torch.distributed.destroy_process_group()
"""


def test_all_processes_stop_together(tmp_path: Path) -> None:
    words: list[Any] = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, str(rank), str(tmp_path / "meet")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in words:
        said, errors = process.communicate(timeout=PATIENCE)
        assert said.strip() == "True False", errors
