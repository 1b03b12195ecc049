"""The dashboard in a real browser: a run collapses before one's eyes, and what was sent stays text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

RUNS = Path(__file__).resolve().parents[1] / "data" / "runs"
HOSTILE = "<img src=x onerror=alert(1)> $x$"
HOSTILE_METRIC = "<b onmouseover=alert(1)>x</b>"
TOKEN = "alice-9a0feaa0"  # noqa: S105 - a test's token


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RUNS / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def look(page: Any) -> Iterator[Any]:
    """Opens a view; whatever the page asks for, it asks our server for."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    homes: list[str] = []

    def opened(api: Any, view: str = "") -> Any:
        homes.append(api.address)
        page.goto(f"{api.address}/dashboard/#/{view}")
        return page

    yield opened
    assert asked
    assert [one for one in asked if not one.startswith((*homes, "data:"))] == []
    assert [one for one in asked if TOKEN in one] == []


def shown_step(page: Any, metric: str) -> int:
    return int(page.locator(f'[data-metric="{metric}"] .plot').get_attribute("data-last"))


def pixels(page: Any, metric: str) -> str:
    """What the chart shows."""
    canvas = page.locator(f'[data-metric="{metric}"] canvas')
    canvas.wait_for()
    return str(canvas.evaluate("canvas => canvas.toDataURL()"))


def test_a_collapse_is_seen_as_it_happens_and_is_looked_after(look: Any, api: Any) -> None:
    vectors = recorded("collapse_lr_x100")
    api.call("PUT", "/v1/runs/live", {"framework": "trl", "algorithm": "grpo"})
    api.post(vectors[:100], run="live")
    api.settle()
    page = look(api, "runs/live")
    page.wait_for_selector("#status.live")
    page.wait_for_selector('[data-metric="critic/score/mean"] [data-last="100"]')
    before = pixels(page, "critic/score/mean")
    assert page.locator("[data-incident]").count() == 0

    page.evaluate("window.notReloaded = true")
    api.post(vectors[100:], run="live")
    page.wait_for_selector('[data-metric="critic/score/mean"] [data-last="180"]')
    page.wait_for_selector('[data-incident].critical:has-text("Model collapse")')
    page.wait_for_selector('[data-metric="critic/score/mean"] [data-alerts="1"]')
    page.wait_for_selector('[data-metric="critic/score/mean"] [data-drawn="180"]')
    assert pixels(page, "critic/score/mean") != before
    assert page.evaluate("window.notReloaded")

    page.locator("[data-incident] a").click()
    page.wait_for_selector("article[data-alert] canvas")
    assert "against a baseline of" in page.inner_text("article .detail >> nth=0")
    assert "Stop the run" in page.inner_text("main")
    form = page.locator("#acknowledge")
    form.locator("[name=author]").fill("mia <i>")
    form.locator("[name=comment]").fill("on it")
    form.locator("button").click()
    page.wait_for_selector("#acknowledge .notice.done")
    page.wait_for_selector('.standing:has-text("mia <i> looks after it")')
    assert api.get("/v1/incidents").json["incidents"][0]["acknowledged"]["comment"] == "on it"
    assert page.evaluate("window.notReloaded")


def test_silence_and_a_new_normal(look: Any, api: Any) -> None:
    api.call("PUT", "/v1/runs/run%5B1%5D", {"framework": "trl"})
    api.post(recorded("collapse_lr_x100"), run="run[1]")
    api.settle()
    (incident,) = api.get("/v1/incidents").json["incidents"]
    page = look(api, f"runs/{quote('run[1]')}/incidents/{incident['id']}")
    form = page.locator("#silence")
    form.locator("[name=author]").fill("mia")
    form.locator("[name=comment]").fill("known")
    form.locator("[name=hours]").select_option("24")
    form.locator("button").click()
    page.wait_for_selector('.standing:has-text("Silent until")')
    assert all(one["silenced"] for one in api.get("/v1/alerts").json["alerts"])

    form = page.locator("#rebaseline")
    form.locator("[name=author]").fill("mia")
    form.locator("[name=comment]").fill("meant so")
    form.locator("button").click()
    page.wait_for_selector('.standing:has-text("It is over.")')
    assert api.get("/v1/alerts").json["alerts"] == []


