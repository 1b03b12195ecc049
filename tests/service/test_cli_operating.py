"""The commands that ask a running service and tell it what people do, against a real one."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tocsin_service.cli import main
from tocsin_service.commands.operating import add_commands, duration, moment
from tocsin_service.terminal import columns, table

HOUR = 3600
HOSTILE = "evil \x1b[31m\u202eexp"


@pytest.fixture(scope="module")
def service(shared_api: Any) -> Any:
    """A service with two runs whose loss is NaN; each test leaves it as it finds it, but for the audit log."""
    for run in ("exp-1", "prod-1"):
        shared_api.post([{"step": step, "metrics": {"actor/pg_loss": float("nan")}} for step in range(3)], run=run)
    shared_api.settle()
    return shared_api


@pytest.fixture
def tocsin(service: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command against the service; its status and what it printed."""
    monkeypatch.setenv("TOCSIN_URL", service.address)
    monkeypatch.setenv("LOGNAME", "mia")
    monkeypatch.delenv("TOCSIN_TOKEN", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        status = main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    yield run
    for one in service.get("/v1/silences?state=active").json["silences"]:
        service.call("DELETE", f"/v1/silences/{one['id']}")


def incident_of(api: Any, run: str) -> str:
    (incident,) = api.get(f"/v1/runs/{run}/incidents").json["incidents"]
    return str(incident["id"])


def test_what_fires(tocsin: Any, service: Any) -> None:
    status, out, _ = tocsin("alerts")
    head, *rows = out.splitlines()
    assert status == 0
    assert head.split() == ["SEVERITY", "RUN", "RULE", "METRIC", "SINCE", "STATE", "ATTENTION"]
    assert {tuple(row.split()[:4]) for row in rows} == {
        ("critical", run, "non_finite", "actor/pg_loss") for run in ("exp-1", "prod-1")
    }
    _, out, _ = tocsin("incidents", "--run", "exp-1")
    assert incident_of(service, "exp-1") in out
    assert incident_of(service, "prod-1") not in out
    assert tocsin("alerts", "--severity", "warning")[1] == "no alerts\n"
    assert "NaN" in tocsin("incidents", "--lang", "zh")[1]


def test_as_json(tocsin: Any) -> None:
    _, out, _ = tocsin("incidents", "--json", "--all")
    assert {one["run"] for one in json.loads(out)["incidents"]} == {"exp-1", "prod-1"}
    _, out, _ = tocsin("silence", "list", "--json")
    assert json.loads(out) == {"silences": []}


def test_acknowledging(tocsin: Any, service: Any) -> None:
    incident = incident_of(service, "exp-1")
    status, out, _ = tocsin("acknowledge", "exp-1", incident, "--comment", "on it")
    assert (status, "mia looks after it" in out) == (0, True)
    known = service.get(f"/v1/runs/exp-1/incidents/{incident}").json["acknowledged"]
    assert (known["author"], known["comment"]) == ("mia", "on it")
    assert "mia looks after it" in tocsin("incidents")[1]
    tocsin("acknowledge", "exp-1", incident, "--author", "tom")
    assert "tom looks after it" in tocsin("alerts")[1]


def test_a_silence_from_begin_to_end(tocsin: Any, service: Any) -> None:
    words = ["--run", "exp-*", "--rule", "non_*", "--severity", "critical", "--for", "1h30m", "--comment", "a sweep"]
    status, out, _ = tocsin("silence", "add", *words, "--id", "sweep")
    assert (status, out.startswith("sweep: silent from ")) == (0, True)
    assert "run exp-*, rule non_*, critical" in out
    (one,) = service.get("/v1/silences?state=active").json["silences"]
    assert one["ends"] - one["starts"] == pytest.approx(1.5 * HOUR)
    assert (one["author"], one["comment"]) == ("mia", "a sweep")
    assert "silent until" in tocsin("alerts", "--run", "exp-1")[1]
    assert "sweep" in tocsin("silence", "list")[1]
    assert tocsin("silence", "expire", "sweep")[1].startswith("sweep: over since")
    assert "sweep" not in tocsin("silence", "list")[1]
    assert "expired" in tocsin("silence", "list", "--all")[1]


def test_a_silence_of_labels_at_a_time(tocsin: Any, service: Any) -> None:
    starts = int(time.time()) + 2 * HOUR
    times = [time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(one)) for one in (starts, starts + HOUR)]
    words = ["--label", "team=rl*", "--label", "size=", "--from", times[0], "--until", times[1], "--comment", "x"]
    tocsin("silence", "add", *words, "--id", "later")
    (one,) = service.get("/v1/silences?state=pending").json["silences"]
    assert one["matchers"]["labels"] == {"team": "rl*", "size": ""}
    assert (one["starts"], one["ends"]) == (starts, starts + HOUR)
    tocsin("silence", "expire", "later")


