"""Files of rollouts: what verl and TRL write, as rows; and the command that sends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tocsin.readers import ReadError
from tocsin.rollouts import read


@pytest.fixture
def server(server):
    """Answers as the service does, but with a status that the stand-in doesn't take for steps."""
    server.decide = lambda _: server.Reply(200, body=b'{"warnings": []}')
    return server


def dump(folder: Path, step: int, rows: int = 4, **extra: Any) -> Path:
    """A file as verl's trainer writes it."""
    path = folder / f"{step}.jsonl"
    lines = [
        {"input": f"q{row // 2}", "output": f"a{row}", "gts": "4", "score": float(row % 2), "step": step}
        | {"acc": bool(row % 2), "pred": "4", **extra}
        for row in range(rows)
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", encoding="utf-8")
    return path


def test_verls_dump(tmp_path):
    for step in (10, 9, 1):
        dump(tmp_path, step, data_source="openai/gsm8k", uid="u1")
    found = list(read(tmp_path))
    assert [step.step for step in found] == [1, 9, 10]
    assert found[0].rows[1] == {
        "prompt": "q0",
        "response": "a1",
        "ground_truth": "4",
        "reward": 1.0,
        "scores": {"score": 1.0, "acc": 1.0},
        "domain": "openai/gsm8k",
        "group": "u1",
    }
    assert found[0].time == (tmp_path / "1.jsonl").stat().st_mtime


def test_a_dump_with_nan_and_without_a_step(tmp_path):
    path = tmp_path / "rollout_7.jsonl"
    path.write_text('{"input": "q", "output": "a", "score": NaN}\n')
    (step,) = read(path)
    assert step.step == 7
    assert step.rows[0]["reward"] != step.rows[0]["reward"]


def test_trls_completions(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq  # noqa: PLC0415 - it may be missing

    folder = tmp_path / "completions"
    folder.mkdir()
    for number in (2, 1):
        table = pa.table(
            {
                "step": [number] * 3,
                "prompt": ["p", "p", "q"],
                "completion": ["a", "b", "c"],
                "accuracy_reward": [1.0, 0.0, None],
                "format_reward": [0.5, 0.5, float("nan")],
                "note": ["x", "y", "z"],
                "advantage": [0.7, -0.7, 0.0],
            }
        )
        pq.write_table(table, folder / f"completions_{number:05d}.parquet")
    found = list(read(tmp_path))
    assert [step.step for step in found] == [1, 2]
    assert found[0].rows[0] == {
        "prompt": "p",
        "response": "a",
        "scores": {"accuracy_reward": 1.0, "format_reward": 0.5},
        "reward": 1.5,
        "advantage": 0.7,
    }
    assert "reward" not in found[0].rows[2]


def test_of_evaluation_nothing_is_taken(tmp_path):
    path = tmp_path / "completions_00003.jsonl"
    path.write_text(
        '{"mode": "eval", "prompt": "p", "completion": "a"}\n{"mode": "train", "prompt": "p", "completion": "b"}\n'
    )
    (step,) = read(path)
    assert [row["response"] for row in step.rows] == ["b"]


def test_own_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 3, "response": "a", "reward": 1, "other": 2}\n{"step": 4, "response": "b"}\n')
    assert [(step.step, step.rows) for step in read(path)] == [
        (3, [{"response": "a", "reward": 1}]),
        (4, [{"response": "b"}]),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"step": 1, "metrics": {}}', "holds no rollouts"),
        ('{"input": "q", "output": "a"}', "says no step"),
        ('{"input": "q", "output": "a", "step": 1}\n{"input', "log.jsonl:2: is no JSON"),
        ("7", "is no JSON object"),
    ],
)
def test_files_that_hold_something_else(tmp_path, text, problem):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(ReadError, match=problem):
        list(read(path))
    with pytest.raises(ReadError, match="no folder with"):
        list(read(tmp_path / "missing"))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "completions_1.parquet").write_bytes(b"PAR1")
    with pytest.raises(ReadError, match=r"pip install 'tocsin\[rollouts\]'"):
        list(read(tmp_path))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tocsin.rollouts", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_sends_every_step_once(server, tmp_path):
    for step in range(1, 7):
        dump(tmp_path, step)
    for _ in range(2):
        done = command(str(tmp_path), "--url", server.url, "--run", "my run", "--response-limit", "64")
        assert done.returncode == 0, done.stderr
        assert "6 steps of rollouts delivered, none dropped" in done.stderr
    paths = [request.path for request in server.posts()]
    assert len(paths) == 12
    assert paths[:6] == paths[6:]  # the same sequence and time: the service knows them again
    assert len(set(paths)) == 6
    assert "/v1/runs/my%20run/rollouts?step=1&" in paths[0]
    assert "response_limit=64" in paths[0]


def test_the_command_follows_what_comes(server, tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    words = [sys.executable, "-m", "tocsin.rollouts", str(folder), "--url", server.url, "--run", "r", "--follow"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        for step in (1, 2):
            part = dump(tmp_path, step)
            os.utime(part, (1.7e9, 1.7e9))  # nothing has been written to it for a while
            part.rename(folder / part.name)
            server.wait(lambda server, count=step: len(server.posts()) == count)
        fresh = dump(folder, 3)
        os.utime(fresh, (4e9, 4e9))  # it is still being written
        late = dump(tmp_path, 4)
        os.utime(late, (1.7e9, 1.7e9))
        late.rename(folder / late.name)
        server.wait(lambda server: len(server.posts()) == 3)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, told
    assert "3 steps of rollouts delivered" in told
    assert [request.path.partition("step=")[2][0] for request in server.posts()] == ["1", "2", "4"]


def test_the_command_says_what_it_cannot_do(server, tmp_path):
    assert "say whose rollouts" in command(str(tmp_path), "--url", server.url).stderr
    missing = command(str(tmp_path / "no"), "--url", server.url, "--run", "r")
    assert (missing.returncode, "no folder with" in missing.stderr) == (2, True)
    dump(tmp_path, 1)
    server.decide = lambda _: server.Reply(501, body=b'{"error": "off"}')
    refused = command(str(tmp_path), "--url", server.url, "--run", "r")
    assert refused.returncode == 1
    assert "set its rollout_dir" in refused.stderr
