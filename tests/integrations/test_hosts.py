"""Frameworks that can't be installed for a test: their taps hear stand-ins in the exact form of the sources.

SkyRL's callbacks, tinker-cookbook's logger and AReaL's StatsLogger are heard themselves where their packages are.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integrations import stand_ins
from tests.integrations.conftest import PATIENCE, Heard, needs, run_program
from tests.integrations.stand_ins import Kept

import tocsin
from tocsin import _current
from tocsin.integrations import (
    DidNotEnable,
    areal,
    mlflow,
    nemo_rl,
    roll,
    slime,
    swanlab,
    tinker,
    trackio,
    wandb,
)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def run(heard: Heard) -> Iterator[tocsin.Run]:
    made = tocsin.Run("run", url=heard.url)
    yield made
    made.finish(PATIENCE)


def fresh(monkeypatch: pytest.MonkeyPatch, name: str) -> types.ModuleType:
    """An integration imported anew, for those that look for their host when they are imported."""
    monkeypatch.delitem(sys.modules, f"tocsin.integrations.{name}", raising=False)
    return importlib.import_module(f"tocsin.integrations.{name}")


def sent(heard: Heard, run: tocsin.Run) -> None:
    assert run.finish(PATIENCE)
    heard.settle()


def test_nemo_rl(heard: Heard, run: tocsin.Run, kept: Kept) -> None:
    config = {"grpo": {"num_generations_per_prompt": 16}, "policy": {"generation": {"temperature": 0.6}}}
    logger = stand_ins.nemo_rl_logger(kept)
    nemo_rl.watch(logger, run, config=config)
    nemo_rl.watch(logger, run, config=config)
    logger.log_metrics({"accuracy": 0.25}, 0, prefix="validation")
    logger.log_metrics(
        {"loss": 0.5, "grad_norm": math.nan, "histogram/lengths": [1, 2], "note": "a"}, 1, prefix="train"
    )
    logger.log_metrics({"ray_step": 3, "gpu.0.util": 9.0}, 3, prefix="ray", step_metric="ray_step")
    logger.log_metrics({"total_step_time": 2.0}, 1, prefix="timing/train", step_finished=True)
    logger.log_histogram([1, 2], 1, "h")
    logger.finish()
    sent(heard, run)
    assert heard.series("run", "train/loss") == {1: 0.5}
    assert heard.series("run", "train/grad_norm") == {1: "NaN"}
    assert heard.series("run", "timing/train/total_step_time") == {1: 2.0}
    assert heard.series("run", "validation/accuracy") == {0: 0.25}
    assert heard.series("run", "ray/gpu.0.util") == {}
    assert heard.config("run") == {
        "framework": "nemo-rl",
        "algorithm": "grpo",
        "group_size": 16,
        "temperature": 0.6,
        "finished": True,
    }
    assert len(kept.calls) == 4
    with pytest.raises(DidNotEnable, match=r"list of backends in \.loggers"):
        nemo_rl.watch(object())


def test_roll(heard: Heard, run: tocsin.Run, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = stand_ins.roll(monkeypatch, kept)
    roll.watch(run)
    roll.watch(run)
    config = {
        "adv_estimator": "grpo",
        "actor_infer": {"generating_args": {"num_return_sequences": 8, "temperature": 0.9}},
    }
    tracker = registry["stdout"](config)
    tracker.log(values={"actor/pg_loss@sum": 0.5, "critic/score/mean": 0.25}, step=0)
    tracker.log({"critic/score/mean": None, "mask": {"nested": 1}}, 1)
    tracker.finish()
    sent(heard, run)
    assert heard.series("run", "critic/score/mean") == {0: 0.25, 1: "NaN"}
    assert heard.series("run", "actor/pg_loss") == {0: 0.5}
    assert heard.config("run")["group_size"] == 8
    assert heard.config("run")["finished"] is True
    assert len(kept.calls) == 2
    assert run.stats()["logged"] == 2  # watching twice is watching once
    alone = registry["tocsin"]({}, log_dir="anywhere")
    alone.log({"critic/score/mean": 0.75}, 2)
    alone.finish()
    sent(heard, run)
    assert heard.series("run", "critic/score/mean")[2] == 0.75


def test_areal(heard: Heard, run: tocsin.Run, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    stats_logger = stand_ins.areal(monkeypatch, kept)
    areal.watch(run)
    logger = stats_logger(SimpleNamespace(gconfig=SimpleNamespace(n_samples=4, temperature=1.0), actor=object()), None)
    logger.commit(0, 0, 0, {"ppo_actor/task_reward/avg": 0.5, "ppo_actor/update/grad_norm": math.inf, "n__count": 3})
    logger.commit(0, 1, 1, [{"ppo_actor/task_reward/avg": 0.25}, {"ppo_actor/task_reward/avg": 0.125}])
    logger.commit(0, 2, 2, data={"ppo_actor/task_reward/avg": 0.75})
    logger.close()
    sent(heard, run)
    assert heard.series("run", "ppo_actor/task_reward/avg") == {0: 0.5, 1: 0.25, 2: 0.125, 3: 0.75}
    assert heard.series("run", "ppo_actor/update/grad_norm") == {0: "Infinity"}
    assert heard.series("run", "n__count") == {}
    assert heard.config("run")["group_size"] == 4
    assert len(kept.calls) == 3


@pytest.mark.parametrize("framework", ["slime", "miles"])
def test_slime_and_miles(heard: Heard, kept: Kept, monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    log = getattr(stand_ins, framework)(monkeypatch, kept)
    monkeypatch.setattr(_current, "_runs", [])
    run = tocsin.init("run", url=heard.url)
    args = SimpleNamespace(advantage_estimator="grpo", n_samples_per_prompt=8, rollout_temperature=1.0)
    assert slime.log_rollout(0, args, [], {}, 1.0) is False
    assert slime.log_eval(0, args, {}, {}) is False
    log(args, {"rollout/raw_reward": 0.5, "rollout/step": 0}, step_key="rollout/step")
    assert slime.before_train_step(args, 0, 0, None, None, None) is None
    log(args, {"train/grad_norm": math.nan, "train/step": 0}, "train/step")
    sent(heard, run)
    assert heard.series("run", "rollout/raw_reward") == {0: 0.5}
    assert heard.series("run", "train/grad_norm") == {0: "NaN"}
    assert heard.config("run") == {
        "framework": framework,
        "algorithm": "grpo",
        "group_size": 8,
        "temperature": 1.0,
        "finished": True,
    }
    assert len(kept.calls) == 2


def test_skyrl(heard: Heard, run: tocsin.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins.skyrl(monkeypatch)
    _drive_skyrl(heard, run, fresh(monkeypatch, "skyrl").TocsinCallback(run, checkpoint_on="warning"))


def _drive_skyrl(heard: Heard, run: tocsin.Run, callback: Any) -> None:
    sampling = SimpleNamespace(temperature=0.7)
    generator = SimpleNamespace(n_samples_per_prompt=5, sampling_params=sampling)
    algorithm = SimpleNamespace(advantage_estimator="grpo")
    trainer = SimpleNamespace(cfg=SimpleNamespace(trainer=SimpleNamespace(algorithm=algorithm), generator=generator))
    control = SimpleNamespace(should_save=False, should_evaluate=False)
    logs = {"reward/avg_raw_reward": 0.5, "policy/grad_norm": math.nan}
    callback.on_train_start(trainer, SimpleNamespace(global_step=0, logs=None), control)
    callback.on_log(trainer, SimpleNamespace(global_step=1, logs=logs), control)
    callback.on_step_end(trainer, SimpleNamespace(global_step=1, logs=None, metrics=logs), control)
    callback.on_train_end(trainer, SimpleNamespace(global_step=1, logs=None), control)
    heard.settle()
    assert heard.series("run", "reward/avg_raw_reward") == {1: 0.5}
    assert heard.series("run", "policy/grad_norm") == {1: "NaN"}
    assert heard.config("run")["group_size"] == 5
    assert run.stats()["waiting"] == 0


def test_tinker(heard: Heard, run: tocsin.Run, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = stand_ins.tinker(monkeypatch, kept)()
    tinker.watch(run)
    logger.log_hparams(SimpleNamespace(dataset_builder=SimpleNamespace(group_size=4), temperature=1.0))
    logger.log_metrics({"env/all/reward/total": 0.5, "optim/entropy": 1.5}, step=0)
    logger.log_metrics({"env/all/reward/total": 0.75}, 1)
    logger.close()
    sent(heard, run)
    assert heard.series("run", "env/all/reward/total") == {0: 0.5, 1: 0.75}
    assert heard.config("run") == {
        "framework": "tinker-cookbook",
        "group_size": 4,
        "temperature": 1.0,
        "finished": True,
    }


# The hosts themselves. Their packages import all that a training needs when they are imported, so the directories above
# the one module that is meant stand in for its packages.
REAL = """
import importlib.util, os, sys, types
def bare(name):
    top = importlib.util.find_spec(name.split(".")[0]).submodule_search_locations[0]
    for depth in range(1, name.count(".") + 2):
        parts = name.split(".")[:depth]
        package = types.ModuleType(".".join(parts))
        package.__path__ = [os.path.join(top, *parts[1:])]
        sys.modules[package.__name__] = package