def test_muting_and_all(tocsin: Any, service: Any) -> None:
    assert tocsin("mute", "prod-1", "--for", "4h", "--comment", "known")[0] == 0
    (one,) = service.get("/v1/silences?state=active").json["silences"]
    assert one["matchers"]["run"] == "prod-1"
    assert tocsin("silence", "add", "--all", "--for", "1m", "--comment", "moving")[0] == 0
    assert "everything" in tocsin("silence", "list")[1]


def test_a_new_normal(tocsin: Any, service: Any) -> None:
    status, out, _ = tocsin("rebaseline", "prod-1", "--metric", "actor/kl_loss", "--comment", "meant so")
    assert (status, out) == (0, "prod-1: what is now is the new normal of actor/kl_loss\n")
    assert service.get("/v1/audit?limit=1").json["acts"][0]["detail"]["note"] == "mia: meant so"
    status, out, _ = tocsin("audit", "--limit", "1")
    assert (status, out.splitlines()[1].split()[2:5]) == (0, ["local", "rebaseline", "prod-1"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["silence", "add", "--for", "1h", "--comment", "x"], "match everything"),
        (["silence", "add", "--run", "x", "--for", "2000d", "--comment", "x"], "hours: is"),
        (["silence", "add", "--run", "x", "--until", "2020-01-01", "--comment", "x"], "ends: must be"),
        (["silence", "add", "--label", "team", "--for", "1h", "--comment", "x"], "write NAME=PATTERN"),
        (["silence", "expire", "nothing"], "there is no silence of that id"),
        (["mute", "nobody", "--for", "1h", "--comment", "x"], "no such run"),
        (["acknowledge", "exp-1", "0123456789abcdef"], "no such incident"),
        (["alerts", "--run", "nobody"], "no such run"),
        (["alerts", "--url", "redis://localhost"], "must look like"),
        (["alerts", "--url", "http://127.0.0.1:1"], "doesn't answer"),
        (["alerts", "--token-file", "/nowhere/token"], "can't be read"),
    ],
)
def test_what_cannot_be_done(tocsin: Any, words: list[str], said: str) -> None:
    status, out, err = tocsin(*words)
    assert (status, out) == (2, "")
    assert err.startswith("tocsin: ")
    assert said in err


