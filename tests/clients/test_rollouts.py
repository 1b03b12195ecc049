"""Rollouts on their way: what is sent, that the trainer waits for nothing, and what gives way."""

from __future__ import annotations

import importlib.util
import json
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from tocsin import _rollouts


@pytest.fixture
def server(server):
    """Answers rollouts as the service does; steps are stored as ever."""
    answer = json.dumps({"accepted": 1, "repeated": 0, "rows": 1, "kept": 1, "metrics": {}, "warnings": []}).encode()
    server.decide = lambda request: server.Reply() if "/steps" in request.path else server.Reply(200, body=answer)
    return server


def batch(step: int = 0, rows: int = 2) -> list[dict[str, Any]]:
    return [{"prompt": "1+1=", "response": f"{step}.{row}", "reward": float(row)} for row in range(rows)]


def sent(server) -> list[list[dict[str, Any]]]:
    bodies = [request.body for request in server.posts() if "/rollouts" in request.path]
    return [[json.loads(line) for line in body.split(b"\n")] for body in bodies]


def test_rows_arrive_as_they_are(server, connect):
    run = connect("a run", url=server.url, attempt=2)
    row = {
        "prompt": "two\nlines \u2028 and \x00",
        "response": "half a pair \ud800",
        "reward": float("nan"),
        "scores": {"format": True, "exact": np.float32(0.5), "missing": None},
        "advantage": np.float64(-1.5),
        "length": np.int64(7),
        "index": 3,
        "group": 17,
        "domain": None,
        "ground_truth": ["a", "b"],
    }
    run.log_rollouts([row, {"response": ""}], 7, time=1.7e9, response_limit=512, measure=False)
    assert run.finish(60)
    (request,) = server.posts()
    parts = urlsplit(request.path)
    query = parse_qs(parts.query)
    assert parts.path == "/v1/runs/a%20run/rollouts"
    assert query.pop("sequence")[0].endswith("-0")
    assert query == {
        "step": ["7"],
        "attempt": ["2"],
        "time": ["1700000000.0"],
        "response_limit": ["512"],
        "measure": ["false"],
    }
    assert request.headers["Content-Type"] == "application/x-ndjson"
    assert request.headers["Content-Encoding"] == "gzip"
    ((first, second),) = sent(server)
    assert first.pop("reward") != first
    assert first == {
        "prompt": row["prompt"],
        "response": row["response"],
        "scores": {"format": 1.0, "exact": 0.5},
        "advantage": -1.5,
        "length": 7,
        "index": 3,
        "group": "17",
        "ground_truth": '["a", "b"]',
    }
    assert second == {"response": ""}
    assert run.rollout_stats() == {"logged": 1, "delivered": 1, "waiting": 0, "dropped": {}}


def test_columns_are_rows_too(server, connect):
    run = connect(url=server.url)
    columns = {
        "prompt": ("p", "q"),
        "response": ["a", "b"],
        "reward": np.array([1, 0]),
        "scores": {"f": [0.5, 1], "g": np.array([1.0, 2.0])},
        "domain": None,
    }
    run.log_rollouts(columns, 1)
    assert run.finish(60)
    assert sent(server)[0][1] == {"prompt": "q", "response": "b", "reward": 0.0, "scores": {"f": 1.0, "g": 2.0}}


def test_numbers_of_torch(server, connect):
    torch = pytest.importorskip("torch")
    run = connect(url=server.url)
    run.log_rollouts({"response": ["a"], "reward": torch.tensor([0.25])}, torch.tensor(3))
    run.log_rollouts([{"response": "a", "reward": torch.tensor(0.5, requires_grad=True)}], 4)
    assert run.finish(60)
    assert [rows[0]["reward"] for rows in sent(server)] == [0.25, 0.5]


def test_nothing_is_imported_for_it(program):
    loaded = program("print(*sorted({'gzip', 'numpy', 'pyarrow', 'duckdb'} & set(sys.modules)))", "").stdout
    assert set(loaded.split()) <= {"gzip"}


def test_later_changes_of_the_trainer_are_not_sent(server, connect):
    released = threading.Event()
    server.script.append(server.Reply(200, when=released))
    run = connect(url=server.url)
    rows = batch(5)
    rows[0]["scores"] = {"f": 1.0}
    run.log_rollouts(batch(0), 0)
    run.log_rollouts(rows, 1)
    rows[0]["response"] = rows[0]["scores"]["f"] = "changed"
    rows.clear()
    released.set()
    assert run.finish(60)
    assert sent(server)[1][0] == {"prompt": "1+1=", "response": "5.0", "reward": 0.0, "scores": {"f": 1.0}}


