"""Who gets in, and what every answer carries."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tocsin_service.api.guard import Guard
from tocsin_service.settings import Settings

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


def test_a_header_of_a_proxy_is_no_name(shared_api: Any) -> None:
    headers = {"host": "evil.example", "x-forwarded-host": "localhost", "forwarded": "host=localhost;for=127.0.0.1"}
    assert shared_api.call("GET", "/v1/runs", headers=headers).status == 421


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


LINK = "/linked/incident/run/0123456789abcdef"


class TestBehindAProxy:
    """People come by the public address; what the proxy calls the service by is another."""

    @pytest.fixture
    def behind(self, make_api: Any) -> Any:
        return make_api(public_url="https://tocsin.example", link_secret="0123456789abcdef")  # noqa: S106 - a test's

    def test_the_public_name_opens_links_alone(self, behind: Any) -> None:
        headers = {"host": "tocsin.example"}
        assert behind.call("GET", LINK, headers=headers).status not in {401, 421}
        assert behind.call("GET", "/v1/runs", headers=headers).status == 421
        assert behind.call("GET", LINK, headers={"host": "evil.example"}).status == 421

    def test_the_public_site_is_no_other(self, behind: Any) -> None:
        headers = {"origin": "https://tocsin.example", "host": "127.0.0.1:8765"}
        assert behind.call("GET", "/v1/runs", headers=headers).status == 200
        for origin in ("https://tocsin.example.evil", "https://evil.example", "null"):
            assert behind.call("GET", "/v1/runs", headers={**headers, "origin": origin}).status == 403


async def _page(_scope: Any, _receive: Any, send: Any) -> None:
    headers = [(b"content-security-policy", b"default-src 'self'"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("secure", [False, True])
def test_a_page_keeps_its_own_policy(secure: bool) -> None:
    settings = Settings(tls_cert_file=Path("c"), tls_key_file=Path("k")) if secure else Settings()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(_page, settings, lambda _: None)(scope, None, send))  # type: ignore[arg-type]
    headers = sent[0]["headers"]
    assert [value for name, value in headers if name == b"content-security-policy"] == [b"default-src 'self'"]
    assert dict(headers)[b"x-content-type-options"] == b"nosniff"
    assert (b"strict-transport-security" in dict(headers)) == secure


@pytest.mark.parametrize(
    ("tokens", "headers", "path", "actor"),
    [
        ((), {}, "/v1/runs", "local"),
        ((), {}, LINK, "link"),
        (("alice admin,read some-token",), {b"authorization": b"Bearer some-token"}, "/v1/runs", "alice"),
        (("some-token",), {b"authorization": b"Bearer some-token"}, "/v1/runs", "token"),
        (("some-token",), {}, LINK, "link"),
    ],
)
def test_who_did_it(tokens: Any, headers: Any, path: str, actor: str) -> None:
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["tocsin.actor"])

    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost"), *headers.items()]}
    asyncio.run(Guard(app, Settings(tokens=tokens), lambda _: None)(scope, None, None))  # type: ignore[arg-type]
    assert seen == [actor]
