"""POST steps: what is taken, what it means, and that a repetition changes nothing."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from starlette.routing import Match

from tocsin_service.api.context import RunId
from tocsin_service.api.steps import ShortCut

SHORT_CUT, RUN_ID = ShortCut(), TypeAdapter(RunId)


def series(api: Any, metric: str = "loss", run: str = "run", query: str = "") -> tuple[list[int], list[Any]]:
    answer = api.get(f"/v1/runs/{run}/series?metric={metric}{query}")
    assert answer.status == 200
    (one,) = answer.json["series"]
    return one["steps"], one["values"]


def vector(step: int, **metrics: Any) -> dict[str, Any]:
    return {"step": step, "metrics": metrics or {"loss": 0.5}}


def test_one_vector(api: Any) -> None:
    answer = api.post(vector(3, loss=0.25))
    assert (answer.status, answer.json) == (202, {"accepted": 1, "repeated": 0})
    assert series(api) == ([3], [0.25])


def test_a_list(api: Any) -> None:
    assert api.post([vector(1), vector(2), vector(3)]).json == {"accepted": 3, "repeated": 0}
    assert series(api)[0] == [1, 2, 3]


@pytest.mark.parametrize("headers", [{"content-type": "application/x-ndjson"}, {}], ids=["declared", "by its looks"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_ndjson(api: Any, headers: dict[str, str], end: str) -> None:
    lines = end.join(json.dumps(vector(step)) for step in (1, 2)) + end + end
    assert api.post(lines.encode(), headers=headers).json == {"accepted": 2, "repeated": 0}


def test_json_over_several_lines_is_not_ndjson(api: Any) -> None:
    assert api.post(json.dumps([vector(1), vector(2)], indent=2).encode()).json["accepted"] == 2
    assert api.post(json.dumps(vector(3), indent=2).encode()).json["accepted"] == 1


def test_gzip(api: Any) -> None:
    data = gzip.compress(json.dumps([vector(1)]).encode()) + gzip.compress(b"\n")
    assert api.post(data, headers={"content-encoding": "gzip"}).json == {"accepted": 1, "repeated": 0}


def test_every_spelling_of_a_number(api: Any) -> None:
    texts = b'NaN Infinity -Infinity "nan" "inf" "-Infinity" null true "0.5" 1e400 "tensor(2.)" 123456789012345678901 7'
    metrics = b", ".join(b'"%c": %s' % pair for pair in zip(b"abcdefghijklm", texts.split(), strict=True))
    body = b'{"step": 1, "metrics": {%s}}' % metrics
    assert api.post(body).status == 202
    found = api.get("/v1/runs/run/series?" + "&".join(f"metric={name}" for name in "abcdefghijklm")).json["series"]
    expected = ["NaN", "Infinity", "-Infinity", "NaN", "Infinity", "-Infinity", "NaN", 1.0, 0.5, "Infinity", 2.0]
    assert [one["values"][0] for one in found] == [*expected, 1.2345678901234568e20, 7.0]


def test_a_repeated_post_changes_nothing(api: Any) -> None:
    body = [vector(1, loss=float("nan")), {"step": 2, "metrics": {"b": 1, "a": 2}, "time": 1.7e9}]
    assert api.post(body).json == {"accepted": 2, "repeated": 0}
    again = [vector(1, loss="nan"), {"time": 1.7e9, "metrics": {"a": 2.0, "b": 1.0}, "step": 2}]
    assert api.post(again).json == {"accepted": 0, "repeated": 2}
    assert api.get("/v1/runs/run").json["vectors"] == 2


def test_a_vector_twice_in_one_body_counts_once(api: Any) -> None:
    assert api.post([vector(1), vector(1)]).json == {"accepted": 1, "repeated": 1}


def test_sequence_decides_what_is_a_repetition(api: Any) -> None:
    assert api.post({**vector(1, a=1), "sequence": "x-1"}).json["accepted"] == 1
    assert api.post({**vector(1, a=2), "sequence": "x-1"}).json["repeated"] == 1
    assert api.post({**vector(1, a=1), "sequence": "x-2"}).json["accepted"] == 1
    assert api.post({**vector(1, a=1), "sequence": "x-1", "attempt": 1}).json["accepted"] == 1


def test_runs_are_apart(api: Any) -> None:
    assert api.post(vector(1), run="a").json["accepted"] == 1
    assert api.post(vector(1), run="b").json["accepted"] == 1


@pytest.mark.parametrize(
    "run", ["r", "qwen 7b", "训练-7", "a.b:c@d+e=f&g?h#i", "...", "%41", "x" * 128, "\"<&>'", "🔔"]
)
def test_run_ids(api: Any, run: str) -> None:
    assert api.post(vector(1), run=run).status == 202
    assert [one["run"] for one in api.get("/v1/runs").json["runs"]] == [run]


def test_a_large_batch(api: Any) -> None:
    body = [{"step": step, "metrics": {f"m{n}": n / 7 for n in range(40)}} for step in range(2000)]
    assert api.post(body).json == {"accepted": 2000, "repeated": 0}
    assert series(api, "m3", query="&after=1990")[0] == list(range(1991, 2000))


def test_too_many_runs(make_api: Any) -> None:
    api = make_api(max_runs=2)
    assert [api.post(vector(1), run=run).status for run in ("a", "b")] == [202, 202]
    answer = api.post(vector(1), run="c")
    assert answer.status == 429
    assert "max_runs" in answer.json["error"]
    assert "retry-after" in answer.headers
    assert api.post(vector(2), run="a").status == 202  # known runs go on


def test_nothing_of_a_bad_body_is_stored(api: Any) -> None:
    assert api.post([vector(1), vector(-1)]).status == 422
    assert api.get("/v1/runs").json == {"runs": []}


@given(run=st.text(max_size=4) | st.text("ab\n\x7f\x85 /\\.é", max_size=4))
@example(run="qwen-grpo-7")
@example(run=".")
@example(run="..")
@example(run="x" * 128)
@example(run="x" * 129)
def test_the_short_cut_is_for_the_run_ids_that_are_good(run: str) -> None:
    try:
        RUN_ID.validate_python(run)
    except ValidationError:
        wanted = Match.NONE
    else:
        wanted = Match.FULL
    scope = {"type": "http", "method": "POST", "path": f"/v1/runs/{run}/steps"}
    assert SHORT_CUT.matches(scope)[0] is wanted
    assert SHORT_CUT.matches({**scope, "method": "GET"})[0] is Match.NONE
