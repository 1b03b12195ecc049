"""Slack: what a message says, the limits it keeps, and timelines from a vector to the message."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.slack_stand_in import slack
from tests.service.told import (
    ACKNOWLEDGED,
    ALERT,
    HOSTILE_NEWS,
    INCIDENT,
    NEWS,
    OVER,
    linked,
    many,
)

from tocsin_detectors.alerts import Evidence
from tocsin_detectors.entries import RunConfig
from tocsin_service.delivery import News, Reason, Sent
from tocsin_service.delivery.digest import width
from tocsin_service.delivery.slack import Slack
from tocsin_service.delivery.slack_message import (
    escape,
    render,
    render_reply,
    render_summary,
    without_picture,
)
from tocsin_service.presentation import Presentation

GOLDEN = Path(__file__).parents[1] / "data" / "messages"
HOSTILE = "<!channel> & <@U1|x> `*_~\nrun"
LINK = re.compile(r"<https?://[^<>|\s]+\|[^<>]*>")


def text(payload: dict[str, Any]) -> str:
    return "\n".join(block["text"]["text"] for block in payload["blocks"] if "text" in block)


def buttons(payload: dict[str, Any]) -> dict[str, str]:
    found = [block["elements"] for block in payload["blocks"] if block["type"] == "actions"]
    return {button["text"]["text"]: button["url"] for elements in found for button in elements}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_golden_messages(lang: str) -> None:
    """All that Slack is told, in files that can be pasted into Slack's Block Kit Builder."""
    shown = linked(lang)
    over = replace(NEWS, reason=Reason.RESOLVED, incident=OVER, acknowledged=ACKNOWLEDGED)
    told = {
        "opened": render(NEWS, shown),
        "escalated": render_reply(replace(NEWS, reason=Reason.ESCALATED), shown),
        "acknowledged": render_reply(replace(NEWS, reason=Reason.ACKNOWLEDGED, acknowledged=ACKNOWLEDGED), shown),
        "reminded": render_reply(replace(NEWS, reason=Reason.REMINDED), shown),
        "resolved": render_reply(over, shown),
        "first message, at the end": render(over, shown),
        "summary": render_summary(many(30), shown),
    }
    golden = json.loads((GOLDEN / f"slack_{lang}.json").read_text(encoding="utf-8"))
    assert told == golden


def test_a_message_without_a_public_address() -> None:
    payload = render(NEWS)
    assert [block["type"] for block in payload["blocks"]] == ["header", *["section"] * 4]
    assert "*Run* <https://wandb.ai/team/runs/7?a=1&amp;b=2|qwen-7b>, attempt 1" in text(payload)


def test_the_all_clear_is_short() -> None:
    payload = render(replace(NEWS, reason=Reason.RESOLVED, incident=OVER), linked())
    assert "resolved" in payload["text"]
    assert "*Resolved* at step 200" in text(payload)
    assert "What to do" not in text(payload)
    assert not buttons(payload)


def test_who_looks_after_it_is_said_and_not_asked_for_again() -> None:
    payload = render(replace(NEWS, reason=Reason.ACKNOWLEDGED, acknowledged=ACKNOWLEDGED), linked())
    assert "*Acknowledged* by Mei: I look after it." in text(payload)
    assert list(buttons(payload)) == ["Silence"]


def test_buttons_lead_to_the_incident() -> None:
    shown = linked()
    page = shown.link("incident", INCIDENT)
    assert buttons(render(NEWS, shown)) == {"Acknowledge": f"{page}#acknowledge", "Silence": f"{page}#silence"}


def test_a_message_can_do_without_its_picture() -> None:
    payload = render(NEWS, linked())
    assert "image" in {block["type"] for block in payload["blocks"]}
    bare = without_picture(payload)
    assert bare is not None
    assert [block for block in payload["blocks"] if block["type"] != "image"] == bare["blocks"]
    assert without_picture(bare) is None


def test_a_webhook_gets_it_without_a_picture_that_slack_can_not_load() -> None:
    with slack() as server:
        server.bad_pictures = True
        receiver = Slack(server.webhook, linked())
        assert receiver.tell(NEWS) == Sent()
        assert receiver.summarise([NEWS]) == Sent()
        receiver.close()
        first, _ = server.told()
    assert "image" not in {block["type"] for block in first["blocks"]}
    assert len(server.called("webhook")) == 3


