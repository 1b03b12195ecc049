"""Who gets in, and what every answer carries."""

from __future__ import annotations

from typing import Any

import pytest

TOKEN = "correct-horse-battery"  # noqa: S105 - a test's token
BODY = {"step": 1, "metrics": {"loss": 1}}


@pytest.fixture
def locked(make_api: Any) -> Any:
    return make_api(tokens=("another-token", TOKEN))


def test_a_token_opens(locked: Any) -> None:
    for scheme in ("Bearer", "bearer"):
        assert locked.post(BODY, headers={"authorization": f"{scheme} {TOKEN}"}).status == 202
    assert locked.post(BODY, headers={"authorization": "Bearer another-token"}).status == 202


@pytest.mark.parametrize("value", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer ü"])
def test_nothing_else_does(locked: Any, value: str | None) -> None:
    headers = {} if value is None else {"authorization": value}
    for method, path in (("POST", "/v1/runs/run/steps"), ("GET", "/v1/runs"), ("GET", "/metrics"), ("GET", "/x")):
        answer = locked.call(method, path, BODY if method == "POST" else None, headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "Authorization" in answer.json["error"]
        assert TOKEN not in answer.data.decode()


def test_probes_need_no_token(locked: Any) -> None:
    assert locked.get("/healthz").status == locked.get("/readyz").status == 200


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/v1/runs/a%2Fb", "/v1/runs?limit=x"])
def test_headers_of_every_answer(shared_api: Any, path: str) -> None:
    headers = shared_api.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:8765", "[::1]:8765", "127.8.8.8"])
def test_this_machines_names(shared_api: Any, host: str) -> None:
    assert shared_api.call("GET", "/v1/runs", headers={"host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "localhost.evil.example", "10.0.0.1", "[bad"])
def test_other_names_without_a_token(shared_api: Any, host: str) -> None:
    answer = shared_api.call("GET", "/v1/runs", headers={"host": host})
    assert answer.status == 421
    assert "token" in answer.json["error"]


def test_other_names_with_a_token(locked: Any) -> None:
    headers = {"host": "tocsin.example", "authorization": f"Bearer {TOKEN}"}
    assert locked.call("GET", "/v1/runs", headers=headers).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://[bad"])
def test_requests_of_other_web_sites(shared_api: Any, origin: str) -> None:
    headers = {"origin": origin, "host": "localhost:8765", "content-type": "text/plain"}
    assert shared_api.post(BODY, headers=headers).status == 403
    assert shared_api.get("/v1/runs").json == {"runs": []}


def test_requests_of_the_own_site(shared_api: Any) -> None:
    headers = {"origin": "http://localhost:8765", "host": "localhost:8765"}
    assert shared_api.call("GET", "/v1/runs", headers=headers).status == 200
