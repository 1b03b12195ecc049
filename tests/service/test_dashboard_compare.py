"""Two runs compared in a real browser: finer points after a zoom, and what comes into either of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

STEPS = 1000
SPIKE, HIDDEN = 500, 503  # in one stretch of the whole curve: only the first is its extreme
CHART = '[data-metric="own/value"]'
PLOT = f"{CHART} .plot"


@pytest.fixture
def pair(api: Any) -> Any:
    """Two long runs with spikes at the same steps, twice as high in the second."""
    for run, height in (("one", 1), ("other", 2)):
        values = [step % 2 + {SPIKE: 90 * height, HIDDEN: 40 * height}.get(step, 0) for step in range(STEPS)]
        lines = [json.dumps({"step": step, "metrics": {"own/value": value}}) for step, value in enumerate(values)]
        assert api.post("\n".join(lines).encode(), run=run).status == 202
    api.settle()
    return api


def opened(page: Any, api: Any, query: str = "") -> None:
    page.goto(f"{api.address}/dashboard/#/compare?a=one&b=other{query}")
    page.wait_for_selector("#status.live")
    page.wait_for_selector(f"{CHART} canvas")


def walk_to(page: Any, step: int) -> str:
    """Presses the arrow to the left until the readout is at the step; what it says there."""
    page.locator(PLOT).focus()
    readout = page.locator(f"{CHART} .readout")
    for _ in range(200):
        page.keyboard.press("ArrowLeft")
        if readout.inner_text().startswith(f"step {step}:"):
            return str(readout.inner_text())
    pytest.fail(f"step {step} is not among the points")


def test_a_zoom_brings_finer_points_of_both(page: Any, pair: Any) -> None:
    (part,) = pair.get("/v1/runs/one/charts?points=600").json["families"][0]["metrics"][0]["parts"]
    assert (SPIKE in part["steps"], HIDDEN in part["steps"]) == (True, False)
    opened(page, pair, "&from=480&to=520")
    page.wait_for_selector(f'{PLOT}[data-finer="480 – 520"]')
    assert walk_to(page, HIDDEN) == f"step {HIDDEN}: 41 / 81"
    page.get_by_role("button", name="Zoom out").click()
    page.wait_for_selector(f'{PLOT}[data-finer="460 – 540"]')
    assert "from=460" in page.url
    assert "a=one" in page.url
    page.get_by_role("button", name="All steps").click()
    page.wait_for_selector(f'{PLOT}[data-finer=""]')


def test_what_comes_into_either_is_shown(page: Any, pair: Any) -> None:
    opened(page, pair)
    page.evaluate("window.notReloaded = true")
    pair.post({"step": STEPS, "metrics": {"own/value": 7}}, run="one")
    page.wait_for_selector(f'{PLOT}[data-drawn="{STEPS}"]')
    pair.post({"step": STEPS + 1, "metrics": {"own/value": 8, "own/new": 1}}, run="other")
    page.wait_for_selector(f'{PLOT}[data-drawn="{STEPS + 1}"]')
    assert page.locator(f"{CHART} .readout").inner_text() == "7 / 8"
    assert page.locator('[data-metric="own/new"]').count() == 0  # of one run alone
    pair.post({"step": STEPS + 1, "metrics": {"own/new": 2}}, run="one")
    page.wait_for_selector('[data-metric="own/new"] canvas')
    assert page.locator('[data-metric="own/new"] .readout').inner_text() == "2 / 1"
    assert page.evaluate("window.notReloaded")


def test_another_run_is_chosen_and_one_begins_later(page: Any, pair: Any) -> None:
    pair.call("PUT", "/v1/runs/empty", {"framework": "trl"})
    opened(page, pair)
    page.locator("[name=b]").select_option("empty")
    page.wait_for_selector(".empty")
    assert not page.locator(".tools").is_visible()
    pair.post({"step": 5, "metrics": {"own/value": 3}}, run="empty")
    page.wait_for_selector(f"{CHART} canvas")
    assert page.locator(f"{CHART} .readout").inner_text() == "1 / 3"
    assert "b=empty" in page.url
