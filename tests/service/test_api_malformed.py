"""Malformed and hostile requests: a clear 4xx each, never a 5xx, and nothing stored."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from typing import Any
from urllib.parse import urlsplit

import pytest

from tocsin_service.api import body as body_module

GOOD = {"step": 1, "metrics": {"loss": 0.5}}
GZIP = {"content-encoding": "gzip"}


def with_(**fields: Any) -> dict[str, Any]:
    return {**GOOD, **fields}


BODIES: dict[str, Any] = {
    "empty": b"",
    "blank": b" \n ",
    "not JSON": b"step=1",
    "cut off": b'{"step": 1, "metrics": {"loss"',
    "two values": b"1 2",
    "not UTF-8": b'{"step": 1, "metrics": {"\xff": 1}}',
    "a number": 7,
    "null": b"null",
    "a text": "step",
    "empty list": [],
    "list of lists": [[1]],
    "deep": b"[" * 100_000,
    "deep metric": b'{"step": 1, "metrics": {"a": ' + b'{"a":' * 50_000,
    "no step": {"metrics": {"a": 1}},
    "no metrics": {"step": 1},
    "step null": with_(step=None),
    "step negative": with_(step=-1),
    "step float": with_(step=1.0),
    "step bool": with_(step=True),
    "step text": with_(step="1"),
    "step huge": with_(step=2**53),
    "step digits": b'{"step": ' + b"9" * 5000 + b', "metrics": {}}',
    "step exponent": b'{"step": 1e3, "metrics": {}}',
    "step NaN": with_(step=float("nan")),
    "metrics list": with_(metrics=[1]),
    "metrics null": with_(metrics=None),
    "metric list": with_(metrics={"loss": [1]}),
    "metric mapping": with_(metrics={"loss": {"mean": 1}}),
    "metric text": with_(metrics={"loss": "high"}),
    "metric long text": with_(metrics={"loss": "1" * 100_000}),
    "metric name empty": with_(metrics={"": 1}),
    "metric name long": with_(metrics={"x" * 257: 1}),
    "metric name control": with_(metrics={"a\nb": 1}),
    "metric name surrogate": b'{"step": 1, "metrics": {"\\ud800": 1}}',
    "too many metrics": with_(metrics={f"m{n}": 0 for n in range(2001)}),
    "time text": with_(time="now"),
    "time bool": with_(time=True),
    "time NaN": with_(time=float("nan")),
    "time infinite": with_(time=float("inf")),
    "time 1970": with_(time=12),
    "time in milliseconds": with_(time=1_700_000_000_000),
    "attempt negative": with_(attempt=-1),
    "attempt float": with_(attempt=0.5),
    "attempt text": with_(attempt="first"),
    "sequence number": with_(sequence=1),
    "sequence empty": with_(sequence=""),
    "sequence long": with_(sequence="x" * 129),
    "sequence surrogate": b'{"step": 1, "metrics": {}, "sequence": "\\udfff"}',
    "unknown field": with_(steps=1),
    "key twice": b'{"step": 1, "metrics": {"a": 1, "a": 2}}',
    "bad line": b'{"step": 1, "metrics": {}}\n{"step": 2\n',
    "list in lines": b'{"step": 1, "metrics": {}}\n[{"step": 2, "metrics": {}}]\n',
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_bodies(shared_api: Any, name: str) -> None:
    answer = shared_api.post(BODIES[name])
    assert answer.status == 422
    assert answer.json["error"]
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.data) < 20_000
    assert shared_api.get("/v1/runs").json == {"runs": []}


def test_problems_name_place_field_and_remedy(shared_api: Any) -> None:
    body = b'{"step": 1, "metrics": {"a": 1}}\n{"step": -2, "metrics": {"kl": "high", "b": []}}\n'
    problems = shared_api.post(body).json["problems"]
    assert [(one["index"], one["line"], one["field"]) for one in problems] == [
        (1, 2, "step"),
        (1, 2, "metrics['kl']"),
        (1, 2, "metrics['b']"),
    ]
    assert "'high'" in problems[1]["problem"]
    assert "send a number" in problems[1]["problem"]
    assert "whole number" in problems[0]["problem"]


def test_problems_are_capped(shared_api: Any) -> None:
    assert len(shared_api.post([with_(step=-1)] * 1000).json["problems"]) == 20


def test_problems_hold_no_nan_token(shared_api: Any) -> None:
    answer = shared_api.post([with_(time=float("nan")), {"step": float("inf"), "metrics": [float("nan")]}])
    assert answer.status == 422
    assert len(answer.json["problems"]) == 3


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"not gzip at all", GZIP, 400),
        (gzip.compress(json.dumps(GOOD).encode())[:-9], GZIP, 400),
        (gzip.compress(json.dumps(GOOD).encode()) + b"garbage", GZIP, 400),
        (zlib.compress(b"{}"), GZIP, 400),
        (b"", GZIP, 422),
        (json.dumps(GOOD).encode(), {"content-encoding": "br"}, 415),
        (json.dumps(GOOD).encode(), {"content-encoding": "gzip, gzip"}, 415),
    ],
)
def test_encodings(shared_api: Any, data: bytes, headers: dict[str, str], status: int) -> None:
    answer = shared_api.post(data, headers=headers)
    assert answer.status == status
    assert answer.json["error"]


def test_too_large(make_api: Any) -> None:
    api = make_api(max_body_bytes=10_000, max_decoded_bytes=100_000)
    assert api.post(b" " * 10_001).status == 413
    assert api.post(b" " * 30_000_000).status == 413
    bomb = api.post(gzip.compress(b" " * 5_000_000), headers=GZIP)
    assert bomb.status == 413
    assert "decompression" in bomb.json["error"]
    bombs = b"".join(gzip.compress(b" " * 60_000) for _ in range(2))
    assert api.post(bombs, headers=GZIP).status == 413
    assert 'reason="too_large"} 4.0' in api.get("/metrics").data.decode()


def test_too_many_vectors(make_api: Any) -> None:
    api = make_api(max_batch=3)
    for body in ([GOOD] * 4, json.dumps(GOOD).encode() + b"\n{}" * 10, json.dumps(GOOD).encode() + b"\n" * 10 + b"{}"):
        answer = api.post(body)
        assert answer.status == 413
        assert "at most 3" in answer.json["error"]


@pytest.mark.parametrize("what", ["lists", "objects", "numbers", "names", "lines"])
def test_what_a_small_body_unpacks_to_is_bounded(shared_api: Any, what: str) -> None:
    """A few kilobytes would become gigabytes of values."""
    piece = {"lists": b"[],", "objects": b"{},", "numbers": b"1,", "names": b'"a":1,', "lines": b"{}\n"}[what]
    body = b'{"step":1,"metrics":{}}\n' if what == "lines" else b'{"step":' if what == "names" else b"["
    answer = shared_api.post(gzip.compress(body + piece * (20_000_000 // len(piece)) + b"1", 1), headers=GZIP)
    assert answer.status == 413
    assert "send" in answer.json["error"]


def test_many_unknown_fields(shared_api: Any) -> None:
    fields = ",".join(f'"{number}":1' for number in range(100_000))
    answer = shared_api.post(f'{{"step":1,"metrics":{{}},{fields}}}'.encode())
    assert answer.status == 422
    assert len(answer.json["problems"]) == 20


@pytest.mark.parametrize("place", [b'{"step": %s}', b'{"step": 1, "metrics": {"a": %s}}', b"%s"])
def test_any_depth(shared_api: Any, place: bytes) -> None:
    """Also what is just shallow enough to be parsed can be told of."""
    for depth in range(880, 1000, 4):
        for opened, closed in ((b"[", b"]"), (b'{"a":', b"}")):
            answer = shared_api.post(place % (opened * depth + b"1" + closed * depth))
            assert answer.status == 422
            assert len(answer.data) < 2000


def test_gzip_of_many_members(shared_api: Any) -> None:
    body = gzip.compress(json.dumps(GOOD).encode()[:-1]) + gzip.compress(b"") * 1_000 + gzip.compress(b"}")
    assert shared_api.post(body + b"\0", headers=GZIP).status == 400
    answer = shared_api.post(gzip.compress(b"") * 300_000, headers=GZIP)
    assert answer.status == 400
    assert "members" in answer.json["error"]


def test_gzip_in_pieces(api: Any) -> None:
    data = json.dumps({"step": 1, "metrics": {f"metric/{n}": n / 7 for n in range(2_000)}}).encode()
    body = b"".join(gzip.compress(data[start : start + 7_000]) for start in range(0, len(data), 7_000))
    assert api.post(body, headers=GZIP).json == {"accepted": 1, "repeated": 0}


def test_chunks_without_end(shared_api: Any) -> None:
    parts = urlsplit(shared_api.address)
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(b"POST /v1/runs/run/steps HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(65):
            connection.sendall(chunk)
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_never_ends(shared_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "READ_SECONDS", 0.3)
    parts = urlsplit(shared_api.address)
    for head in (b"Content-Length: 1000", b"Transfer-Encoding: chunked"):
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
            connection.sendall(b"POST /v1/runs/run/steps HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n1\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "path", ["a%2Fb", "a%5cb", "%ff", "%00", "a%0Ab", "%E2%80%AE", "x" * 129, "%c0%af", "%ed%a0%80"]
)
@pytest.mark.parametrize(("method", "tail"), [("POST", "/steps"), ("GET", "/alerts"), ("PUT", "")])
def test_run_ids_that_are_none(shared_api: Any, method: str, path: str, tail: str) -> None:
    answer = shared_api.call(method, f"/v1/runs/{path}{tail}", GOOD if method == "POST" else {})
    assert answer.status == 422
    assert answer.json["error"]
    assert shared_api.get("/v1/runs").json == {"runs": []}


@pytest.mark.parametrize("run", [".", ".."])
def test_dots(shared_api: Any, run: str) -> None:
    assert shared_api.post(GOOD, run=run).status == 422


@pytest.mark.parametrize(
    "path", ["/v2", "/v1", "/v1/runs/", "/v1/runs//steps", "/v1/runs/a/b/c", "/docs", "/admin.php"]
)
def test_paths_that_lead_nowhere(shared_api: Any, path: str) -> None:
    answer = shared_api.get(path)
    assert answer.status == 404
    assert answer.json["error"]


def test_methods_that_are_not_possible(shared_api: Any) -> None:
    answer = shared_api.call("DELETE", "/v1/runs/a")
    assert answer.status == 405
    assert answer.json["error"]
    assert "PUT" in answer.headers["allow"] or "GET" in answer.headers["allow"]


CONFIGS: dict[str, Any] = {
    "list": [],
    "unknown": {"algo": "grpo"},
    "algorithm number": {"algorithm": 1},
    "algorithm long": {"algorithm": "x" * 257},
    "group size 0": {"group_size": 0},
    "group size float": {"group_size": 8.0},
    "kl 0": {"target_kl": 0},
    "kl NaN": {"target_kl": float("nan")},
    "temperature infinite": {"temperature": float("inf")},
    "temperature huge": b'{"temperature": 1' + b"0" * 400 + b"}",
    "profile": {"profile": "sparse"},
    "profile list": {"profile": ["moe"]},
    "warm-up": {"critic_warmup": -1},
    "whitened": {"whitened_advantages": 1},
    "labels list": {"labels": ["a"]},
    "labels number": {"labels": {"a": 1}},
    "labels surrogate": b'{"labels": {"a": "\\ud800"}}',
    "link": {"link": "x" * 2001},
    "empty": b"",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_malformed_configurations(shared_api: Any, name: str) -> None:
    answer = shared_api.call("PUT", "/v1/runs/run", CONFIGS[name])
    assert answer.status == 422
    assert answer.json["error"]
    assert shared_api.get("/v1/runs").json == {"runs": []}


@pytest.mark.parametrize("body", [[], {"metric": 1}, {"metric": ""}, {"note": 3}, {"note": "x" * 1001}, {"all": True}])
def test_malformed_rebaselines(api: Any, body: Any) -> None:
    api.post(GOOD)
    assert api.call("POST", "/v1/runs/run/rebaseline", body).status == 422


@pytest.mark.parametrize(
    "query",
    [
        "",
        "metric=",
        "metric=loss&limit=0",
        "metric=loss&limit=x",
        "metric=loss&limit=999999",
        "metric=loss&after=-1",
        "metric=loss&after=1.5",
        "metric=loss&after=" + "9" * 400,
        "&".join(f"metric=m{n}" for n in range(51)),
    ],
)
def test_malformed_queries(api: Any, query: str) -> None:
    api.post(GOOD)
    answer = api.get(f"/v1/runs/run/series?{query}")
    assert answer.status == 422
    assert answer.json["problems"]


@pytest.mark.parametrize("query", ["state=open", "severity=page", "severity=", "limit=-1"])
def test_malformed_filters(shared_api: Any, query: str) -> None:
    assert shared_api.get(f"/v1/alerts?{query}").status == 422


def test_a_client_that_leaves_in_the_middle(api: Any) -> None:
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(b"POST /v1/runs/run/steps HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert api.post(GOOD).json == {"accepted": 1, "repeated": 0}


@pytest.mark.parametrize("length", [b"-5", b"ten", b"1\r\nContent-Length: 2"])
def test_broken_http(shared_api: Any, length: bytes) -> None:
    parts = urlsplit(shared_api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/runs/run/steps HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\n{}"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