"""


def test_skyrl_itself(heard: Heard, tmp_path: Path) -> None:
    needs("skyrl")
    code = """
bare("skyrl.train.utils")
from types import SimpleNamespace
from skyrl.train.utils.callbacks import CallbackHandler, CallbackInput, TrainingControl
from tocsin.integrations.skyrl import TocsinCallback
handler, control = CallbackHandler([TocsinCallback(checkpoint_on="warning")]), TrainingControl()
trainer = SimpleNamespace(cfg={"generator": {"n_samples_per_prompt": 5}})
def told(step, **more):
    return CallbackInput(global_step=step, epoch=0, total_steps=9, steps_per_epoch=9, **more)
for event in ("on_train_start", "on_epoch_start", "on_eval_start", "on_eval_end", "on_step_start"):
    getattr(handler, event)(trainer, told(0), control)
handler.on_log(trainer, told(1, logs={"policy/grad_norm": float("nan"), "reward/avg_raw_reward": 0.5}), control)
handler.on_step_end(trainer, told(1), control)
handler.on_save(trainer, told(1), control)
handler.on_train_end(trainer, told(1), control)
"""
    run_program("-c", REAL + code, folder=tmp_path, TOCSIN_URL=heard.url, TOCSIN_RUN="run")
    heard.settle()
    assert heard.series("run", "reward/avg_raw_reward") == {1: 0.5}
    assert heard.series("run", "policy/grad_norm") == {1: "NaN"}
    assert heard.config("run") == {"framework": "skyrl", "group_size": 5, "finished": True}


def test_tinker_itself(heard: Heard, tmp_path: Path) -> None:
    needs("tinker_cookbook", "chz")
    code = """
