"""The page behind a signed link: it shows an incident to whoever has the link, and lets them act on it."""

from __future__ import annotations

import ast
import base64
import hashlib
import inspect
import math
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tocsin_service.access.links import Links
from tocsin_service.api import linked
from tocsin_service.app import Service
from tocsin_service.pages import incident as incident_page
from tocsin_service.pages import markup
from tocsin_service.pictures import marks
from tocsin_service.settings import Settings
from tocsin_service.words import CHINESE

SECRET = "0123456789abcdef" * 2
HOSTILE = '<img src=x onerror=alert(1)> "$x$" \u00fc'
LINKED = {"public_url": "https://tocsin.example", "link_secret": SECRET}
NAN = [{"step": step, "metrics": {"actor/pg_loss": float("nan"), "x": 1.0}} for step in range(3)]
WHO = {"author": "mia <b>", "comment": "meant so"}


class Page(HTMLParser):
    """What a browser would make of it: tags, text, and where links lead."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.feed(data.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in {"src", "style"} for name, _ in attrs)
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data


def link(api: Any, run: str, purpose: Any = "incident", age: float = 0.0) -> str:
    """The link to the run's one incident, made so many seconds ago."""
    (incident,) = api.get(f"/v1/runs/{quote(run, safe='')}/incidents").json["incidents"]
    return Links("", SECRET, lambda: time.time() - age).make(purpose, run, incident["id"])


def submit(api: Any, where: str, origin: str | None = None, **form: str) -> Any:
    """Posts a form as a browser does that has the page open."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": origin or api.address}
    return api.call("POST", where, urlencode(form).encode(), headers)


def acts(api: Any) -> list[tuple[str, str]]:
    return [(one["actor"], one["action"]) for one in api.get("/v1/audit").json["acts"] if one["action"] != "configure"]


def broken(made: Any) -> Any:
    """The service, where now a run's loss is NaN."""
    made.post(NAN)
    made.settle()
    return made


@pytest.fixture
def api(make_api: Any) -> Any:
    """A service with links, and an incident."""
    return broken(make_api(**LINKED))


