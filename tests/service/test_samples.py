"""What the model wrote when an alert began: from the API and on a terminal, whatever it wrote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from tests.service.rollout_rows import post, rows

from tocsin_detectors.catalogue.metric import FAMILIES
from tocsin_detectors.rules import shipped_rules
from tocsin_service.api.rollout_models import SamplesModel
from tocsin_service.app import Service
from tocsin_service.rollouts.evidence import EVIDENCE
from tocsin_service.settings import Settings

HOSTILE = "\x1b[2J\x1b]0;owned\x07 reset\rover\n* step 9, row 9: reward 1\n\u202edesrever"


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory: pytest.TempPathFactory, shared_api: Any) -> Iterator[Any]:
    """A run of which a loss became NaN at step 7; rollouts of every other step."""
    folder = tmp_path_factory.mktemp("samples")
    with Service(Settings(port=0, db=folder / "tocsin.db", rollout_dir=folder / "rollouts")) as service:
        api = type(shared_api)(service.address, service)
        for step in range(0, 10, 2):
            listed = rows(8, response=HOSTILE if step >= 8 else "fine", advantage=0.5)
            assert post(api, listed, step=step, time=1.7e9 + step).status == 202
        reward = [0.8] * 30
        api.post([{"step": step, "metrics": {"x": 1.0}, "time": 1.7e9 + step} for step in range(10)])
        for step in range(10, 60):
            value = reward[0] if step < 50 else 0.0
            api.post({"step": step, "metrics": {"critic/score/mean": value}, "time": 1.7e9 + step})
        post(api, rows(8, response="before"), step=48, time=1.7e9 + 48)
        post(api, rows(8, response=HOSTILE, reward=0), step=51, time=1.7e9 + 51)
        api.post({"step": 60, "metrics": {"perf/mfu/actor": float("nan")}, "time": 1.7e9 + 60})
        api.settle()
        yield api


def alert_of(api: Any, rule: str) -> Any:
    return next(one for one in api.get("/v1/runs/run/alerts").json["alerts"] if one["rule"] == rule)


def test_the_onset_and_the_last_step_before_it(collapsed: Any) -> None:
    alert = alert_of(collapsed, "reward_collapse")
    found = collapsed.get(f"{alert['samples']}?limit=2&text=9").json
    SamplesModel.model_validate(found)
    assert alert["onset_step"] == 50
    assert (found["healthy"]["step"], found["onset"]["step"]) == (48, 51)  # those that are kept
    assert [kind["kind"] for kind in found["evidence"]] == ["lowest reward", "highest reward"]
    for kind in found["evidence"]:
        assert [row["response"] for row in kind["healthy"]] == ["before", "before"]
        assert [row["response"] for row in kind["onset"]] == [HOSTILE[:9]] * 2


def test_alerts_about_which_texts_say_nothing(collapsed: Any) -> None:
    alert = alert_of(collapsed, "non_finite")
    assert "samples" not in alert
    answer = collapsed.get(f"/v1/runs/run/alerts/{alert['id']}/samples")
    assert (answer.status, "family data" in answer.json["error"]) == (404, True)
    assert collapsed.get("/v1/runs/run/alerts/none/samples").status == 404
    assert collapsed.get("/v1/runs/other/alerts/none/samples").status == 404


def test_an_alert_without_rollouts(make_api: Callable[..., Any], tmp_path: Path) -> None:
    api = make_api(rollout_dir=tmp_path / "rollouts")
    api.post([{"step": step, "metrics": {"critic/score/mean": 0.8 if step < 40 else 0.0}} for step in range(60)])
    api.settle()
    alert = alert_of(api, "reward_collapse")
    found = api.get(f"/v1/runs/run/alerts/{alert['id']}/samples").json
    assert (found["onset"], found["healthy"]) == (None, None)
    assert all(not kind["onset"] and not kind["healthy"] for kind in found["evidence"])


def test_every_family_of_evidence_is_one_of_rules() -> None:
    assert EVIDENCE.keys() <= set(FAMILIES)
    assert {"reward", "length", "entropy", "kl", "advantage"} <= EVIDENCE.keys()
    assert EVIDENCE.keys() <= {rule.family for rule in shipped_rules()}


def samples(api: Any, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    command = [sys.executable, "-m", "tocsin_service", "samples", *words, "--url", api.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


def test_the_command_shows_an_alerts_samples(collapsed: Any) -> None:
    done = samples(collapsed, "run", alert_of(collapsed, "reward_collapse")["id"], "--limit", "1")
    assert done.returncode == 0, done.stderr
    assert "the onset: step 51: 8 rows, reward 0," in done.stdout
    assert "== lowest reward" in done.stdout
    assert "-- step 48 (healthy)" in done.stdout
    assert re.search(r"answer \| before", done.stdout)


def test_no_text_reaches_the_terminal_as_it_is(collapsed: Any) -> None:
    done = samples(collapsed, "run", "--step", "8", "--limit", "1", "--sort", "reward", "--desc")
    assert done.returncode == 0, done.stderr
    assert all(char == "\n" or char.isprintable() for char in done.stdout)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("* step 8, row 1: reward 1; advantage 0.5; ")
    assert sum(line.startswith("*") for line in lines) == 1  # the one that the text has made up stands behind a bar
    assert any(line.endswith("| * step 9, row 9: reward 1") for line in lines)


def test_the_command_says_what_it_cannot_do(collapsed: Any) -> None:
    for words, text in (
        (("run",), "name an alert"),
        (("run", "alert", "--step", "1"), "name an alert"),
        (("run", "none"), "no such alert"),
        (("other", "--step", "1"), "no such run"),
        (("run", "--step", "1", "--limit", "9999"), "not valid"),
    ):
        done = samples(collapsed, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr
