"""verl's own tracking, with the plug-in loaded by verl's own entries: no line of the program knows Tocsin."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.integrations.conftest import Heard, needs, run_program

from tocsin.integrations.verl import config_of

# What verl's trainers log, in their order: validation alone at step 0, a step of critic warm-up, one that is whole, and
# one in bypass mode whose batch was aborted.
PROGRAM = """
import json, sys
import numpy as np
from verl.utils.tracking import Tracking
config = json.loads(sys.argv[1])
tracking = Tracking("project", "experiment", ["console"], config)
tracking.log(data={"val-core/openai/gsm8k/reward/mean@1": 0.25}, step=0)
tracking.log(data={"critic/score/mean": 0.5, "critic/vf_loss": 2.0, "num_turns/max": np.int64(3)}, step=1)
tracking.log(data={"critic/score/mean": 0.5, "actor/grad_norm": np.float32(1.5), "actor/ppo_kl": 0.01}, step=2)
tracking.log(data={"critic/score/mean": float("nan"), "actor/rollout_corr/kl": 0.125}, step=3)
if hasattr(tracking, "finish"):
    tracking.finish()
    tracking.finish()
import tocsin
assert tocsin.finish(60)
"""
CONFIG = {
    "algorithm": {
        "adv_estimator": "grpo",
        "use_kl_in_reward": False,
        "kl_ctrl": {"type": "fixed", "target_kl": 0.1},
        "rollout_correction": {"bypass_mode": True},
    },
    "actor_rollout_ref": {
        "rollout": {"n": 5, "temperature": 0.8},
        "actor": {"use_kl_loss": True, "kl_loss_coef": 0.001},
    },
    "trainer": {"critic_warmup": 1},
}
ENTRY = "[verl.plugins]\ntocsin = tocsin.integrations.verl\n"


def check(heard: Heard, run: str) -> None:
    heard.settle()
    assert heard.series(run, "critic/score/mean") == {1: 0.5, 2: 0.5, 3: "NaN"}
    assert heard.series(run, "val-core/openai/gsm8k/reward/mean@1") == {0: 0.25}
    assert heard.series(run, "actor/grad_norm") == {2: 1.5}
    assert heard.series(run, "rollout_corr/kl") == {3: 0.125}
    assert heard.config(run) == {
        "framework": "verl",
        "algorithm": "grpo",
        "group_size": 5,
        "temperature": 0.8,
        "critic_warmup": 1,
        "labels": {"bypass_mode": "True", "beta": "0.001"},
        "finished": True,
    }


def test_loaded_as_an_external_module(heard: Heard, tmp_path: Path) -> None:
    needs("verl", "ray", "tensordict")
    run_program(
        "-c",
        PROGRAM,
        json.dumps(CONFIG),
        folder=tmp_path,
        TOCSIN_URL=heard.url,
        TOCSIN_RUN="named",
        VERL_USE_EXTERNAL_MODULES="tocsin.integrations.verl",
    )
    check(heard, "named")


def test_loaded_by_its_entry_point(heard: Heard, tmp_path: Path) -> None:
    needs("verl", "ray", "tensordict")
    information = tmp_path / "site" / "plugged-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    (information / "entry_points.txt").write_text(ENTRY)
    search = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(tmp_path / "site")]).strip(os.pathsep)
    where = {"PYTHONPATH": search, "TOCSIN_URL": heard.url}
    probe = "import verl, sys; print('plugins', 'tocsin.integrations.verl' in sys.modules)"
    if "plugins True" not in run_program("-c", probe, folder=tmp_path, **where).stdout:
        pytest.skip("this verl is from before its plug-in entry points")
    run_program("-c", PROGRAM, json.dumps(CONFIG), folder=tmp_path, **where)
    check(heard, "project-experiment")


def test_installed_by_hand(heard: Heard, tmp_path: Path) -> None:
    needs("verl", "ray", "tensordict")
    code = f"from tocsin.integrations import verl\nverl.install()\nverl.install()\n{PROGRAM}"
    run_program("-c", code, json.dumps(CONFIG), folder=tmp_path, TOCSIN_URL=heard.url)
    check(heard, "project-experiment")


def test_being_installed_is_not_being_asked(tmp_path: Path) -> None:
    needs("verl", "ray", "tensordict")
    code = PROGRAM.replace("assert tocsin.finish(60)", "from tocsin import _current\nassert not _current._runs")
    load = "import verl\nimport tocsin.integrations.verl\n"
    run_program("-c", load + code, json.dumps(CONFIG), folder=tmp_path)


def test_a_program_without_verl_can_import_it(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["verl"] = None
import tocsin.integrations.verl as verl
try:
    verl.install()
except tocsin.integrations.DidNotEnable as error:
    print(error)
"""
    done = run_program("-c", f"import tocsin.integrations\n{code}", folder=tmp_path)
    assert "pip install 'verl" in done.stdout


@pytest.mark.parametrize(
    ("estimator", "mode", "algorithm"),
    [
        ("gae", "vanilla", "ppo"),
        ("grpo_passk", "vanilla", "grpo"),
        ("rloo", "vanilla", "rloo"),
        ("reinforce_plus_plus", "vanilla", "reinforce"),
        ("grpo", "gspo", "gspo"),
        ("opo", "vanilla", "opo"),
    ],
)
def test_the_algorithm(estimator: str, mode: str, algorithm: str) -> None:
    config = {
        "algorithm": {"adv_estimator": estimator},
        "actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": mode}}},
    }
    assert config_of(config)["algorithm"] == algorithm


def test_an_adaptive_controller_has_a_target() -> None:
    control = {"type": "adaptive", "target_kl": 0.1}
    assert config_of({"algorithm": {"use_kl_in_reward": True, "kl_ctrl": control}})["target_kl"] == 0.1
    assert "target_kl" not in config_of({"algorithm": {"use_kl_in_reward": False, "kl_ctrl": control}})
    assert config_of(None) == {"framework": "verl"}