@pytest.mark.parametrize(
    "words",
    [
        ["mute", "run", "--for", "soon", "--comment", "x"],
        ["mute", "run", "--for", "4h"],
        ["mute", "run", "--comment", "x"],
        ["silence", "add", "--run", "x", "--comment", "x"],
        ["silence", "add", "--run", "x", "--for", "1h", "--until", "2030-01-01", "--comment", "x"],
        ["silence"],
        ["acknowledge", "run"],
        ["alerts", "--severity", "bad"],
    ],
)
def test_words_that_are_wrong(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


class TestWhatComesBack:
    """A stand-in answers what a service never would: a terminal must not be at its mercy."""

    @pytest.fixture
    def stand_in(self, hook: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("TOCSIN_URL", hook.address.split("/services")[0])
        monkeypatch.setenv("LOGNAME", "mia")
        return hook

    def test_escapes_never_reach_the_terminal(self, stand_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
        matchers = {"run": HOSTILE, "rule": HOSTILE, "severity": HOSTILE, "labels": {HOSTILE: HOSTILE}}
        answer = {"id": HOSTILE, "starts": 1.0, "ends": 2.0, "matchers": matchers, "title": HOSTILE}
        stand_in.body = json.dumps(answer).encode()
        assert main(["mute", "run", "--for", "1h", "--comment", "x"]) == 0
        assert main(["acknowledge", "run", "0", "--author", HOSTILE]) == 0
        assert main(["acknowledge", "run", "0", "--json"]) == 0
        stand_in.script += [(500, {}), (403, {})]
        stand_in.body = json.dumps({"error": HOSTILE, "problems": [{"field": HOSTILE, "problem": HOSTILE}]}).encode()
        for _ in range(2):
            assert main(["acknowledge", "run", "0"]) == 2
        said = capsys.readouterr()
        assert "evil" in said.out
        assert "evil" in said.err
        assert "scope" in said.err  # what helps against a 403
        assert all(char.isprintable() or char == "\n" for char in said.out + said.err)

    @pytest.mark.parametrize("body", [b"<html>", b"\xff\xfe", b""])
    def test_what_is_no_tocsin(self, stand_in: Any, body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
        stand_in.body = body
        assert main(["acknowledge", "run", "0"]) == 2
        assert "is it a Tocsin?" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "body", [b"[]", b"{}", b"7", b"null", b'{"id": 1, "starts": 1e300, "ends": 1e300, "matchers": {}}']
    )
    def test_what_is_another_tocsin(self, stand_in: Any, body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
        stand_in.body = body
        assert main(["mute", "run", "--for", "1h", "--comment", "x"]) == 2
        assert "is the service of another version?" in capsys.readouterr().err

    def test_a_refusal_that_is_no_json(self, stand_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
        stand_in.script += [(502, {})]
        stand_in.body = b"\x1b[2J bad gateway"
        assert main(["acknowledge", "run", "0"]) == 2
        said = capsys.readouterr().err
        assert "bad gateway" in said
        assert "\x1b" not in said

    def test_how_it_says_who_it_is(self, stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stand_in.body = b"[]"
        file = tmp_path / "token"
        file.write_text("from-a-file\n")
        monkeypatch.setenv("TOCSIN_TOKEN", "from-the-environment")
        for words, token in (([], "from-the-environment"), (["--token-file", str(file)], "from-a-file")):
            main(["acknowledge", "run/x", "0", *words])
            headers, _ = stand_in.raw.get(timeout=30)
            assert headers["Authorization"] == f"Bearer {token}"


def test_as_processes(service: Any) -> None:
    environment = {**os.environ, "TOCSIN_URL": service.address, "COLUMNS": "72"}

    def tocsin(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tocsin_service", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)

    listed = tocsin("incidents")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert all(columns(line) <= 72 for line in listed.stdout.splitlines())
    incident = next(line for line in listed.stdout.splitlines() if "exp-1" in line).split()[0]
    acknowledged = tocsin("acknowledge", "exp-1", incident, "--author", "mia")
    assert (acknowledged.returncode, acknowledged.stdout.splitlines()[-1]) == (0, "mia looks after it")
    refused = tocsin("silence", "expire", "none")
    assert (refused.returncode, refused.stdout) == (2, "")


def test_they_need_nothing_but_the_standard_library() -> None:
    heavy = "{'numpy', 'fastapi', 'redis', 'httpx2', 'tocsin_detectors', 'prometheus_client'}"
    code = f"import sys, tocsin_service.cli; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("4h", 14400), ("1d12h", 129600), ("1w", 604800), ("0.5h", 1800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "-4h", "4 h", "4hh", "1e3s", "4h later"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time"):
        duration(text)


def test_moments() -> None:
    assert moment("2030-01-31T22:00+01:00") == moment("2030-01-31T21:00Z")
    assert moment("2030-01-31") == time.mktime((2030, 1, 31, 0, 0, 0, 0, 0, -1))
    for text in ("tomorrow", "22:00", "0001-01-01", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="is no time"):
            moment(text)


def test_the_documentation_names_every_command_and_route(shared_api: Any) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    add_commands(commands)
    for name, command in commands.choices.items():
        assert f"tocsin {name}" in text
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                assert all(f"tocsin {name} {part}" in text for part in action.choices)
    for path, methods in shared_api.get("/openapi.json").json["paths"].items():
        of_acts = {"silences", "audit", "mute", "acknowledge", "rebaseline"} & {*path.split("/")}
        for method in methods if of_acts else ():
            assert f"{method.upper()} {path}" in text


class TestTables:
    ROWS = (("a" * 10, "b" * 30, "训练" * 20), ("x", "y", "z"))

    @pytest.mark.parametrize("width", [200, 100, 60, 40, 30])
    def test_they_fit(self, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", str(width))
        lines = list(table(("ID", "NAME", "TITLE"), self.ROWS, whole=("ID",)))
        assert all(columns(line) <= width for line in lines)
        assert lines[1].startswith("a" * 10)
        assert ("…" in lines[1]) == (width < 124)

    def test_nothing_is_cut_where_there_is_no_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "0")
        assert "训练" * 20 in list(table(("ID", "NAME", "TITLE"), self.ROWS))[1]

    def test_what_can_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "5")
        assert len(list(table(("ID", "NAME", "TITLE"), self.ROWS, whole=("ID",)))) == 3