def test_wrong_from_the_start() -> None:
    payload = render(replace(NEWS, incident=replace(INCIDENT, last_good_step=None)))
    assert "none: wrong from the start" in text(payload)


def test_nothing_of_a_client_can_call_or_link() -> None:
    alert = replace(ALERT, source=HOSTILE)
    payload = render(News(Reason.OPENED, replace(INCIDENT, run=HOSTILE, title=HOSTILE), (alert,)))
    shown = text(payload) + payload["text"]
    assert "<" not in shown
    assert "&lt;!channel&gt; &amp; &lt;@U1|x&gt; '*_~ run" in shown


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "ftp://x/y",
        "https://",
        "https://x/|<!channel>",
        "https://x/>\n<!here>",
        "https://x/ y",
        "http://[x",
        "https://x/" + "y" * 1990,
        "https://x/" + "&" * 800,  # five times as long when it is escaped
        "not a link",
    ],
)
def test_only_plain_web_links_are_shown(link: str) -> None:
    assert "*Run* `qwen-7b`" in text(render(News(Reason.OPENED, INCIDENT, (), RunConfig(link=link))))


def check(payload: dict[str, Any]) -> None:
    """That Slack would take it, and take nothing in it for more than text."""
    data = json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()  # a lone surrogate can't be encoded
    assert len(data) < 40_000
    assert 1 <= len(payload["blocks"]) <= 50
    literal = [payload["text"]]
    for block in payload["blocks"]:
        match block["type"]:
            case "header":
                assert 1 <= width(block["text"]["text"]) <= 150
                literal.append(block["text"]["text"])
            case "section":
                assert 1 <= width(block["text"]["text"]) <= 3000
                literal.append(LINK.sub("", block["text"]["text"]))
                assert re.sub("&(amp|lt|gt);", "", block["text"]["text"]).count("&") == 0
            case "image":
                assert len(block["image_url"]) <= 3000
                assert 1 <= width(block["alt_text"]) <= 2000
                literal.append(block["alt_text"])
            case "actions":
                for button in block["elements"]:
                    assert len(button["url"]) <= 3000
                    assert 1 <= len(button["text"]["text"]) <= 75
            case other:
                raise AssertionError(other)
    assert not [one for one in literal if "<" in one or ">" in one]
    assert all(char.isprintable() or char == "\n" for one in literal for char in one)


@given(HOSTILE_NEWS, st.sampled_from([linked(), linked("zh"), Presentation()]))
@settings(max_examples=40, deadline=None)
def test_hostile_texts_keep_every_limit(news: News, shown: Presentation) -> None:
    check(render(news, shown))
    check(render_reply(news, shown))


@given(st.lists(HOSTILE_NEWS, min_size=1, max_size=4), st.sampled_from([linked(), linked("zh")]))
@settings(max_examples=25, deadline=None)
def test_hostile_texts_keep_every_limit_of_a_summary(news: list[News], shown: Presentation) -> None:
    runs = [f"{one.incident.run}{number}" for number in range(7) for one in news]
    check(
        render_summary(
            [replace(one, incident=replace(one.incident, run=run)) for one, run in zip(news * 7, runs, strict=True)],
            shown,
        )
    )


class TestSummary:
    def test_ten_thousand_are_one_message(self) -> None:
        payload = render_summary(many(10_000), linked())
        check(payload)
        told = text(payload)
        assert payload["text"] == "🔔 10000 incidents of 10000 runs"
        assert "*Severity* warning 6666, critical 3334" in told
        assert "*News* opened 8000, resolved 2000" in told
        assert told.count("• ") == 20
        assert "… and 9980 more" in told
        assert "GET /v1/incidents" in told

    def test_the_worst_come_first(self) -> None:
        first, second, *_ = [line for line in text(render_summary(many(6))).split("\n") if line.startswith("•")]
        assert "|run-0> 🔔 critical" in first
        assert "|run-3> 🔔 critical" in second

    def test_one_line_for_a_run(self) -> None:
        news = [replace(one, incident=replace(one.incident, run="run")) for one in many(3)]
        payload = render_summary(news)
        assert "3 incidents of 1 runs" in payload["text"]
        assert "(and 2 more)" in text(payload)

    def test_all_over(self) -> None:
        news = [replace(NEWS, reason=Reason.RESOLVED, incident=OVER)]
        assert render_summary(news)["text"].startswith("✅")