def test_what_else_a_row_holds_is_not_sent_and_said_once(server, connect, said):
    run = connect(url=server.url)
    for step in range(2):
        run.log_rollouts([{"response": "a", "input_ids": [1, 2], "uid": object()}], step)
    assert run.finish(60)
    assert sent(server)[0] == [{"response": "a"}]
    said.wait("['input_ids', 'uid']")


def test_the_fields_are_those_of_the_service():
    if importlib.util.find_spec("pyarrow") is None:
        pytest.skip("pyarrow is not installed")
    from tocsin_service.rollouts.schema import FIELDS  # noqa: PLC0415 - needs pyarrow

    assert set(FIELDS) == _rollouts.FIELDS


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "no rows"),
        ({}, "no rows"),
        (["text"], "rows as mappings"),
        ({"response": ["a"], "reward": [1, 2]}, "differ in length"),
        ({"response": "abc"}, "is a str"),
        ([{"response": "a", "scores": [1]}], "scores must be a mapping"),
    ],
)
def test_mistakes_are_told_and_counted(server, connect, monkeypatch, rows, problem):
    run = connect(url=server.url)
    with pytest.raises(ValueError, match=problem):
        run.log_rollouts(rows, 1)
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    run.log_rollouts(rows, 1)
    assert run.rollout_stats()["dropped"] == {"invalid": 2}
    assert not run.finish(60)
    assert not server.requests


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"prompt": "a"}, "row 0 has no response"),
        ({"response": "a", "length": -1}, "length must be a whole number"),
        ({"response": "a", "reward": [1, 2]}, "no single number"),
        ({"response": "a", "scores": {"f": "high"}}, "row 0: f: "),
    ],
)
def test_what_only_the_thread_sees_is_said(server, connect, said, row, problem):
    run = connect(url=server.url)
    run.log_rollouts([row], 1)
    assert not run.finish(60)
    assert run.rollout_stats()["dropped"] == {"invalid": 1}
    said.wait(problem)


def test_the_trainer_never_waits_and_the_oldest_gives_way(server, connect, said):
    released = threading.Event()
    server.script.append(server.Reply(200, when=released))
    run = connect(url=server.url)
    run.log_rollouts(batch(0), 0)
    server.wait(lambda server: server.posts())  # it is being sent, and stays so
    for step in range(1, 6):
        run.log_rollouts(batch(step), step)
    assert run.rollout_stats() == {"logged": 6, "delivered": 0, "waiting": 3, "dropped": {"full": 3}}
    said.wait("oldest that waits gives way")
    released.set()
    assert not run.finish(60)  # not all of it
    assert [rows[0]["response"] for rows in sent(server)] == ["0.0", "4.0", "5.0"]


def test_the_memory_is_bounded(server, connect):
    run = connect(url=server.url, max_rollout_bytes=5000)
    run.log_rollouts([{"response": "x" * 10_000}], 1)
    assert run.rollout_stats()["dropped"] == {"too_large": 1}


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (501, "unsupported", "set its rollout_dir"),
        (422, "refused", "nothing like that"),
        (413, "too_large", "fewer rows"),
    ],
)
def test_what_the_server_refuses_is_dropped_and_said(server, connect, said, status, reason, text):
    server.decide = lambda _: server.Reply(status, body=b'{"error": "nothing like that"}')
    run = connect(url=server.url)
    run.log_rollouts(batch(), 1)
    assert not run.finish(60)
    assert run.rollout_stats()["dropped"] == {reason: 1}
    said.wait(text)


def test_a_busy_server_is_asked_again(server, connect, said):
    server.script.append(server.Reply(429, {"Retry-After": "0"}, b'{"error": "full"}'))
    run = connect(url=server.url)
    run.log_rollouts(batch(), 3)
    said.wait("can't send rollouts now (throttled)")
    server.wait(lambda server: len(server.posts()) == 2)
    assert run.finish(60)
    first, second = (request.path for request in server.posts())
    assert first == second


def test_a_redis_takes_no_rollouts(connect, said):
    run = connect(url="redis://127.0.0.1:1/0")
    run.log_rollouts(batch(), 1)
    assert run.rollout_stats()["dropped"] == {"no_service": 1}
    said.wait("the service's address")


def test_all_three_ways_together(server, connect):
    run = connect(url=server.url)
    run.log({"x": 1}, step=1)
    run.log_tensors({"old_log_probs": np.ones(3, np.float32), "response_lengths": np.ones(3, np.int32)}, 1)
    run.log_rollouts(batch(), 1)
    assert run.finish(60)
    assert len(server.posts()) == 3


def test_what_was_logged_is_sent_when_the_interpreter_ends(server, program):
    text = "tocsin.init('r', url=url)\ntocsin.log_rollouts([{'response': 'last words'}], step=4)\n"
    assert program(text, server.url).stderr == ""
    assert sent(server) == [[{"response": "last words"}]]