from tocsin.integrations import tinker
tinker.watch()
from tinker_cookbook.utils import ml_log
logger = ml_log.setup_logging("log", config={"temperature": 1.0}, do_configure_logging_module=False)
logger.log_metrics({"env/all/reward/total": 0.5}, step=0)
logger.close()
"""
    run_program("-c", code, folder=tmp_path, TOCSIN_URL=heard.url, TOCSIN_RUN="run")
    heard.settle()
    assert heard.series("run", "env/all/reward/total") == {0: 0.5}
    assert heard.config("run")["framework"] == "tinker-cookbook"
    assert '"env/all/reward/total": 0.5' in (tmp_path / "log" / "metrics.jsonl").read_text()


def test_areal_itself(heard: Heard, tmp_path: Path) -> None:
    needs("areal", "wandb", "swanlab", "trackio", "tensorboardX", "colorlog", "tabulate", "torch")
    code = """
bare("areal.utils")
for name, members in {
    "areal.api": ["FinetuneSpec"],
    "areal.api.cli_args": ["BaseExperimentConfig", "StatsLoggerConfig", "WandBConfig"],
}.items():  # the logger only names these types
    sys.modules[name] = types.ModuleType(name)
    for member in members:
        setattr(sys.modules[name], member, type(member, (), {}))
from types import SimpleNamespace
from tocsin.integrations import areal
areal.watch()
import swanlab, wandb
from areal.utils.stats_logger import StatsLogger
StatsLogger.init = lambda self: (wandb.init(mode="disabled"), swanlab.init(mode="disabled"))
StatsLogger.start_time, StatsLogger.summary_writer = 0.0, None
steps = SimpleNamespace(total_train_epochs=1, steps_per_epoch=9, total_train_steps=9)
logger = StatsLogger(SimpleNamespace(stats_logger=None, gconfig=SimpleNamespace(n_samples=4)), steps)
logger.commit(0, 0, 0, {"ppo_actor/task_reward/avg": 0.5, "n__count": 3.0})
logger.commit(0, 1, 1, [{"ppo_actor/task_reward/avg": 0.25}, {"ppo_actor/task_reward/avg": float("nan")}])
assert logger._last_commit_step == 2
logger.close()
"""
    run_program("-c", REAL + code, folder=tmp_path, TOCSIN_URL=heard.url, TOCSIN_RUN="run")
    heard.settle()
    assert heard.series("run", "ppo_actor/task_reward/avg") == {0: 0.5, 1: 0.25, 2: "NaN"}
    assert heard.config("run") == {"framework": "areal", "group_size": 4, "finished": True}


# Errors stay inside.


class Unlucky(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("metrics that can't be read")


def test_an_error_of_a_hook_never_reaches_the_host(
    run: tocsin.Run, kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    registry, multiplex = stand_ins.roll(monkeypatch, kept), stand_ins.tinker(monkeypatch, kept)
    roll.watch(run)
    tinker.watch(run)
    logger = stand_ins.nemo_rl_logger(kept)
    nemo_rl.watch(logger, run)
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        for _ in range(2):
            registry["stdout"]({}).log(Unlucky(), 1)
            multiplex().log_metrics(Unlucky(), 1)
            logger.log_metrics(Unlucky(), 1)
    assert len(kept.calls) == 6  # the hosts' own loggers got everything
    assert sum("metrics that can't be read" in record.getMessage() for record in caplog.records) == 3


def test_a_host_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("areal", "mlflow", "roll", "swanlab", "tinker_cookbook", "trackio", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    for one in (areal, mlflow, roll, swanlab, tinker, trackio, wandb):
        with pytest.raises(DidNotEnable, match="can't be imported"):
            one.watch()
    with pytest.raises(DidNotEnable, match="neither slime nor miles"):
        slime.watch(SimpleNamespace())
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DidNotEnable, match="pip install trl"):
        fresh(monkeypatch, "trl")
    monkeypatch.setitem(sys.modules, "skyrl", None)
    with pytest.raises(DidNotEnable, match="TrainingCallback"):
        fresh(monkeypatch, "skyrl")


def test_a_host_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins.module(monkeypatch, "tinker_cookbook.utils.ml_log", MultiplexLogger=object)
    with pytest.raises(DidNotEnable, match=r"has no log_metrics\(\): pip install tinker-cookbook"):
        tinker.watch()
