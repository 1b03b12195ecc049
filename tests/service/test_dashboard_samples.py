"""The samples of an incident in a real browser: what the model wrote is shown as text, whatever it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from tests.service.rollout_rows import post, rows

IMAGE = '<img src=x onerror="window.owned = true"><b>bold</b></pre></script><script>window.owned = true</script>{{7*7}}'
HOSTILE = f"{IMAGE}\x00\x1b[2J\r\u202edesrever\u2066\u200b"
LONG = f"{IMAGE} {'again and ' * 3000}"


@pytest.fixture
def collapsed(make_api: Any, tmp_path: Path) -> Any:
    """A run whose reward goes to 0 at step 50; rollouts of the steps 48 and 51."""
    api = make_api(rollout_dir=tmp_path / "rollouts")
    rewards = [{"critic/score/mean": 0.8 if step < 50 else 0.0} for step in range(60)]
    api.post([{"step": step, "metrics": one} for step, one in enumerate(rewards)])
    assert post(api, rows(8, response="before"), step=48).status == 202
    wrong = {"reward": 0, "group": IMAGE, "domain": "\u202e<u>", "finish_reason": "length", "ground_truth": "<i>4</i>"}
    written = [*rows(4, response=HOSTILE, **wrong), *rows(4, response=LONG, **wrong)]
    assert post(api, [{**one, "scores": {"<s>": 0.5}} for one in written], step=51).status == 202
    api.settle()
    return api


def opened(page: Any, api: Any, query: str = "") -> None:
    (incident,) = api.get("/v1/incidents").json["incidents"]
    page.goto(f"{api.address}/dashboard/#/runs/run/incidents/{incident['id']}{query}")


def test_what_the_model_wrote_stays_text(page: Any, collapsed: Any) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.add_init_script("addEventListener('securitypolicyviolation', event => (window.violated = event.blockedURI))")
    opened(page, collapsed)
    page.wait_for_selector('[data-extreme="reward asc"] .onset .sample')
    response = page.locator('[data-extreme="reward asc"] .onset pre.response >> nth=0')
    shown = response.text_content()
    assert shown == f"{IMAGE}⟨U+0000⟩⟨U+001B⟩[2J⟨U+000D⟩⟨U+202E⟩desrever⟨U+2066⟩⟨U+200B⟩"
    text = page.locator('[data-extreme="reward asc"] .onset').text_content()
    for wanted in (
        f"group {IMAGE}",
        "domain ⟨U+202E⟩<u>",
        "<s> 0.5",
        "finish reason length",
        "<i>4</i>",
        "What is 0+1?",
    ):
        assert wanted in text
    assert page.locator("main img, main b, main u, main i, main s, main script").count() == 0
    assert page.evaluate("[window.owned, window.violated]") == [None, None]
    assert [one for one in said if "Content Security Policy" in one] == []


def test_the_onset_stands_beside_the_last_healthy_step(page: Any, collapsed: Any) -> None:
    opened(page, collapsed)
    page.wait_for_selector('[data-extreme="reward desc"] .healthy .sample')
    highest = page.locator('[data-extreme="reward desc"]')
    assert highest.locator("h5").all_inner_texts() == ["At the onset: step 51", "Last healthy step: 48"]
    assert highest.locator(".healthy pre.response >> nth=0").inner_text() == "before"
    assert "reward 1 · tokens 6" in highest.locator(".healthy .sample .facts >> nth=0").inner_text()
    page.locator("#bar select").select_option("zh")
    page.wait_for_selector('[data-extreme="reward desc"] h4:has-text("奖励最高")')


def test_a_long_text_is_folded_and_cut(page: Any, collapsed: Any) -> None:
    post(collapsed, rows(8, response=LONG, reward=0), step=50)
    opened(page, collapsed)
    page.wait_for_selector('[data-extreme="reward asc"] .onset .sample')
    folded = page.locator('[data-extreme="reward asc"] .onset .folded >> nth=0')
    whole = folded.locator("pre.response")
    assert not whole.is_visible()
    folded.locator("summary").click()
    assert whole.is_visible()
    assert whole.text_content() == LONG[:4000]
    assert f"{len(LONG)} characters in all" in folded.inner_text()


def test_where_there_is_nothing(page: Any, make_api: Any, tmp_path: Path) -> None:
    api = make_api(rollout_dir=tmp_path / "rollouts")
    api.post([{"step": step, "metrics": {"critic/score/mean": 0.8 if step < 50 else 0.0}} for step in range(60)])
    api.settle()
    opened(page, api)
    page.wait_for_selector('.samples:has-text("No rollouts are kept")')
    assert page.locator(".sample").count() == 0


def test_a_link_from_a_message_shows_the_samples_at_once(page: Any, collapsed: Any) -> None:
    page.set_viewport_size({"width": 800, "height": 300})
    opened(page, collapsed)
    page.wait_for_selector("#status.live")
    page.wait_for_selector('[data-extreme="reward asc"] .onset .sample')
    there = "document.querySelector('.samples').getBoundingClientRect().top < innerHeight"
    assert not page.evaluate(there)
    page.goto("about:blank")
    opened(page, collapsed, "?show=samples")
    page.wait_for_selector('[data-extreme="reward asc"] .onset .sample')
    assert page.evaluate(there)


def test_after_a_resume_it_says_of_which_attempt(page: Any, make_api: Any, tmp_path: Path) -> None:
    api = make_api(rollout_dir=tmp_path / "rollouts")
    for step in (48, 51):
        assert post(api, rows(8), step=step, time=1.7e9 + step, measure="false").status == 202
    for begin, steps, onset in ((1.7e9, range(60), 50), (1.8e9, range(49, 80), 55)):
        values = [(step, begin / 2e9 if step < onset else 0.0) for step in steps]
        api.post([{"step": step, "metrics": {"critic/score/mean": one}, "time": begin + step} for step, one in values])
    api.settle()
    (newest,) = (one for one in api.get("/v1/incidents").json["incidents"] if one["attempt"] == 1)
    page.goto(f"{api.address}/dashboard/#/runs/run/incidents/{newest['id']}")
    page.wait_for_selector('.samples:has-text("No rollouts are kept of the steps from the onset on.")')
    assert post(api, rows(8), step=56, time=1.8e9 + 56, measure="false").status == 202
    page.reload()
    page.wait_for_selector('[data-extreme="reward asc"] .onset h5:has-text("At the onset: step 56 · attempt 1")')
    assert page.inner_text('[data-extreme="reward asc"] .healthy h5') == "Last healthy step: 48 · attempt 0"
