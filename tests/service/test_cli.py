"""The `tocsin` command, as a process and as a function."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tocsin_detectors.rules import shipped_rules
from tocsin_service.cli import main

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"


def vectors(*, broken_at: int | None = None, steps: int = 30) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "metrics": {
                "actor/kl_loss": 0.01,
                "critic/score/mean": 0.5,
                "actor/grad_norm": math.nan if step == broken_at else 1.0,
            },
        }
        for step in range(1, steps + 1)
    ]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "quiet.jsonl", vectors())


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "broken.jsonl", vectors(broken_at=20))


def test_check_is_quiet_on_a_quiet_run(quiet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(quiet)]) == 0
    assert "quiet: QUIET" in capsys.readouterr().out


def test_check_names_what_where_when_and_what_to_do(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(broken)]) == 1
    out = capsys.readouterr().out
    for said in ("CRITICAL", "non_finite", "actor/grad_norm", "step 20", "last good step: 19", "resume from the last"):
        assert said in out


def test_check_fails_from_the_severity_asked_for(tmp_path: Path) -> None:
    rows = vectors()
    rows[10]["metrics"]["timing_s/step"] = math.inf  # not vital: a warning
    file = str(write_jsonl(tmp_path / "warned.jsonl", rows))
    assert main(["check", file]) == 0
    assert main(["check", "--fail-on", "warning", file]) == 1
    assert main(["check", "--fail-on", "never", file]) == 0


def test_check_prints_strict_json(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert main(["check", "--json", "--run", "a run", str(broken)]) == 1
    told = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert (told["run"], told["worst"], told["vectors"]) == ("a run", "critical", 30)
    assert told["alerts"][0]["evidence"]["value"] == "NaN"


def test_check_reads_every_format_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = vectors(broken_at=20)
    names = list(rows[0]["metrics"])
    files = {
        "ours": write_jsonl(tmp_path / "ours.jsonl", rows),
        "verl": write_jsonl(
            # verl's file logger turns NaN into null
            tmp_path / "verl.jsonl",
            [
                {
                    "step": row["step"],
                    "data": {n: None if math.isnan(v) else v for n, v in row["metrics"].items()},
                }
                for row in rows
            ],
        ),
        "csv": tmp_path / "table.csv",
        "state": tmp_path / "trainer_state.json",
        "gzip": tmp_path / "ours.jsonl.gz",
    }
    table = [",".join(["step", *names])]
    table += [",".join([str(row["step"]), *(str(row["metrics"][name]) for name in names)]) for row in rows]
    files["csv"].write_text("\n".join(table))
    history = [{"step": row["step"], "epoch": 0.1, **row["metrics"]} for row in rows]
    files["state"].write_text(json.dumps({"global_step": 30, "log_history": history}))
    files["gzip"].write_bytes(gzip.compress(files["ours"].read_bytes()))
    said = {}
    for name, file in files.items():
        assert main(["check", "--json", "--run", "same", str(file)]) == 1, name
        told = json.loads(capsys.readouterr().out)
        said[name] = [alert["id"] for alert in told["alerts"] if alert["rule"] == "non_finite"]
    assert len(said["ours"]) == 1
    assert all(ids == said["ours"] for ids in said.values()), said


@pytest.mark.parametrize("content", [None, "", "no log at all\n", "{}\n"])
def test_check_says_what_it_cannot_read(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.jsonl"
    if content is not None:
        file.write_text(content)
    assert main(["check", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_check_keeps_control_characters_off_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = vectors()
    rows[9]["metrics"]["loss"] = math.nan
    rows[9]["metrics"]["loss\x1b[31m\u202e"] = 1.0  # no name at all: the reader leaves it out
    main(["check", "--run", "evil\x1b]0;title\x07", str(write_jsonl(tmp_path / "evil.jsonl", rows))])
    out = capsys.readouterr().out
    assert "non_finite" in out
    assert not set(out) & set("\x1b\x07\u202e")


@pytest.mark.timeout(600)
def test_check_reads_the_whole_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    if not (CORPUS / "index.json").exists():
        pytest.skip("the corpus of public runs is not beside the checkout (../shared/corpus)")
    files = sorted(str(path) for path in CORPUS.glob("*.jsonl.gz"))
    assert len(files) == len(json.loads((CORPUS / "index.json").read_text()))
    assert main(["check", "--json", "--fail-on", "never", *files]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(told) == len(files)
    assert all(verdict["vectors"] > 0 for verdict in told)


def test_replay_sends_a_log_as_its_trainer_would_have(
    api: Any, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(broken), "--url", api.address, "--run", "again", "--framework", "verl"]) == 0
    assert "30 of 30 vectors delivered" in capsys.readouterr().out
    api.settle()
    run = api.get("/v1/runs/again").json
    assert (run["vectors"], run["step"], run["config"]["framework"]) == (30, 30, "verl")
    assert [alert["rule"] for alert in api.get("/v1/runs/again/alerts").json["alerts"]] == ["non_finite"]


def test_rules_lists_and_explains_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    listing = capsys.readouterr().out
    for rule in shipped_rules():
        assert rule.name in listing
        assert main(["rules", rule.name]) == 0
        told = capsys.readouterr().out
        assert rule.title in told
        assert all(remedy in told for remedy in rule.remedies)
    assert main(["rules", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["uvicorn", "fastapi", "prometheus_client", "redis"])
def test_a_missing_extra_is_named(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from tocsin_service.cli import main; sys.exit(main(['serve']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"{missing} is not installed" in done.stderr
    assert "tocsin[service]" in done.stderr


def test_serve_says_what_is_wrong_with_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "0.0.0.0", "--db", str(tmp_path / "t.db")]) == 2  # no token
    assert "token" in capsys.readouterr().err


def test_worker_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "give --store redis://HOST:PORT/DB" in said
    assert "`tocsin serve` judges the runs itself" in said
    assert main(["worker", "--store", "http://:secret@redis-host"]) == 2
    said = capsys.readouterr().err
    assert "redis://HOST:PORT/DB" in said
    assert "secret" not in said
    rules = tmp_path / "rules.yaml"
    rules.write_text("no rules: at all")
    assert main(["worker", "--store", "redis://127.0.0.1:1/0", "--rules", str(rules)]) == 2
    assert str(rules) in capsys.readouterr().err


def test_the_demo_ends_well_by_itself_where_there_is_no_terminal(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tocsin_service", "demo", "--port", "0", "--rate", "1000"],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for said in ("reward_collapse", "Model collapse", "last good step", "100 %", "180 of 180 vectors delivered"):
        assert said in done.stdout
    assert list(tmp_path.iterdir()) == []  # it leaves nothing behind