def test_all_runs_are_found_sorted_and_shared(look: Any, api: Any) -> None:
    api.post(recorded("collapse_nan_weights")[:160], run="bad")
    api.post(recorded("healthy_base")[:50], run="a-good-one")
    api.call("PUT", "/v1/runs/over", {"finished": True, "labels": {"team": "x-team"}})
    api.settle()
    page = look(api)
    page.wait_for_selector('[data-run="bad"].critical .spark path')
    names = "[...document.querySelectorAll('[data-run]')].map(one => one.dataset.run)"
    assert page.evaluate(names)[0] == "bad"
    page.locator("[name=sort]").select_option("name")
    assert page.evaluate(names) == ["a-good-one", "bad", "over"]
    page.locator("[name=q]").fill("x-TEAM")
    assert page.evaluate(names) == ["over"]
    assert "q=x-TEAM" in page.url
    page.reload()
    page.wait_for_selector('[data-run="over"]')
    assert page.evaluate(names) == ["over"]
    page.locator("[name=q]").fill("")
    page.locator("[name=worst]").select_option("critical")
    assert page.evaluate(names) == ["bad"]
    page.locator("[name=worst]").select_option("")
    api.post([{"step": 1, "metrics": {"reward": 1}}], run="new")
    page.wait_for_selector('[data-run="new"]')


def test_what_was_sent_stays_text(look: Any, api: Any) -> None:
    wave = [1 + math.sin(7 * step) / 20 for step in range(66)]
    labels = {"<u>": HOSTILE}
    api.call("PUT", f"/v1/runs/{quote(HOSTILE)}", {"labels": labels, "link": "https://x.example/?<script>"})
    metrics = [{"grad_norm": x * (1000 if step > 60 else 1), HOSTILE_METRIC: x} for step, x in enumerate(wave)]
    api.post([{"step": step, "metrics": one} for step, one in enumerate(metrics)], run=HOSTILE)
    api.settle()
    page = look(api)
    page.locator("[data-run] a >> nth=0").click()
    page.wait_for_selector(f"h1:has-text({json.dumps(HOSTILE)})")
    page.locator('[data-family="other"] summary').click()
    page.wait_for_selector("[data-family=other] canvas")
    assert HOSTILE_METRIC in page.inner_text("[data-family=other]")
    page.locator("[data-incident] a >> nth=0").click()
    page.wait_for_selector("article[data-alert]")
    assert HOSTILE in page.inner_text("main nav")
    assert page.locator("main img, main b, main u, main script").count() == 0


def test_a_token_is_asked_for_and_kept_in_the_tab(look: Any, make_api: Any) -> None:
    api = make_api(tokens=(TOKEN,))
    api.post([{"step": 1, "metrics": {"reward": 1}}], run="mine", headers={"authorization": f"Bearer {TOKEN}"})
    page = look(api)
    page.locator("#token input").fill("wrong-token-entirely")
    form = page.query_selector("#token form")
    page.locator("#token button").click()
    form.wait_for_element_state("hidden")  # it is asked for anew
    page.locator("#token input").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-run="mine"]')
    page.wait_for_selector("#status.live")
    page.reload()
    page.wait_for_selector('[data-run="mine"]')
    kept = "[Object.values(localStorage).join(), document.cookie, location.href, document.documentElement.outerHTML]"
    assert [where for where in page.evaluate(kept) if TOKEN in where] == []
    assert page.evaluate("Object.values(sessionStorage)") == [TOKEN]

    other = page.context.new_page()  # another tab knows nothing of it
    other.goto(page.url)
    other.wait_for_selector("#token input")
    assert other.locator("[data-run]").count() == 0

    page.get_by_role("button", name="Forget the token").click()
    page.wait_for_selector("#token input")
    assert page.evaluate("sessionStorage.length") == 0
    assert page.locator("[data-run]").count() == 0


# How many pixels in the colour of what is critical lie where the marks of steps without a number do; of each step.
MARK_PIXELS = """(plot, [steps, first, last]) => {
  const canvas = plot.querySelector("canvas"), whole = canvas.getBoundingClientRect();
  const over = plot.querySelector(".u-over").getBoundingClientRect();
  const scale = canvas.width / whole.width;
  const strip = [over.left - whole.left, over.bottom - whole.top - 18, over.width, 18];
  const { data, width } = canvas.getContext("2d").getImageData(...strip.map((one) => Math.round(one * scale)));
  const reddish = (at) => data[at] > 185 && data[at + 1] < 90 && data[at + 2] < 90;
  const columns = [...data.keys()].filter((at) => at % 4 === 0 && reddish(at)).map((at) => (at / 4) % width);
  const place = (step) => ((step - first) / (last - first)) * width;
  return steps.map((step) => columns.filter((x) => Math.abs(x - place(step)) < 6 * scale).length);
}"""


def test_what_is_no_number_is_marked_and_said(look: Any, api: Any) -> None:
    values = ["NaN" if step in {30, 31} else "Infinity" if step == 50 else step % 7 for step in range(80)]
    api.post([{"step": step, "metrics": {"own/value": value, "own/other": 1}} for step, value in enumerate(values)])
    api.settle()
    page = look(api, "runs/run")
    page.wait_for_selector("#status.live")
    plot = page.locator('[data-metric="own/value"] .plot')
    page.wait_for_selector('[data-metric="own/value"] .plot[data-marked="3"]')
    assert "own/value, latest 2 at step 79. no number at step 30, 31, 50" in plot.get_attribute("aria-label")
    page.wait_for_selector('[data-metric="own/other"] .plot[data-marked="0"]')
    assert "no number" not in page.locator('[data-metric="own/other"] .plot').get_attribute("aria-label")
    page.goto(f"{page.url}?from=20&to=40")
    page.reload()
    page.wait_for_selector('[data-metric="own/value"] .plot[data-marked="2"]')
    marked, beside = plot.evaluate(MARK_PIXELS, [[31, 35], 20, 40])  # at 30 is the alert's line too
    assert marked > 5 * (1 + beside)