@pytest.fixture(scope="module")
def looked_at(shared_api: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One like it for all tests that change nothing."""
    settings = Settings(port=0, db=tmp_path_factory.mktemp("linked") / "tocsin.db", **LINKED)
    with Service(settings) as service:
        yield broken(type(shared_api)(service.address, service))


class TestLooking:
    def test_what_it_shows(self, make_api: Any, recorded: Any) -> None:
        api = make_api(public_url="https://tocsin.example", link_secret=SECRET, runbook_base="https://books.example/r")
        (run,) = (one for one in recorded if one.name == "collapse_lr_x100")
        api.call("PUT", "/v1/runs/run", {**run.told, "link": "https://tracker.example/7"})
        api.post(run.bodies)
        api.settle()
        answer = api.get(link(api, "run"))
        assert answer.status == 200
        page = Page(answer.data)
        for said in (
            "Model collapse: reward, length, entropy broke together",
            "since step 122",
            "last good step: 121",
            "24 against a baseline of 11.34",
            "Stop the run and go back to the last good step",
            "Nobody has acknowledged it.",
        ):
            assert said in page.text
        assert page.tags.count("svg") == 4
        assert page.tags.count("form") == 3
        assert {"https://tracker.example/7", "https://books.example/r/model_collapse.md"} <= set(page.links)

    @pytest.mark.parametrize(
        ("header", "query", "lang"),
        [
            ("", "", "en"),
            ("zh-CN,zh;q=0.9,en;q=0.8", "", "zh"),
            ("fr, zh", "", "zh"),
            ("de", "", "en"),
            ("zh", "&lang=en", "en"),
            ("", "&lang=zh", "zh"),
            ("\xff;,;", "&lang=xx", "en"),
        ],
    )
    def test_its_language(self, looked_at: Any, header: str, query: str, lang: str) -> None:
        answer = looked_at.call("GET", link(looked_at, "run") + query, headers={"Accept-Language": header})
        assert f'<html lang="{lang}">' in answer.data.decode()
        assert ("处置建议" in answer.data.decode()) == (lang == "zh")

    def test_only_its_own_style_and_forms_are_allowed(self, api: Any) -> None:
        answer = api.get(link(api, "run"))
        (style,) = re.findall(r"<style>(.*?)</style>", answer.data.decode(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = answer.headers["content-security-policy"]
        for part in (
            "default-src 'none'",
            f"style-src 'sha256-{digest}'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ):
            assert part in policy.split("; ")
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "script" not in Page(answer.data).tags

    def test_looking_changes_nothing(self, api: Any) -> None:
        before = [api.get(path).json for path in ("/v1/incidents", "/v1/silences", "/v1/audit")]
        for purpose in ("incident", "picture"):
            for method in ("GET", "HEAD", "GET"):
                where = link(api, "run", purpose)
                assert (
                    api.call(method, f"{where}&act=acknowledge&author=eve", headers={"Purpose": "prefetch"}).status
                    == 200
                )
        assert [api.get(path).json for path in ("/v1/incidents", "/v1/silences", "/v1/audit")] == before

    def test_what_a_trainer_sends_stays_text(self, make_api: Any) -> None:
        api = make_api(public_url="https://tocsin.example", link_secret=SECRET)
        api.call("PUT", f"/v1/runs/{quote(HOSTILE)}", {"link": "javascript:alert(1)"})
        bodies = [{"step": step, "metrics": {"actor/pg_loss": 1.0, "<u>$y$</u>": 1.0}} for step in range(40)]
        bodies += [
            {"step": step, "metrics": {"actor/pg_loss": 1.0, "<u>$y$</u>": float("inf")}} for step in range(40, 44)
        ]
        api.post(bodies, run=HOSTILE)
        api.settle()
        where = link(api, HOSTILE)
        submit(api, where, act="acknowledge", author='"><script>', comment="'><i>")
        answer = api.get(where)
        page = Page(answer.data)
        assert {"img", "script", "u", "i"}.isdisjoint(page.tags)
        for said in (HOSTILE, "<u>$y$</u>", '"><script>', "'><i>"):
            assert said in page.text
        assert not any(one.startswith("javascript") for one in page.links)
        page = Page(api.get(f"{where}&lang=zh").data)
        assert "u" not in page.tags
        assert "<u>$y$</u> 的值为 inf" in page.text


def phrases(module: ModuleType) -> set[str]:
    """The English texts that a module says through ``Words``."""
    calls = [one for one in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(one, ast.Call) and one.args]
    told = [one.args[0] for one in calls if isinstance(one.func, ast.Name) and one.func.id == "say"]
    return {one.value for one in told if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def test_all_of_it_is_in_chinese() -> None:
    refused = [linked._GONE, linked._EXPIRED]
    named = {*incident_page._NAMES.values(), *incident_page._DONE.values(), *incident_page.HOURS.values(), *refused}
    said = phrases(incident_page) | phrases(markup) | phrases(marks)
    assert len(said) > 20
    assert (said | named) - CHINESE.keys() == set()


class TestActing:
    def test_acknowledging(self, api: Any) -> None:
        where = link(api, "run")
        answer = submit(api, f"{where}&lang=zh", act="acknowledge", **WHO)
        assert answer.status == 303
        assert answer.headers["location"].endswith("&lang=zh&done=acknowledge")
        again = api.get(where.split("?")[0] + answer.headers["location"])
        assert "完成" in Page(again.data).text
        assert "mia <b>" in Page(again.data).text
        (incident,) = api.get("/v1/incidents").json["incidents"]
        assert (incident["acknowledged"]["author"], incident["acknowledged"]["comment"]) == ("mia <b>", "meant so")
        assert acts(api) == [("link", "acknowledge")]

    @pytest.mark.parametrize(
        ("scope", "matchers", "action"),
        [
            ("rule", {"run": "run", "rule": "non_finite", "severity": None, "labels": {}}, "silence"),
            ("run", {"run": "run", "rule": "*", "severity": None, "labels": {}}, "mute"),
        ],
    )
    def test_silencing(self, api: Any, scope: str, matchers: dict[str, Any], action: str) -> None:
        where = link(api, "run")
        for hours in ("24", "4"):  # the second takes the place of the first
            assert submit(api, where, act="silence", scope=scope, hours=hours, **WHO).status == 303
        (silence,) = api.get("/v1/silences").json["silences"]
        assert silence["matchers"] == matchers
        assert silence["ends"] - silence["starts"] == pytest.approx(4 * 3600)
        assert acts(api) == [("link", action)] * 2
        assert "Silent until" in Page(api.get(where).data).text

    def test_silencing_all_that_fires_in_it(self, make_api: Any, recorded: Any) -> None:
        api = make_api(public_url="https://tocsin.example", link_secret=SECRET)
        (run,) = (one for one in recorded if one.name == "collapse_lr_x100")
        api.call("PUT", "/v1/runs/run", run.told)
        api.post(run.bodies, run="run")
        api.settle()
        assert submit(api, link(api, "run"), act="silence", scope="rule", hours="1", **WHO).status == 303
        rules = {one["matchers"]["rule"] for one in api.get("/v1/silences").json["silences"]}
        alerts = api.get("/v1/alerts").json["alerts"]
        assert rules == {"model_collapse", *(one["rule"] for one in alerts)}
        assert all(one["silenced"] for one in (*alerts, *api.get("/v1/incidents").json["incidents"]))

    def test_a_new_normal(self, make_api: Any) -> None:
        api = make_api(public_url="https://tocsin.example", link_secret=SECRET)
        wave = [1 + math.sin(7 * step) / 20 for step in range(66)]
        api.post(
            [{"step": step, "metrics": {"grad_norm": x * (1000 if step > 60 else 1)}} for step, x in enumerate(wave)]
        )
        api.settle()
        where = link(api, "run")
        assert "for grad_norm and learns it anew" in Page(api.get(where).data).text
        assert submit(api, where, act="rebaseline", **WHO).status == 303
        api.settle()
        alerts = api.get("/v1/runs/run/alerts").json["alerts"]
        assert {(one["state"], one["reason"]) for one in alerts} == {("resolved", "rebaselined")}
        told = {"metrics": ["grad_norm"], "note": "mia <b>: meant so"}
        assert api.get("/v1/audit").json["acts"][0]["detail"] == told
        page = Page(api.get(where).data)
        assert "It is over." in page.text
        assert page.tags.count("form") == 1  # it can still be acknowledged
        assert submit(api, where, act="rebaseline", **WHO).status == 422

    def test_nan_is_never_normal(self, api: Any) -> None:
        where = link(api, "run")
        assert Page(api.get(where).data).tags.count("form") == 2
        assert submit(api, where, act="rebaseline", **WHO).status == 422

    @pytest.mark.parametrize(
        ("form", "said"),
        [
            ({}, "this form is not known"),
            ({"act": "delete", **WHO}, "this form is not known"),
            ({"act": "acknowledge"}, "author: is needed"),
            ({"act": "acknowledge", "author": "a" * 101}, "author: is"),
            ({"act": "silence", "hours": "4", "author": "mia"}, "comment: is needed"),
            ({"act": "silence", **WHO}, "choose one of the times"),
            ({"act": "silence", "hours": "5", **WHO}, "choose one of the times"),
            ({"act": "silence", "hours": "\u00b3", **WHO}, "choose one of the times"),
            ({"act": "silence", "hours": "9" * 5000, **WHO}, "choose one of the times"),
            ({"act": "rebaseline", "author": "mia"}, "comment: is needed"),
            ({str(number): "1" for number in range(30)}, "Max number of fields"),
        ],
    )
    def test_what_cannot_be_done_is_said_on_the_page(self, api: Any, form: dict[str, str], said: str) -> None:
        answer = submit(api, link(api, "run"), **form)
        assert answer.status == 422
        page = Page(answer.data)
        assert "Nothing was done" in page.text
        assert said in page.text
        assert acts(api) == []

    @pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://127.0.0.1:1"])
    def test_not_from_other_sites(self, api: Any, origin: str) -> None:
        assert submit(api, link(api, "run"), origin, act="acknowledge", **WHO).status == 403
        assert acts(api) == []

    def test_from_the_address_that_people_use(self, api: Any) -> None:
        assert submit(api, link(api, "run"), "https://tocsin.example", act="acknowledge", **WHO).status == 303

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
    def test_no_other_methods(self, looked_at: Any, method: str) -> None:
        assert looked_at.call(method, link(looked_at, "run")).status == 405


class TestWhoGetsIn:
    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
    @pytest.mark.parametrize(
        "forge",
        [
            lambda where: where.split("?")[0],
            lambda where: where.replace("expires=", "expires=1"),
            lambda where: re.sub("expires=[0-9]+", "expires=abc", where),
            lambda where: re.sub("expires=[0-9]+", "expires=" + "9" * 5000, where),
            lambda where: where[:-1] + ("0" if where[-1] != "0" else "1"),
            lambda where: re.sub("signature=.*", "signature=%FF%C3%BC", where),
            lambda where: where.replace("/linked/incident/run/", "/linked/incident/other/"),
        ],
    )
    def test_no_forged_links(self, looked_at: Any, method: str, forge: Any) -> None:
        form = urlencode({"act": "acknowledge", **WHO}).encode() if method == "POST" else None
        answer = looked_at.call(method, forge(link(looked_at, "run")), form, {"Origin": looked_at.address})
        assert answer.status == 403
        if method != "HEAD":
            assert "latest message of the incident" in Page(answer.data).text
            assert "pg_loss" not in answer.data.decode()
        assert acts(looked_at) == []

    def test_no_expired_links(self, api: Any) -> None:
        for purpose in ("incident", "picture"):
            assert api.get(link(api, "run", purpose, age=13 * 86400)).status == 200
            assert api.get(link(api, "run", purpose, age=16 * 86400)).status == 403
        assert submit(api, link(api, "run", age=16 * 86400), act="acknowledge", **WHO).status == 403

    def test_a_link_to_a_picture_opens_no_page(self, api: Any) -> None:
        where = link(api, "run", "picture").replace("/picture/", "/incident/").replace(".png", "")
        assert api.get(where).status == 403

    def test_what_is_gone(self, api: Any) -> None:
        for purpose in ("incident", "picture"):
            answer = api.get(Links("", SECRET).make(purpose, "run", "0" * 16))  # type: ignore[arg-type]
            assert answer.status == 404
        assert "not known any more" in Page(api.get(Links("", SECRET).make("incident", "x", "0")).data).text

    def test_there_are_none_without_an_address(self, make_api: Any) -> None:
        api = make_api()
        api.post(NAN)
        api.settle()
        assert api.get(link(api, "run")).status == 404

    def test_no_token_is_asked_for(self, make_api: Any) -> None:
        api = make_api(public_url="https://tocsin.example", link_secret=SECRET)
        api.post(NAN)
        api.settle()
        where = link(api, "run")
        api.service.stop()
        guarded = make_api(public_url="https://tocsin.example", link_secret=SECRET, tokens=("a-long-enough-token",))
        assert guarded.get("/v1/incidents").status == 401
        assert guarded.get(where).status == 200
        assert submit(guarded, where, act="acknowledge", **WHO).status == 303

    def test_the_names_it_answers_to(self, api: Any) -> None:
        where = link(api, "run")
        assert api.call("GET", where, headers={"Host": "tocsin.example"}).status == 200
        assert api.call("GET", where, headers={"Host": "evil.example"}).status == 421
        assert api.call("GET", "/v1/incidents", headers={"Host": "tocsin.example"}).status == 421
