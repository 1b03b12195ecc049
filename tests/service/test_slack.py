"""Slack: what a message says, and timelines from a vector to the message."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tocsin_detectors.alerts import Alert, Evidence, Incident, Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.delivery import Reason
from tocsin_service.delivery.slack import escape, render

ALERT = Alert(
    id="a1",
    run="qwen-7b",
    attempt=1,
    rule="kl_jump",
    family="kl",
    severity=Severity.CRITICAL,
    metric="actor/kl_loss",
    source="kl",
    onset_step=120,
    fired_step=121,
    evidence=Evidence(0.5, baseline=0.0123456789, limit=0.1, window=64, detail="d"),
    summary="s",
    meaning="m",
    remedies=("r",),
    incident="i1",
)
INCIDENT = Incident(
    id="i1",
    run="qwen-7b",
    attempt=1,
    rule="model_collapse",
    title="Model collapse: kl, reward broke together",
    severity=Severity.CRITICAL,
    onset_step=120,
    first_sign="a1",
    last_good_step=119,
    members=("a1", "a2"),
    meaning="The policy has left the region of the reference.",
    remedies=("Stop the run.", "Resume from step 119.", "Lower the learning rate.", "A fourth."),
)
REWARD = replace(ALERT, id="a2", rule="reward_collapse", source="reward", evidence=Evidence(math.nan), onset_step=121)
CONFIG = RunConfig(link="https://wandb.ai/team/runs/7?a=1&b=2")


def text(payload: dict[str, Any]) -> str:
    return "\n".join(block["text"]["text"] for block in payload["blocks"])


def test_a_whole_message() -> None:
    assert render(Reason.OPENED, INCIDENT, (ALERT, REWARD), CONFIG) == {
        "text": "🔔 critical: Model collapse: kl, reward broke together — run qwen-7b, step 120",
        "blocks": [
            {
                "type": "header",
                "text": {
                    "type": "plain_text",
                    "text": "🔔 critical: Model collapse: kl, reward broke together",
                    "emoji": True,
                },
            },
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "*Run* <https://wandb.ai/team/runs/7?a=1&amp;b=2|qwen-7b>, attempt 1\n"
                    "*First sign* kl_jump on `kl`\n"
                    "*Onset* step 120\n"
                    "*Last good step* 119\n"
                    "*Runbook* `docs/runbooks/model_collapse.md`",
                },
            },
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "*Numbers*\n"
                    "• `kl` 0.5, baseline 0.0123457, limit 0.1 — kl_jump, since step 120\n"
                    "• `reward` nan — reward_collapse, since step 121",
                },
            },
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "*What it means*\nThe policy has left the region of the reference.",
                },
            },
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "*What to do*\n1. Stop the run.\n2. Resume from step 119.\n3. Lower the learning rate.",
                },
            },
        ],
        "unfurl_links": False,
    }


def test_the_all_clear_is_short() -> None:
    over = replace(INCIDENT, state=State.RESOLVED, resolved_step=200)
    payload = render(Reason.RESOLVED, over, (ALERT,), RunConfig())
    assert "resolved" in payload["text"]
    assert "*Resolved* at step 200" in text(payload)
    assert "What to do" not in text(payload)


def test_wrong_from_the_start() -> None:
    payload = render(Reason.OPENED, replace(INCIDENT, last_good_step=None), (), RunConfig())
    assert "none: wrong from the start" in text(payload)


HOSTILE = "<!channel> & <@U1|x> `*_~\nrun"


def test_nothing_of_a_client_can_call_or_link() -> None:
    alert = replace(ALERT, source=HOSTILE)
    payload = render(Reason.OPENED, replace(INCIDENT, run=HOSTILE), (alert,), RunConfig())
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
        "https://x/" + "&" * 1990,
        "not a link",
    ],
)
def test_only_plain_web_links_are_shown(link: str) -> None:
    assert "*Run* `qwen-7b`" in text(render(Reason.OPENED, INCIDENT, (), RunConfig(link=link)))


def test_limits_of_slack_are_kept() -> None:
    long = "&" * 5000
    alerts = tuple(
        replace(ALERT, source=long, rule=long, evidence=Evidence(-1e-300, -1e300, None, -1e300)) for _ in range(99)
    )
    incident = replace(INCIDENT, run=long, title=long, meaning=long, remedies=(long,) * 9)
    payload = render(Reason.OPENED, incident, alerts, RunConfig(link="https://x/" + "y" * 1900))
    header, *sections = payload["blocks"]
    assert len(header["text"]["text"]) <= 150
    assert all(len(block["text"]["text"]) <= 3000 for block in sections)
    assert len(payload["blocks"]) <= 50
    assert "and 91 more" in text(payload)
    assert "&am…" not in text(payload)


@pytest.mark.parametrize(
    ("raw", "limit", "shown"),
    [("a<b", 99, "a&lt;b"), ("a\r\n\t b", 99, "a b"), ("abcdef", 4, "abc…"), ("a&&", 7, "a&amp;…"), ("", 9, "")],
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