def test_nan_is_a_gap_and_zoom_and_scale_are_in_the_link(look: Any, api: Any) -> None:
    metrics = [{"actor/kl_loss": "NaN" if step in {30, 31} else 0.01 + step / 1000} for step in range(80)]
    api.post([{"step": step, "metrics": one} for step, one in enumerate(metrics)], run="run")
    api.settle()
    page = look(api, "runs/run")
    whole = pixels(page, "actor/kl_loss")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url(lambda url: "from=20" in url)
    page.locator(".check input").check()
    page.wait_for_url(lambda url: "log=1" in url)
    zoomed = pixels(page, "actor/kl_loss")
    assert zoomed != whole
    page.reload()
    assert page.inner_text(".range") == "20 – 59"
    assert page.locator(".check input").is_checked()
    page.locator(".plot").focus()
    page.keyboard.press("0")
    page.wait_for_url(lambda url: "from" not in url)


def test_the_keyboard_reaches_everything(look: Any, api: Any) -> None:
    api.post(recorded("collapse_lr_x100"), run="run")
    api.settle()
    page = look(api)
    page.wait_for_selector("#status.live")
    page.wait_for_selector('[data-run="run"]')
    press_to(page, 'document.activeElement.dataset.key === "run run"')
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-metric="critic/score/mean"] canvas')
    page.wait_for_selector("#status.live")
    press_to(page, 'document.activeElement.closest("[data-metric]")?.dataset.metric === "critic/score/mean"')
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    readout = page.locator('[data-metric="critic/score/mean"] .readout')
    told = recorded("collapse_lr_x100")[-4]
    assert readout.inner_text() == f"step 177: {told['metrics']['reward']:.5g}"
    page.locator("[data-incident] a").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#acknowledge")
    for name in ("acknowledge", "silence", "rebaseline"):
        press_to(page, f'document.activeElement.closest("form")?.id === "{name}"')


def press_to(page: Any, condition: str) -> None:
    """Presses Tab until the focus is where it should be."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return
    pytest.fail(f"the focus never came to {condition}")


def test_chinese_dark_and_a_phone(look: Any, page: Any, api: Any) -> None:
    api.post(recorded("collapse_lr_x100"), run="run")
    api.settle()
    (incident,) = api.get("/v1/incidents").json["incidents"]
    page.set_viewport_size({"width": 360, "height": 740})
    backs = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for view in ("", "runs/run", f"runs/run/incidents/{incident['id']}"):
            look(api, view)
            page.wait_for_selector("h1")
            page.wait_for_selector("#status.live")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
        backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backs[0] != backs[1]
    page.locator("#bar select").select_option("zh")
    page.wait_for_selector('h1:has-text("模型崩溃")')
    page.wait_for_selector('#acknowledge h2:has-text("认领")')
    page.wait_for_selector('article .detail:has-text("基线为")')
    assert page.evaluate("document.documentElement.lang") == "zh"


def test_the_rule_catalogue(look: Any, api: Any) -> None:
    page = look(api, "rules/kl_collapse")
    page.wait_for_selector('[data-rule="kl_collapse"][open] ol li')
    signs = page.locator('[data-rule="kl_collapse"] .tests li').all_inner_texts()
    assert len(signs) == 2
    assert signs[0].startswith(
        "The value lies above or below the baseline's median by at least 6 robust standard deviations"
    )
    total = page.locator("[data-rule]").count()
    assert total == len(api.get("/v1/rules").json["rules"])
    page.locator("[name=q]").fill("entropy coll")
    assert 0 < page.locator("[data-rule]").count() < total
    assert "q=entropy" in page.url


def test_two_runs_are_compared(look: Any, api: Any) -> None:
    for run, name in (("one", "collapse_lr_x100"), ("other", "healthy_base")):
        api.call("PUT", f"/v1/runs/{run}", {"framework": "trl"})
        api.post(recorded(name), run=run)
    api.settle()
    page = look(api, "runs/one")
    page.get_by_role("link", name="Compare runs").click()
    page.locator("[name=b]").select_option("other")
    page.wait_for_selector('[data-metric="critic/score/mean"] canvas')
    assert "a=one" in page.url
    assert "b=other" in page.url
    page.reload()
    page.wait_for_selector('[data-metric="critic/score/mean"] canvas')
    assert page.locator(".side").all_inner_texts() == ["one", "other"]
