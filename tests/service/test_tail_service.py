"""`tocsin tail` to a real service: what it then says is what `tocsin check` says of the same log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.judged import by_id

from tocsin_service.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"


def start(*words: object, state: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tocsin_service",
        "tail",
        *map(str, words),
        "--state",
        str(state),
        "--poll",
        "0.01",
    ]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "TOCSIN_DEBUG": "1"})


def told(capsys: pytest.CaptureFixture[str], log: Path, run: str) -> dict[str, Any]:
    main(["check", "--json", "--fail-on", "never", "--run", run, str(log)])
    return by_id(json.loads(capsys.readouterr().out)["alerts"])


def is_followed(api: Any, vectors: int) -> bool:
    answer = api.get("/v1/runs/run")
    return answer.status == 200 and answer.json["vectors"] > vectors


@pytest.mark.parametrize(("form", "name"), [("verl", "collapse_lr_x100"), ("ours", "collapse_nan_weights")])
def test_a_collapse_that_is_followed_is_judged_as_the_check_judges_it(
    api: Any, recorded: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, name: str
) -> None:
    [collapse] = [run for run in recorded if run.name == name]
    log = tmp_path / "run.jsonl"
    log.touch()
    words = (log, "--url", api.address, "--run", "run")
    tail = start(*words, state=tmp_path / "state.json")
    rows = collapse.bodies
    pause = threading.Event()
    for number, row in enumerate(rows):
        line = {"step": row["step"], "data": row["metrics"]} if form == "verl" else row
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if number in {20, 60, 130}:
            while not is_followed(api, number // 2):
                pause.wait(0.01)
            tail.kill()
            tail.communicate()
            tail = start(*words, state=tmp_path / "state.json")
    tail.send_signal(signal.SIGTERM)
    tail.communicate(timeout=60)
    done = start(*words, "--once", state=tmp_path / "state.json")
    said = done.communicate(timeout=60)[1]
    assert done.returncode == 0, said
    api.settle()
    run = api.get("/v1/runs/run").json
    assert (run["vectors"], run["step"]) == (len(rows), rows[-1]["step"])
    found = by_id(api.get("/v1/runs/run/alerts").json["alerts"])
    expected = told(capsys, log, "run")
    assert expected
    assert found == expected


def test_a_restart_that_truncates_opens_the_next_attempt(api: Any, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"

    def rows(first: int, last: int, offset: float) -> str:
        told = ({"step": s, "data": {"actor/kl_loss": 0.01 + s / 1e4 + offset}} for s in range(first, last))
        return "".join(json.dumps(row) + "\n" for row in told)

    for text in (rows(0, 50, 0), rows(40, 45, 1e-6)):
        log.write_text(text)
        done = start(log, "--url", api.address, "--once", state=tmp_path / "state.json")
        assert done.communicate(timeout=60)
        assert done.returncode == 0
    api.settle()
    run = api.get("/v1/runs/run").json
    assert (run["vectors"], run["step"], run["attempt"]) == (55, 44, 1)


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tail", "--help"])
    options = {word.strip(",[]") for word in capsys.readouterr().out.split() if word.startswith(("--", "[--"))}
    text = (DOCS / "tail.md").read_text(encoding="utf-8")
    assert {"--once", "--state"} <= options
    assert all(f"`{option}" in text for option in options - {"--help"}), options
