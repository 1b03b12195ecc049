"""`tocsin rules test`, and rule files for `rules`, `check` and `serve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tocsin_service.app import Service, StartError
from tocsin_service.cli import main
from tocsin_service.settings import Settings

RULES = """version: 1
off: [kl_spikes]
rules:
  judge_disagrees:
    metrics: judge/disagreement
    severity: critical
    title: The judges disagree
    tests: [{algorithm: bound, above: 0.4}]
"""
TESTS = """version: 1
rules: rules.yaml
cases:
  - name: they disagree
    series: {judge/disagreement: 0.1x5 0.6x5}
    expect: [{rule: judge_disagrees, fires: 7}]
    quiet: all
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_passing_tests(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(rules.parent / "t.yaml", TESTS)
    assert main(["rules", "test", file]) == 0
    assert capsys.readouterr().out.splitlines() == [f"ok   {file}:4: they disagree", "1 passed, 0 failed"]


def test_a_failing_test_is_told_in_words(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(rules.parent / "t.yaml", TESTS.replace("fires: 7", "fires: 9"))
    assert main(["rules", "test", file]) == 1
    out = capsys.readouterr().out
    assert f"FAIL {file}:4: they disagree\n" in out
    assert "fired at step 7 (critical); expected at step 9" in out
    assert out.endswith("0 passed, 1 failed\n")


def test_a_broken_file_is_told_with_its_line_and_the_others_run(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(rules.parent / "good.yaml", TESTS)
    bad = write(rules.parent / "bad.yaml", TESTS.replace("0.6x5", "0.6y5").replace("quiet", "quite"))
    gone = str(rules.parent / "gone.yaml")
    assert main(["rules", "test", bad, gone, good]) == 2
    told = capsys.readouterr()
    assert f"{bad}:5: " in told.err
    assert f"{bad}:7: " in told.err
    assert f"{gone}: can't be read" in told.err
    assert told.out.endswith("1 passed, 0 failed\n")


def test_a_broken_rule_file_of_a_test_is_named(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(rules.parent / "t.yaml", TESTS)
    rules.write_text(RULES.replace("bound", "bond"))
    assert main(["rules", "test", file]) == 2
    assert (
        f"{rules}:8: judge_disagrees: no algorithm is called 'bond'; did you mean 'bound'?" in capsys.readouterr().err
    )


@pytest.mark.parametrize("words", [["test"], ["kl_collapse", "kl_spikes"], ["test", "x", "--rules", "y"]])
def test_words_that_make_no_sense_are_refused(words: list[str]) -> None:
    assert main(["rules", *words]) == 2


def test_the_rules_of_a_file_are_listed_and_explained(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--rules", str(rules)]) == 0
    out = capsys.readouterr().out
    assert "kl_spikes" not in out
    assert "judge_disagrees" in out
    assert main(["rules", "judge_disagrees", "--rules", str(rules)]) == 0
    assert f"rule file {rules}" in capsys.readouterr().out


def test_check_judges_by_the_file(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = rules.parent / "run.jsonl"
    rows = [{"step": step, "metrics": {"judge/disagreement": 0.1 if step < 6 else 0.6}} for step in range(1, 11)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["check", str(log)]) == 0
    assert main(["check", "--rules", str(rules), str(log)]) == 1
    assert "judge_disagrees" in capsys.readouterr().out
    rules.write_bytes(b"version: \xff")
    assert main(["check", "--rules", str(rules), str(log)]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_the_service_judges_by_the_file_and_anew_when_it_has_changed(rules: Path, make_api: Any) -> None:
    vectors = [{"step": step, "metrics": {"judge/disagreement": 0.1 if step < 6 else 0.6}} for step in range(1, 11)]

    def said(api: Any) -> list[tuple[str, str]]:
        api.settle()
        return [(alert["rule"], alert["severity"]) for alert in api.get("/v1/runs/run/alerts").json["alerts"]]

    first = make_api(rules=rules)
    first.post(vectors[:9])
    assert said(first) == [("judge_disagrees", "critical")]
    first.service.stop()
    rules.write_text(RULES.replace("severity: critical", "severity: info"))
    second = make_api(rules=rules)
    second.post(vectors[9:])
    assert said(second) == [("judge_disagrees", "info")]


def test_the_service_doesn_t_start_with_a_broken_file(rules: Path, tmp_path: Path) -> None:
    rules.write_text("version: 1\noff: [nonsense]\n")
    with pytest.raises(StartError, match=r"rules\.yaml:2: off: no shipped rule is called 'nonsense'"):
        Service(Settings(port=0, db=tmp_path / "t.db", rules=rules)).start()
