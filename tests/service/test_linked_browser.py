"""The linked page in a real browser: what people click works, and what a trainer has sent stays text."""

from __future__ import annotations

import math
import time
from typing import Any
from urllib.parse import quote

import pytest

from tocsin_service.access.links import Links

SECRET = "0123456789abcdef" * 2
HOSTILE = "<img src=x onerror=alert(1)> $x$"


@pytest.fixture
def service(make_api: Any) -> Any:
    api = make_api(public_url="https://tocsin.example", link_secret=SECRET)
    wave = [1 + math.sin(7 * step) / 20 for step in range(66)]
    bodies = [{"step": step, "metrics": {"grad_norm": x * (1000 if step > 60 else 1)}} for step, x in enumerate(wave)]
    api.call("PUT", f"/v1/runs/{quote(HOSTILE)}", {"labels": {"team": "rl"}})
    api.post(bodies, run=HOSTILE)
    api.settle()
    return api


def link(api: Any) -> str:
    (incident,) = api.get("/v1/incidents").json["incidents"]
    return Links(api.address, SECRET).make("incident", HOSTILE, incident["id"])


def acts(api: Any) -> list[str]:
    return [one["action"] for one in api.get("/v1/audit").json["acts"] if one["action"] not in {"configure", "start"}]


def test_people_can_do_what_the_page_offers(page: Any, service: Any) -> None:
    page.goto(link(service))
    assert HOSTILE in page.inner_text("header")
    assert page.locator("img").count() == 0
    assert page.locator("svg").count() == 1
    assert acts(service) == []  # looking is no act

    form = page.locator("#acknowledge")
    form.locator("[name=author]").fill("mia <i>")
    form.locator("[name=comment]").fill("on it")
    form.locator("button").click()
    page.wait_for_selector(".notice.done")
    assert "mia <i> looks after it" in page.inner_text("section")
    assert service.get("/v1/incidents").json["incidents"][0]["acknowledged"]["comment"] == "on it"

    form = page.locator("#silence")
    form.locator("[name=scope]").select_option("run")
    form.locator("[name=hours]").select_option("24")
    form.locator("[name=author]").fill("mia")
    form.locator("[name=comment]").fill("known")
    form.locator("button").click()
    page.wait_for_selector(".notice.done")
    assert "Silent until" in page.inner_text("section")
    (silence,) = service.get("/v1/silences").json["silences"]
    assert silence["ends"] - silence["starts"] == pytest.approx(24 * 3600)

    form = page.locator("#rebaseline")
    form.locator("[name=author]").fill("mia")
    form.locator("[name=comment]").fill("meant so")
    form.locator("button").click()
    page.wait_for_selector(".notice.done")
    service.settle()
    page.reload()
    assert "It is over." in page.inner_text("section")
    assert acts(service) == ["rebaseline", "mute", "acknowledge"]


def test_an_empty_form_is_not_sent(page: Any, service: Any) -> None:
    page.goto(link(service))
    page.locator("#acknowledge button").click()
    assert page.locator("#acknowledge [name=author]:invalid").count() == 1
    assert acts(service) == []


def test_the_style_is_applied_and_the_page_fits_a_phone(page: Any, service: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(link(service))
    assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") == "860px"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    backs = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backs[0] != backs[1]


def test_a_link_that_has_expired_says_what_to_do(page: Any, service: Any) -> None:
    (incident,) = service.get("/v1/incidents").json["incidents"]
    links = Links(service.address, SECRET, lambda: time.time() - 20 * 86400)
    answer = page.goto(links.make("incident", HOSTILE, incident["id"]))
    assert answer.status == 403
    assert "latest message of the incident" in page.inner_text("body")


def test_another_site_can_not_send_the_form(page: Any, service: Any) -> None:
    forged = (
        f'<form method="post" action="{link(service)}"><input name="act" value="acknowledge"><button>x</button></form>'
    )
    page.set_content(forged.replace("&", "&amp;"))
    with page.expect_navigation():
        page.locator("button").click()
    assert "other web sites" in page.inner_text("body")
    assert acts(service) == []
