"""Hostile requests over the whole API: never a 5xx, never an answer that isn't what it says, nothing unescaped."""

from __future__ import annotations

import gzip
import http.client
import json
import math
import socket
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from prometheus_client.parser import text_string_to_metric_families
from schemathesis import GenerationMode

from tocsin_service.access.links import Links
from tocsin_service.app import Service
from tocsin_service.settings import Settings

RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}
# Printable, so that each may be the name of a run or metric, and an author's or a comment's.
MARKUP = "<img src=x onerror=alert(1)>\"'`&{{7*7}}${7*7}"
SCRIPT = "<script>alert(1)<\\script>"
PUBLIC, SECRET = "https://tocsin.example", "0123456789abcdef"


@dataclass(frozen=True)
class Site:
    """A service with one hostile run, an incident of it, and what people did about that."""

    api: Any
    incident: str
    alert: str

    @property
    def run(self) -> str:
        return quote(MARKUP, safe="")

    def link(self, purpose: Any = "incident") -> str:
        made = urlsplit(Links(PUBLIC, SECRET).make(purpose, MARKUP, self.incident))
        return f"{made.path}?{made.query}"


@pytest.fixture(scope="module")
def site(shared_api: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    kept = {"db": folder / "tocsin.db", "rollout_dir": folder / "rollouts"}
    free = {"max_run_rate": 0, "max_token_rate": 0, "max_runs": 50}
    with Service(Settings(port=0, public_url=PUBLIC, link_secret=SECRET, **kept, **free)) as service:
        api = type(shared_api)(service.address, service)
        config = {"labels": {MARKUP: SCRIPT}, "link": "javascript:alert(1)", "framework": MARKUP}
        assert api.call("PUT", f"/v1/runs/{quote(MARKUP, safe='')}", config).status == 200
        for step in range(3):
            body = {"step": step, "metrics": {MARKUP: math.nan, SCRIPT: math.inf, "actor/pg_loss": math.nan}}
            assert api.post(body, run=MARKUP).status == 202
        api.settle()
        (incident,) = api.get("/v1/incidents").json["incidents"]
        yield Site(api, incident["id"], incident["members"][0])


def do_everything(site: Site) -> None:
    """What people do, with hostile names and reasons."""
    wish = {"author": MARKUP, "comment": SCRIPT}
    run = f"/v1/runs/{site.run}"
    assert site.api.call("POST", f"{run}/incidents/{site.incident}/acknowledge", wish).status == 200
    assert site.api.call("POST", f"{run}/mute", {**wish, "hours": 1}).status == 200
    silence = {**wish, "hours": 1, "matchers": {"run": MARKUP, "labels": {MARKUP: SCRIPT}}}
    assert site.api.call("POST", "/v1/silences", silence).status == 200
    assert site.api.call("POST", f"{run}/rebaseline", {"metric": MARKUP, "note": SCRIPT}).status == 202
    site.api.settle()


class Page(HTMLParser):
    """Collects what a page is made of, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


class TestEscaping:
    def test_in_json(self, site: Site) -> None:
        do_everything(site)
        run = f"/v1/runs/{site.run}"
        paths = ["/v1/runs", run, f"{run}/alerts", f"{run}/incidents", f"{run}/incidents/{site.incident}"]
        paths += [f"{run}/series?metric={site.run}", "/v1/alerts", "/v1/incidents", "/v1/silences", "/v1/audit"]
        for path in paths:
            answer = site.api.get(path)
            assert answer.status == 200, path
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.data.isascii()
            assert MARKUP in json.dumps(answer.json, ensure_ascii=False).replace('\\"', '"'), path

    def test_in_metrics(self, site: Site) -> None:
        text = site.api.get("/metrics").data.decode()
        labels = [
            sample.labels
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "tocsin_alert"
        ]
        assert {label["run"] for label in labels} == {MARKUP}
        assert {MARKUP, SCRIPT} & {label["metric"] for label in labels}

    def test_in_pages(self, site: Site) -> None:
        do_everything(site)
        answer = site.api.get(site.link())
        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "script-src" not in answer.headers["content-security-policy"]
        page = Page(answer.data.decode())
        assert MARKUP in page.text
        assert not page.tags & {"script", "img", "iframe", "object", "embed", "base", "link"}
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert not [value for _, value in page.attributes if value.strip().lower().startswith(("javascript:", "data:"))]

    def test_in_what_a_form_is_answered_with(self, site: Site) -> None:
        origin = {"origin": PUBLIC, "content-type": "application/x-www-form-urlencoded"}
        for form in (f"act={site.run}", f"act=acknowledge&author={site.run}%00&comment={quote(SCRIPT)}"):
            answer = site.api.call("POST", site.link(), form.encode(), origin)
            assert answer.status == 422
            page = Page(answer.data.decode())
            assert not page.tags & {"script", "img"}
            assert not [name for name, _ in page.attributes if name.startswith("on")]

    @pytest.mark.parametrize("path", ["/{}", "/v1/runs/{}%00", "/v1/alerts?state={}", "/v1/runs/run/series?metric={}"])
    def test_in_errors(self, site: Site, path: str) -> None:
        answer = site.api.get(path.format(site.run))
        assert 400 <= answer.status < 500
        assert answer.headers["content-type"] == "application/json"
        assert answer.data.isascii()


# Requests of any kind.

NASTY = [MARKUP, SCRIPT, "", ".", "..", "%", "\x00", "\r\nSet-Cookie: a=b", "\x1b[2J", "\u202e", "\ud800", "é" * 200]
NASTY += ["../../etc/passwd", "<!channel>", "' OR 1=1 --", "9" * 5000, "-1", "NaN", "1e999", "true", "null", "[", "run"]
nasty = st.sampled_from([*NASTY, "*" * 256])
texts = st.one_of(nasty, st.text(max_size=20))
numbers = st.one_of(
    st.sampled_from([b"1e999", b"-1e999", b"NaN", b"-Infinity", b"9" * 100_000, b"0." + b"9" * 100_000, b"1e-999"]),
    st.one_of(st.integers(), st.floats()).map(lambda number: json.dumps(number).encode()),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
FIELDS = ("step", "metrics", "time", "attempt", "sequence", "labels", "link", "finished", "target_kl", "metric", "note")
FIELDS += ("matchers", "starts", "ends", "hours", "author", "comment", "id", "all", "run", "severity", "act", "scope")
shaped = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)
deep = st.integers(1, 2000).flatmap(
    lambda depth: st.sampled_from([b"[" * depth + b"]" * depth, b'{"step":' * depth + b"1" + b"}" * depth])
)
bodies = st.one_of(
    st.binary(max_size=50),
    shaped.map(lambda value: json.dumps(value).encode()),
    st.lists(shaped, max_size=3).map(lambda value: json.dumps(value).encode()),
    st.lists(shaped, max_size=3).map(lambda value: b"\n".join(json.dumps(one).encode() for one in value)),
    numbers.map(lambda number: b'{"step": 1, "metrics": {"a": ' + number + b"}}"),
    numbers.map(lambda number: b'{"step": ' + number + b', "metrics": {}}'),
    numbers.map(lambda number: b'{"author": "a", "comment": "b", "hours": ' + number + b', "matchers": {"run": "x"}}'),
    deep,
    deep.map(lambda value: b'{"step": ' + value + b"}"),
    deep.map(lambda value: b'{"labels": ' + value + b', "author": ' + value + b"}"),
    st.lists(st.tuples(texts, texts), max_size=4).map(lambda pairs: form(pairs).encode()),
)
encoded = st.one_of(
    bodies.map(lambda data: (data, b"")),
    bodies.map(lambda data: (gzip.compress(data), b"gzip")),
    bodies.map(lambda data: (gzip.compress(data)[:-5], b"gzip")),
    bodies.map(lambda data: (zlib.compress(data), b"gzip")),
    bodies.map(lambda data: (gzip.compress(data) * 3, b"gzip")),
    bodies.map(lambda data: (data, b"deflate")),
)
NAMES = [b"content-type", b"authorization", b"origin", b"referer", b"accept-language", b"expect", b"x", b"cookie"]
VALUES = [b"application/x-ndjson", b"100-continue", b"Bearer \xff", b"null", PUBLIC.encode(), b"zh", b"x" * 5000]
plain_bytes = st.binary(max_size=20).map(lambda value: value.translate(None, b"\r\n\0"))
headers = st.lists(st.tuples(st.sampled_from(NAMES), st.one_of(st.sampled_from(VALUES), plain_bytes)), max_size=3)
TARGETS = (
    "/v1/runs/{}", "/v1/runs/{}/steps", "/v1/runs/{}/rebaseline", "/v1/runs/{}/mute", "/v1/runs/{}/series",
    "/v1/runs/{}/alerts", "/v1/runs/{}/incidents", "/v1/runs/{}/incidents/{}", "/v1/runs/{}/incidents/{}/acknowledge",
    "/v1/runs", "/v1/alerts", "/v1/incidents", "/v1/silences", "/v1/silences/{}", "/v1/audit", "/metrics", "/healthz",
    "/readyz", "/openapi.json", "/linked/incident/{}/{}", "/linked/picture/{}/{}.png", "/{}", "/{}/{}",
    "/v1/runs/{}/rollouts", "/v1/runs/{}/rollouts/steps", "/v1/runs/{}/rollouts/diff", "/v1/runs/{}/alerts/{}/samples",
    "/v1/runs/{}/charts", "/v1/overview", "/v1/rules", "/dashboard/{}",
)  # fmt: skip
QUERIES = ("metric", "limit", "after", "state", "severity", "lang", "step", "file", "expires", "signature", "done", "x")


def form(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{quote(name, errors='replace')}={quote(value, errors='replace')}" for name, value in pairs)


def exchange(address: str, method: str, target: bytes, lines: list[tuple[bytes, bytes]], body: bytes) -> Any:
    """One request, byte by byte as given, and its answer."""
    parts = urlsplit(address)
    head = method.encode() + b" " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"".join(name + b": " + value + b"\r\n" for name, value in lines)
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        with suppress(ConnectionError):  # the answer may come before the end
            connection.sendall(head + body)
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        return answer.status, answer.headers, answer.read()


@pytest.fixture(scope="module")
def tensors() -> tuple[str, ...]:
    return () if find_spec("torch") is None else ("/v1/runs/{}/tensors",)


@settings(max_examples=300, **RELAXED)
@given(data=st.data())
def test_requests_of_any_kind(site: Site, tensors: tuple[str, ...], data: st.DataObject) -> None:
    part = st.one_of(st.sampled_from([site.run, site.incident]), texts.map(lambda text: quote(text, errors="replace")))
    target = data.draw(st.sampled_from(TARGETS + tensors)).format(data.draw(part), data.draw(part))
    method = data.draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"]))
    query = form(data.draw(st.lists(st.tuples(st.sampled_from(QUERIES), texts), max_size=4)))
    if target.startswith("/linked") and data.draw(st.booleans()):
        target = site.link("picture" if "picture" in target else "incident")
    body, encoding = data.draw(encoded)
    lines = [*data.draw(headers), *([(b"content-encoding", encoding)] if encoding else [])]
    joined = f"{target}{'&' if '?' in target else '?'}{query}".encode()
    status, found, answer = exchange(site.api.address, method, joined, lines, body)
    assert status < 500, (status, answer)
    check(target, method, status, found, answer)


def check(target: str, method: str, status: int, headers: Any, answer: bytes) -> None:
    """An answer is what it says it is, and nothing of the request became a header."""
    assert "set-cookie" not in headers
    kind = headers.get("content-type", "")
    if method == "HEAD" or status in {204, 303, 307}:
        assert answer == b""
    elif kind == "application/json":
        told = json.loads(answer, parse_constant=pytest.fail)
        assert status < 400 or told["error"]
    elif kind.startswith("text/event-stream"):
        assert target == "/v1/events"
    elif target == "/dashboard/":
        assert kind.startswith("text/html")
    elif kind.startswith("text/html"):
        assert target.startswith("/linked/incident/")
        assert not Page(answer.decode()).tags & {"script", "img", "iframe"}
    elif kind == "image/png":
        assert target.startswith("/linked/picture/")
    else:
        assert kind.startswith("text/plain; version=0.0.4")
        list(text_string_to_metric_families(answer.decode()))


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
def test_requests_made_from_the_description(site: Site, mode: GenerationMode) -> None:
    description = schemathesis.openapi.from_url(f"{site.api.address}/openapi.json")
    description.config.update(request_timeout=60)
    for found in description.get_all_operations():
        operation = found.ok()
        if not operation.path.endswith("/tensors"):  # tests/service/test_tensors_*.py are about these
            send_made_up(site, operation, mode)


def send_made_up(site: Site, operation: Any, mode: GenerationMode) -> None:
    """About things that exist, half of the time: so that what is stored is hostile too."""
    known = {"run": site.run, "incident": site.incident, "alert": site.alert, "silence": "made-up"}

    @settings(max_examples=8, derandomize=True, **RELAXED)
    @given(case=operation.as_strategy(generation_mode=mode), existing=st.booleans())
    def send(case: schemathesis.Case, existing: bool) -> None:
        if existing and case.path_parameters:
            case.path_parameters = {name: known[name] for name in case.path_parameters}
        if case.path == "/v1/events":
            case.query = {**(case.query or {}), "seconds": 0}  # else the answer goes on
        answer = case.call()
        assert answer.status_code < 500, answer.text
        names = {name: values[0] for name, values in answer.headers.items()}
        check(operation.path, operation.method.upper(), answer.status_code, names, answer.content)

    with suppress(Unsatisfiable):  # nothing about the operation can be wrong
        send()


def test_afterwards_everything_works(site: Site) -> None:
    """The last test of the module: the service was sent all of the above."""
    assert site.api.get("/readyz").status == 200
    assert site.api.post({"step": 1, "metrics": {"loss": 1}}, run=MARKUP).status == 202
    site.api.settle()
    assert site.api.get(f"/v1/runs/{site.run}").json["pending"] == 0
    text = site.api.get("/metrics").data.decode()
    assert "tocsin_worker_errors_total 0.0" in text
    list(text_string_to_metric_families(text))
