"""Zooming in a run: by dragging, by the keyboard, by the link; and the finer points that it brings."""

from __future__ import annotations

import json
from typing import Any

import pytest

STEPS = 3000
SPIKE, HIDDEN = 1502, 1505  # in one stretch of the whole curve: only the first is its extreme
CHART = '[data-metric="own/value"]'


@pytest.fixture
def long(api: Any) -> Any:
    """A long run with a spike and a lower one a few steps behind it."""
    values = [step % 2 + {SPIKE: 90, HIDDEN: 40}.get(step, 0) for step in range(STEPS)]
    lines = [json.dumps({"step": step, "metrics": {"own/value": value}}) for step, value in enumerate(values)]
    for first in range(0, STEPS, 1000):
        assert api.post("\n".join(lines[first : first + 1000]).encode()).status == 202
    api.settle()
    return api


def opened(page: Any, api: Any, query: str = "") -> None:
    page.goto(f"{api.address}/dashboard/#/runs/run{query}")
    page.wait_for_selector("#status.live")
    family = page.locator("[data-family=other]")
    if family.get_attribute("open") is None:
        family.locator("summary").click()
    page.wait_for_selector(f"{CHART} canvas")


def points(page: Any) -> int:
    return int(page.locator(f"{CHART} .plot").get_attribute("data-points"))


def wait_for_finer(page: Any) -> None:
    """Waits until all points of the steps that are shown are drawn."""
    page.wait_for_selector(f'{CHART} .plot[data-finer="{page.inner_text(".range")}"]')


def walk_to(page: Any, step: int) -> str:
    """Presses the arrow to the left until the readout is at the step; what it says there."""
    page.locator(f"{CHART} .plot").focus()
    readout = page.locator(f"{CHART} .readout")
    for _ in range(200):
        page.keyboard.press("ArrowLeft")
        if readout.inner_text().startswith(f"step {step}:"):
            return str(readout.inner_text())
    pytest.fail(f"step {step} is not among the points")


def test_a_hidden_spike_is_there_after_zooming(page: Any, long: Any) -> None:
    (family,) = long.get("/v1/runs/run/charts?points=600").json["families"]
    (part,) = family["metrics"][0]["parts"]
    assert SPIKE in part["steps"]
    assert HIDDEN not in part["steps"]
    opened(page, long)
    before = points(page)
    assert before <= 600
    page.locator(f"{CHART} .plot").focus()
    for _ in range(5):  # to a 32nd, around the middle
        page.keyboard.press("+")
    wait_for_finer(page)
    assert walk_to(page, HIDDEN) == f"step {HIDDEN}: 41"
    assert walk_to(page, SPIKE) == f"step {SPIKE}: 90"
    page.keyboard.press("0")
    page.wait_for_selector(f'{CHART} .plot[data-points="{before}"]')


def test_dragging_zooms_and_the_button_shows_all_again(page: Any, long: Any) -> None:
    opened(page, long)
    before = points(page)
    over = page.locator(f"{CHART} .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.48, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.54, middle, steps=5)
    page.mouse.up()
    page.wait_for_url(lambda url: "from=" in url)
    first, last = map(int, page.inner_text(".range").split(" – "))
    assert 1400 < first < SPIKE < HIDDEN < last < 1650
    wait_for_finer(page)
    assert walk_to(page, HIDDEN) == f"step {HIDDEN}: 41"
    page.get_by_role("button", name="All steps").click()
    page.wait_for_selector(f'{CHART} .plot[data-points="{before}"]')
    assert "from" not in page.url


def test_dragging_with_shift_moves_the_steps_that_are_shown(page: Any, long: Any) -> None:
    opened(page, long, "?from=1000&to=2000")
    wait_for_finer(page)
    over = page.locator(f"{CHART} .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    middle = box["y"] + box["height"] / 2

    def drag(begin: float, end: float) -> list[int]:
        page.keyboard.down("Shift")
        page.mouse.move(box["x"] + box["width"] * begin, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * end, middle, steps=5)
        page.mouse.up()
        page.keyboard.up("Shift")
        return [int(step) for step in page.inner_text(".range").split(" – ")]

    first, last = drag(0.2, 0.7)  # what was at a fifth comes to lie at seven tenths
    assert last - first == 1000
    assert first == pytest.approx(500, abs=5)
    assert f"from={first}&to={last}" in page.url
    wait_for_finer(page)
    assert drag(0.1, 1.6) == [0, 1000]  # the beginning is as far as it goes, and over the edge it is still held
    page.get_by_role("button", name="Later").click()
    assert page.inner_text(".range") == "500 – 1500"


def test_a_shared_link_is_as_fine_and_stays_so_while_steps_come_in(page: Any, long: Any) -> None:
    opened(page, long, "?from=1480&to=1520")
    wait_for_finer(page)
    long.post([{"step": STEPS, "metrics": {"own/value": 1}}])
    page.wait_for_selector(f'{CHART} [data-last="{STEPS}"]')
    page.wait_for_selector(f'{CHART} [data-drawn="{STEPS}"]')
    assert page.inner_text(".range") == "1480 – 1520"
    assert walk_to(page, HIDDEN) == f"step {HIDDEN}: 41"


def test_without_finer_points_those_of_the_whole_run_stay(page: Any, long: Any) -> None:
    opened(page, long)
    before = points(page)
    page.route("**/charts?*first=*", lambda route: route.abort())
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Zoom in").click()
    assert points(page) == before
    assert page.inner_text(".range") == "750 – 2249"
    assert page.locator(f"{CHART} canvas").is_visible()
