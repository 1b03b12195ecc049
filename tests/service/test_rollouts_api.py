"""/v1/runs/{run}/rollouts: what comes in is kept and measured, what is asked for is found, and the rest is refused."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from tests.service.rollout_rows import arrow, get, ndjson, parquet, post, rows  # noqa: E402 - they need pyarrow

from tocsin_service.api.rollout_models import DiffModel, KeptModel, RowList, StepList  # noqa: E402
from tocsin_service.app import Service  # noqa: E402
from tocsin_service.settings import Settings  # noqa: E402


@pytest.fixture
def log(make_api: Callable[..., Any], tmp_path: Path) -> Any:
    return make_api(rollout_dir=tmp_path / "rollouts")


@pytest.fixture(scope="module")
def shared_log(tmp_path_factory: pytest.TempPathFactory, api_at: Any) -> Iterator[Any]:
    """For requests that are refused."""
    folder = tmp_path_factory.mktemp("rollouts")
    with Service(Settings(port=0, db=folder / "tocsin.db", rollout_dir=folder / "rollouts")) as service:
        yield api_at(service.address, service)


@pytest.fixture(scope="module")
def api_at(shared_api: Any) -> Any:
    """Makes an API at any address."""
    return type(shared_api)


def test_rows_come_back_as_they_were_sent(log: Any) -> None:
    sent = rows(4, scores={"format": 0.5, "exact": math.nan}, domain="math", advantage=-0.25, ground_truth="4")
    answer = post(log, sent, step=3, attempt=2, time=1.7e9)
    assert answer.status == 202, answer.data
    KeptModel.model_validate(answer.json)
    assert (answer.json["accepted"], answer.json["rows"], answer.json["kept"]) == (1, 4, 4)
    found = get(log, step=3)
    RowList.model_validate(found.json)
    for row, (one, place) in zip(found.json["rows"], ((row, place) for place, row in enumerate(sent)), strict=True):
        expected = {**one, "scores": {"format": 0.5, "exact": "NaN"}}
        assert {name: row[name] for name in expected} == expected
        assert (row["step"], row["attempt"], row["time"], row["row"]) == (3, 2, 1.7e9, place)
        assert (row["chars"], row["repetition"]) == (len(one["response"]), 0.0)


def test_every_format_says_the_same(log: Any) -> None:
    sent = rows(8)
    table = pa.Table.from_pylist([{**row, "scores": {"a": float(row["index"])}} for row in sent])
    for row in sent:
        row["scores"] = {"a": float(row["index"])}
    mapped = table.set_column(
        table.schema.get_field_index("scores"),
        "scores",
        pa.array([list(row["scores"].items()) for row in sent], pa.map_(pa.string(), pa.float64())),
    )
    encoded = mapped.set_column(0, "prompt", mapped.column("prompt").dictionary_encode())
    bodies = [
        ndjson(sent),
        json.dumps(sent).encode(),
        b"\xef\xbb\xbf" + ndjson(sent) + b"\n\n",
        arrow(mapped),
        arrow(mapped, file=True),
        arrow(encoded),
        parquet(mapped),
        parquet(encoded, compression="snappy"),
        parquet(table),
    ]
    answers = [post(log, body, step=step) for step, body in enumerate(bodies)]
    answers.append(post(log, gzip.compress(bodies[0]), step=len(bodies), headers={"content-encoding": "gzip"}))
    for step, answer in enumerate(answers):
        assert answer.status == 202, (step, answer.data)
        assert answer.json["metrics"] == answers[0].json["metrics"], step
        (first, *_) = get(log, step=step, limit=1).json["rows"]
        assert (first["prompt"], first["scores"]) == ("What is 0+1?", {"a": 0.0})


def test_the_metrics_join_the_step_and_the_rules_see_them(log: Any) -> None:
    """Nothing but rollouts is sent: a reward that falls is heard of all the same, and shown."""
    for step in range(60):
        right = 6 if step < 45 else 0
        sent = [
            {**row, "reward": float(place < right), "response": "loop " * 40 if step >= 45 else row["response"]}
            for place, row in enumerate(rows(8, length=None))
        ]
        assert post(log, sent, step=step, time=1.7e9 + step).status == 202
    log.settle()
    series = log.get("/v1/runs/run/series?metric=critic/score/mean&metric=response/repetition_mean").json["series"]
    assert series[0]["values"][-1] == 0.0
    assert series[1]["values"][-1] > 0.9
    fired = {alert["rule"]: alert for alert in log.get("/v1/runs/run/alerts").json["alerts"]}
    assert fired["length_shift"]["metric"] == "response_chars/mean"
    alert = fired["reward_collapse"]
    assert alert["onset_step"] == 45
    found = log.get(f"{alert['samples']}?limit=2").json
    assert (found["onset"]["step"], found["healthy"]["step"]) == (45, 44)
    assert (found["onset"]["reward_mean"], found["healthy"]["reward_mean"]) == (0.0, 0.75)
    lowest = found["evidence"][0]
    assert lowest["kind"] == "lowest reward"
    assert [row["reward"] for row in lowest["healthy"]] == [0.0, 0.0]
    assert lowest["onset"][0]["response"].startswith("loop loop")


def test_a_step_that_has_gone_by_stays_one_step(log: Any) -> None:
    log.post([{"step": step, "metrics": {"actor/entropy": 0.5}, "time": 1.7e9 + step} for step in range(3)])
    post(log, rows(), step=1, time=1.7e9 + 1.5)
    log.settle()
    run = log.get("/v1/runs/run").json
    assert (run["attempt"], run["pending"]) == (0, 0)


def test_a_repetition_changes_nothing(log: Any) -> None:
    for _ in range(2):
        plain = post(log, rows(), time=1.7e9)
        named = post(log, rows(), step=2, time=1.7e9, sequence="a-1")
    assert [(one.json["accepted"], one.json["repeated"]) for one in (plain, named)] == [(0, 1), (0, 1)]
    assert named.json["kept"] == 8
    other = post(log, rows(4), step=2, time=1.7e9, sequence="a-1")  # another body under the same name
    assert other.json["repeated"] == 1
    assert [one["rows"] for one in get(log, "/steps").json["steps"]] == [8, 8]


def test_filter_sort_and_page(log: Any) -> None:
    sent = rows(8)
    for place, row in enumerate(sent):
        row |= {"reward": [3.0, math.nan, -1.0, None, 0.5, 0.5, 2.0, 1.0][place], "domain": "ab"[place % 2]}
    post(log, sent)

    def rewards(**query: Any) -> list[Any]:
        return [row["reward"] for row in get(log, step=1, **query).json["rows"]]

    assert rewards(sort="reward") == [-1.0, 0.5, 0.5, 1.0, 2.0, 3.0, "NaN", None]
    assert rewards(sort="reward", order="desc", limit=2) == ["NaN", 3.0]
    assert rewards(sort="reward", limit=3, offset=2) == [0.5, 1.0, 2.0]
    assert rewards(domain="a", group="0") == [3.0, -1.0]
    assert rewards(least_reward=0.5, most_reward=1) == [0.5, 0.5, 1.0]
    assert rewards(contains="It is 7,") == [1.0]
    assert rewards(finish_reason="length") == []
    assert [row["index"] for row in get(log, step=1, sort="length", order="desc", limit=2).json["rows"]] == [7, 6]


def test_extremes_of_a_range(log: Any) -> None:
    for step in range(6):
        post(log, [{**row, "reward": step + place / 10} for place, row in enumerate(rows(4))], step=step)
    found = get(log, limit=2).json["rows"]
    assert [(row["step"], row["reward"]) for row in found] == [(0, 0.0), (0, 0.1)]
    found = get(log, first=2, last=3, sort="reward", order="desc", limit=2).json["rows"]
    assert [(row["step"], row["reward"]) for row in found] == [(3, 3.3), (3, 3.2)]
    assert get(log, first=9).json["rows"] == []
    assert get(log, step=9).json["rows"] == get(log, step=3, first=4).json["rows"] == []
    assert len(get(log, step=3, first=2, last=5).json["rows"]) == 4
    steps = get(log, "/steps", first=1, last=4, limit=3).json
    StepList.model_validate(steps)
    assert [one["step"] for one in steps["steps"]] == [4, 3, 2]


def test_two_steps_beside_each_other(log: Any) -> None:
    post(log, rows(8), step=1)
    post(log, [{**row, "reward": 0.0} if row["group"] == "1" else row for row in rows(8)], step=9)
    found = get(log, "/diff", before=1, after=9).json
    DiffModel.model_validate(found)
    assert (found["before"]["reward_mean"], found["after"]["reward_mean"]) == (0.5, 0.25)
    assert [(one["prompt"], one["after_reward"]) for one in found["prompts"]] == [
        ("What is 1+1?", 0.0),
        ("What is 0+1?", 0.5),
    ]
    missing = get(log, "/diff", before=1, after=2)
    assert missing.status == 404
    assert "no rollouts of step 2" in missing.json["error"]


def test_hostile_texts(log: Any) -> None:
    texts = [
        "\x1b[31mred\x07\x00 nul",
        "\u202eright to left\u2028\u2029",
        "'; DROP TABLE rollouts; --",
        "<script>alert(1)</script>",
        "\N{PILE OF POO}" * 50,
        "",
    ]
    sent = [{"response": text, "prompt": text, "group": "' OR 1=1 --", "reward": 1} for text in texts]
    halves = [{"response": "half \ud800 of a pair \udc00"}, {"response": "whole \ud83d\ude00"}]
    body = ndjson(sent) + b"\n" + ndjson(halves)
    run = "a/../'; --".replace("/", "-")
    answer = post(log, body, run=run)
    assert answer.status == 202, answer.data
    assert answer.json["warnings"] == ["1 texts held halves of surrogate pairs: replaced by U+FFFD"]
    found = get(log, run=run, step=1).json["rows"]
    assert [row["response"] for row in found[: len(texts)]] == texts
    assert [row["response"] for row in found[len(texts) :]] == ["half \ufffd of a pair \ufffd", "whole \U0001f600"]
    assert len(get(log, run=run, step=1, group="' OR 1=1 --").json["rows"]) == len(texts)
    assert get(log, run=run, step=1, group="' OR 2=2 --").json["rows"] == []


def test_a_huge_response_is_measured_as_a_whole_and_kept_without_its_middle(log: Any) -> None:
    text = "begin " + "x" * 10_000_000 + " end"
    answer = post(log, [{"response": text}])
    assert answer.status == 202
    assert answer.json["metrics"]["response_chars/max"] == len(text)
    assert answer.json["metrics"]["response/repetitive_ratio"] == 1.0
    (row,) = get(log, step=1, limit=1, text=2**20).json["rows"]
    assert (row["chars"], len(row["response"])) == (len(text), 2**20)
    assert row["response"].startswith("begin xxx")
    assert row["response"].endswith("xxx end")
    (short,) = get(log, step=1, limit=1, text=10).json["rows"]
    assert short["response"] == "begin xxxx"
    (bounded,) = get(log, step=1, limit=1000, text=2**20).json["rows"]
    assert len(bounded["response"]) == 8 * 2**20 // 1000


def test_what_was_not_measured_joins_nothing(log: Any) -> None:
    answer = post(log, rows(), measure="false")
    assert (answer.json["accepted"], answer.json["metrics"]) == (0, {})
    assert log.get("/v1/runs/run").status == 404


def test_a_service_without_a_log_says_so(api: Any) -> None:
    answer = post(api, rows())
    assert answer.status == 501
    assert "set its rollout_dir" in answer.json["error"]
    assert get(api, step=1).status == 501
    assert post(api, b"x" * 20_000_000).status == 501  # heard although nothing of it was wanted


def test_the_command_sends_what_trl_has_written(log: Any, tmp_path: Path) -> None:
    folder = tmp_path / "completions"
    folder.mkdir()
    for step in (1, 2, 3):
        table = {"step": [step] * 2, "prompt": ["p"] * 2, "completion": ["a", "b"], "right": [1.0, 0.0]}
        (folder / f"completions_{step:05d}.parquet").write_bytes(parquet(pa.table(table | {"advantage": [0.7, -0.7]})))
    command = [sys.executable, "-m", "tocsin_service", "rollouts", str(tmp_path / "completions")]
    for _ in range(2):
        done = subprocess.run(
            [*command, "--url", log.address, "--run", "trl"], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    steps = get(log, "/steps", run="trl").json["steps"]
    assert [(one["step"], one["rows"]) for one in steps] == [(3, 2), (2, 2), (1, 2)]
    assert log.get("/v1/runs/trl").json["vectors"] == 3
    (best, _) = get(log, run="trl", step=3, sort="advantage", order="desc").json["rows"]
    assert (best["response"], best["reward"], best["scores"]) == ("a", 1.0, {"right": 1.0})


def test_two_processes_on_one_redis_share_the_files(redis_server: Any, tmp_path: Path, api_at: Any) -> None:
    settings = Settings(port=0, store=redis_server.url, rollout_dir=tmp_path / "rollouts")
    with Service(settings) as one, Service(settings) as other:
        first, second = (api_at(service.address, service) for service in (one, other))
        assert post(first, rows(), step=1, time=1.7e9).json["accepted"] == 1
        assert len(get(second, step=1).json["rows"]) == 8
        assert post(second, rows(), step=1, time=1.7e9).json["repeated"] == 1
        assert [one["rows"] for one in get(first, "/steps").json["steps"]] == [8]


def test_runs_do_not_see_each_other(log: Any) -> None:
    for run in ("one", "One", "one ", "eins"):
        post(log, [{"response": run}], run=run)
        assert [row["response"] for row in get(log, run=run, step=1).json["rows"]] == [run]
    assert get(log, run="other", step=1).status == 404


BAD_ROWS = {
    "field 'rewards'": {"response": "a", "rewards": 1},
    "response": {"prompt": "a"},
    "reward": {"response": "a", "reward": "high"},
    "length": {"response": "a", "length": -1},
    "index": {"response": "a", "index": 1.5},
    "scores": {"response": "a", "scores": [1]},
    "group": {"response": "a", "group": ""},
    "domain": {"response": "a", "domain": "x" * 257},
    "ground_truth": {"response": "a", "ground_truth": ["4"]},
    "finish_reason": {"response": "a", "finish_reason": 7.5},
    "prompt": {"response": "a", "prompt": [{"role": "user"}]},
}


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_wrong_row_refuses_all(shared_log: Any, row: dict[str, Any]) -> None:
    answer = post(shared_log, [{"response": "good"}, row])
    assert answer.status == 422
    (problem,) = answer.json["problems"]
    assert problem["line"] == 2
    assert "send" in problem["problem"] or "the fields are" in problem["problem"]
    assert shared_log.get("/v1/runs/run").status == 404


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is empty"),
        (b"[]", "no rows"),
        (b"7\n8", "send an object"),
        (b'{"response": "a"}\n{"response": ', "line 2: not valid JSON"),
        (b'{"response": "a", "response": "b"}', "stands twice"),
        (b'{"response": "\xff"}', "not UTF-8 (byte 14)"),
        (b"[" * 100_000, "nested too deeply"),
        (b"PAR1 and no more", "can't be read as Parquet"),
        (b"ARROW1 and no more", "can't be read as Arrow IPC"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00garbage", "can't be read as Arrow IPC"),
    ],
)
def test_broken_bodies(shared_log: Any, body: bytes, text: str) -> None:
    answer = post(shared_log, body)
    assert answer.status == 422, answer.data
    told = answer.json["error"] + str(answer.json.get("problems", ""))
    assert text in told


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"stap": 1}, "no parameter 'stap'"),
        ({"step": -1}, "step"),
        ({"time": 17}, "time"),
        ({"sequence": "a\nb"}, "sequence"),
        ({"response_limit": 0}, "response_limit"),
    ],
)
def test_wrong_parameters(shared_log: Any, query: dict[str, Any], text: str) -> None:
    answer = post(shared_log, rows(), **query)
    assert answer.status == 422
    assert text in json.dumps(answer.json)


def test_wrong_questions(log: Any) -> None:
    post(log, rows())
    for query, text in (
        ({"limit": 1001}, "limit"),
        ({"sort": "response"}, "sort"),
        ({"order": "up"}, "order"),
        ({"wanted": 1}, "no parameter 'wanted'"),
    ):
        answer = get(log, **query)
        assert answer.status == 422, query
        assert text in json.dumps(answer.json)


def test_bodies_have_a_limit(make_api: Callable[..., Any], tmp_path: Path) -> None:
    log = make_api(rollout_dir=tmp_path / "rollouts", max_rollout_bytes=10_000)
    for body, headers in (
        (ndjson(rows(200)), None),
        (gzip.compress(b" " * 20_000), {"content-encoding": "gzip"}),
    ):
        answer = post(log, body, headers=headers)
        assert answer.status == 413
        assert "send fewer rollouts" in answer.json["error"]
    # A text that stands once and is meant ten thousand times.
    table = pa.table({"response": pa.array(["x" * 100] * 10_000).dictionary_encode()})
    small = make_api(rollout_dir=tmp_path / "other", db=tmp_path / "other.db", max_rollout_bytes=100_000)
    for body in (arrow(table), parquet(table)):
        assert len(body) < 60_000
        refused = post(small, body)
        assert refused.status == 422
        assert "larger than 100000 bytes after decompression" in refused.json["error"]


def test_wrong_columns(shared_log: Any) -> None:
    for table, text in (
        (pa.table({"reward": [1.0]}), "column response is missing"),
        (pa.table({"response": ["a"], "extra": [1]}), "no column 'extra'"),
        (pa.table({"response": ["a", None]}), "a response is null"),
        (pa.table({"response": ["a"], "reward": ["high"]}), "reward"),
        (pa.table({"response": ["a"], "length": [-1]}), "send a whole number"),
        (pa.table({"response": ["a"], "domain": ["x" * 300]}), "at most 256"),
        (pa.table({"response": ["a"], "scores": [[1.0]]}), "scores"),
        (pa.table({"response": pa.array([], pa.string())}), "no rows"),
        (pa.table({"response": [["a"]]}), "response"),
    ):
        for body in (arrow(table), parquet(table)):
            answer = post(shared_log, body)
            assert answer.status == 422, (text, answer.data)
            assert text in answer.json["error"]


def test_what_is_refused_is_counted(log: Any) -> None:
    post(log, b"")
    post(log, rows(8))
    text = log.get("/metrics").data.decode()
    assert 'tocsin_rollout_rejected_total{reason="content"} 1.0' in text
    assert "tocsin_rollout_rows_total 8.0" in text