def test_limits_of_slack_are_kept() -> None:
    long = "&" * 5000
    alerts = tuple(
        replace(ALERT, source=long, rule=long, evidence=Evidence(-1e-300, -1e300, None, -1e300)) for _ in range(99)
    )
    incident = replace(INCIDENT, run=long, title=long, meaning=long, remedies=(long,) * 9)
    payload = render(News(Reason.OPENED, incident, alerts, RunConfig(link="https://x/" + "y" * 1500)), linked())
    check(payload)
    assert "and 91 more" in text(payload)
    assert "&am…" not in text(payload)


@pytest.mark.parametrize(
    ("raw", "limit", "shown"),
    [
        ("a<b", 99, "a&lt;b"),
        ("a\r\n\t b", 99, "a b"),
        ("abcdef", 4, "abc…"),
        ("a&&", 7, "a&amp;…"),
        ("😀😀", 4, "😀…"),
        ("a\u202eb\ud800", 9, "a\ufffdb\ufffd"),
        ("", 9, ""),
    ],
)
def test_escaping(raw: str, limit: int, shown: str) -> None:
    assert escape(raw, limit) == shown
    assert len(shown) <= limit


class TestTimelines:
    """From a vector to Slack, with everything real between."""

    @staticmethod
    def post(api: Any, steps: range, loss: float = 0.5) -> None:
        for step in steps:
            assert api.post({"step": step, "metrics": {"actor/pg_loss": loss}}).status == 202

    def test_one_message_when_it_breaks_and_one_when_it_is_over(self, make_api: Any, hook: Any) -> None:
        api = make_api(slack_webhook=hook.address)
        api.call("PUT", "/v1/runs/run", {"link": "https://tracker.example/run"})
        self.post(api, range(5))
        self.post(api, range(5, 9), math.nan)
        opened = hook.next()
        assert "critical: A metric is not a number" in opened["text"]
        assert "*Last good step* 4" in text(opened)
        assert "<https://tracker.example/run|run>" in text(opened)
        self.post(api, range(9, 60))
        assert "resolved" in hook.next()["text"]
        api.settle()
        api.service.stop()
        assert hook.posts.empty()

    def test_429_is_obeyed_and_nothing_is_lost(self, make_api: Any, hook: Any) -> None:
        hook.script = [(429, {"retry-after": "1"})]
        api = make_api(slack_webhook=hook.address)
        self.post(api, range(3), math.nan)
        first, second = hook.next(), hook.next()
        assert first["text"] == second["text"]
        api.service.stop()
        assert hook.posts.empty()

    def test_a_restart_in_the_middle(self, make_api: Any, hook: Any) -> None:
        hook.script = [(500, {})] * 2
        api = make_api(slack_webhook=hook.address)
        self.post(api, range(3), math.nan)
        hook.next()
        api.service.stop()
        later = make_api(slack_webhook=hook.address)
        assert "critical" in hook.next()["text"]
        later.settle()
        later.service.stop()

    def test_a_replay_pages_nobody_again(self, make_api: Any, hook: Any) -> None:
        api = make_api(slack_webhook=hook.address)
        self.post(api, range(3), math.nan)
        hook.next()
        self.post(api, range(3), math.nan)
        api.settle()
        api.service.stop()
        later = make_api(slack_webhook=hook.address)
        self.post(later, range(3), math.nan)
        later.settle()
        later.service.stop()
        assert hook.posts.empty()

    def test_a_hanging_slack_blocks_no_ingest(self, make_api: Any, hook: Any) -> None:
        hook.gate.clear()
        api = make_api(slack_webhook=hook.address, stop_seconds=0.3)
        self.post(api, range(3), math.nan)
        hook.next()  # it has the message, and doesn't answer
        self.post(api, range(3, 50))
        api.settle()
        assert api.get("/v1/runs/run").json["pending"] == 0
        assert "tocsin_outbox_pending 1.0" in api.get("/metrics").data.decode()
        api.service.stop()
        hook.gate.set()
