"""Slack as an app: a thread for each incident, and nothing twice under one id, whatever goes wrong."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.service.slack_stand_in import (
    BROKEN,
    BROKEN_AFTER,
    CHANNEL,
    CUT_AFTER,
    HANGS_AFTER,
    TOKEN,
    TOO_MANY,
    Fault,
    SlackStandIn,
    slack,
)
from tests.service.told import ACKNOWLEDGED, INCIDENT, NEWS, OVER, linked, many

from tocsin_detectors.alerts import Severity
from tocsin_service.delivery import Failed, News, Reason, Receiver, Retry, Sent
from tocsin_service.delivery.files import ReceiversError, make_receiver, read_plan
from tocsin_service.delivery.making import Surroundings
from tocsin_service.delivery.slack_app import SlackApp
from tocsin_service.settings.secret import Secret

WARNING = replace(NEWS, incident=replace(INCIDENT, severity=Severity.WARNING, rule="kl_collapse"))
WORSE = replace(NEWS, reason=Reason.ESCALATED)
SEEN = replace(NEWS, reason=Reason.ACKNOWLEDGED, acknowledged=ACKNOWLEDGED)
RESOLVED = replace(NEWS, reason=Reason.RESOLVED, incident=OVER)
AMBIGUOUS = {"500": BROKEN_AFTER, "cut": CUT_AFTER}


@pytest.fixture
def server() -> Iterator[SlackStandIn]:
    with slack() as server:
        yield server


@pytest.fixture
def app(server: SlackStandIn) -> Iterator[SlackApp]:
    app = SlackApp(TOKEN, CHANNEL, linked(), api=server.api)
    yield app
    app.close()


def tell(app: SlackApp, news: News, thread: str | None = None, *, again: bool = False) -> str:
    result = app.tell(replace(news, thread=thread, again=again))
    assert isinstance(result, Sent), result
    assert result.thread is not None
    return result.thread


def ids(server: SlackStandIn) -> list[str]:
    return [message["metadata"]["event_payload"]["id"] for message in server.told()]


def header(message: dict[str, Any]) -> str:
    return str(message["blocks"][0]["text"]["text"])


class TestThread:
    def test_later_news_are_replies_and_the_first_message_shows_how_things_are(
        self, app: SlackApp, server: SlackStandIn
    ) -> None:
        thread = tell(app, WARNING)
        channel, ts = thread.split(":")
        assert channel == CHANNEL
        for news, start in [(WORSE, "🔺 critical: worse"), (SEEN, "👀 critical"), (RESOLVED, "✅ critical: resolved")]:
            assert tell(app, news, thread) == thread
            assert header(server.told()[0]).startswith(start)
        first, *replies = server.told()
        assert first["ts"] == ts
        assert "thread_ts" not in first
        assert [reply["thread_ts"] for reply in replies] == [ts] * 3
        assert [reply["reply_broadcast"] for reply in replies] == [True, False, True]
        assert ids(server) == [WARNING.id, WORSE.id, SEEN.id, RESOLVED.id]
        assert not server.called("conversations.history")

    def test_a_thread_that_is_gone_begins_anew(self, app: SlackApp, server: SlackStandIn) -> None:
        thread = tell(app, WORSE, f"{CHANNEL}:1.000001")
        (message,) = server.told()
        assert thread == f"{CHANNEL}:{message['ts']}"
        assert "thread_ts" not in message
        assert not server.called("chat.update")

    def test_an_update_that_slack_refuses_is_no_failure(
        self, app: SlackApp, server: SlackStandIn, caplog: pytest.LogCaptureFixture
    ) -> None:
        thread = tell(app, WARNING)
        server.faults["chat.update"] = deque([Fault(error="edit_window_closed")])
        assert tell(app, WORSE, thread) == thread
        assert len(server.told()) == 2
        assert "edit_window_closed" in caplog.text

    def test_an_update_that_has_to_wait_is_made_up_for(self, app: SlackApp, server: SlackStandIn) -> None:
        thread = tell(app, WARNING)
        server.faults["chat.update"] = deque([TOO_MANY])
        assert app.tell(replace(WORSE, thread=thread)) == Retry("HTTP 429: too many messages", 1.0)
        assert header(server.told()[0]).startswith("🔔")
        assert tell(app, WORSE, thread, again=True) == thread
        assert header(server.told()[0]).startswith("🔺")
        assert ids(server) == [WARNING.id, WORSE.id]
        assert not server.called("conversations.replies")  # it knows

    def test_a_summary_updates_first_messages(self, app: SlackApp, server: SlackStandIn) -> None:
        threads = [tell(app, one) for one in many(30)]
        news = [
            replace(one, reason=Reason.RESOLVED, incident=replace(OVER, id=one.incident.id), thread=thread)
            for one, thread in zip(many(30), threads, strict=True)
        ]
        assert app.summarise(news) == Sent()
        *first, summary = server.told()
        assert header(summary).startswith("✅ 30 incidents")
        assert [header(one).startswith("✅") for one in first[:25]] == [True] * 20 + [False] * 4 + [True]
        server.faults["chat.update"] = deque([TOO_MANY])
        assert app.summarise(news) == Sent()
        assert len(server.called("chat.update")) == 21


class TestLooksBeforeItSaysItAgain:
    @pytest.mark.parametrize("fault", AMBIGUOUS.values(), ids=AMBIGUOUS)
    def test_the_first_message(self, app: SlackApp, server: SlackStandIn, fault: Fault) -> None:
        server.faults["chat.postMessage"] = deque([fault])
        assert isinstance(app.tell(NEWS), Retry)
        other = [tell(app, replace(NEWS, incident=replace(INCIDENT, id=f"o{number}"))) for number in range(3)]
        thread = tell(app, NEWS, again=True)
        assert thread not in other
        assert len(server.told()) == 4
        assert thread == f"{CHANNEL}:{server.told()[0]['ts']}"

    @pytest.mark.parametrize("fault", AMBIGUOUS.values(), ids=AMBIGUOUS)
    def test_a_reply(self, app: SlackApp, server: SlackStandIn, fault: Fault) -> None:
        thread = tell(app, WARNING)
        server.faults["chat.postMessage"] = deque([fault])
        assert isinstance(app.tell(replace(WORSE, thread=thread)), Retry)
        assert tell(app, WORSE, thread, again=True) == thread
        assert ids(server) == [WARNING.id, WORSE.id]
        assert header(server.told()[0]).startswith("🔺")

    def test_after_the_callers_time_out(self, server: SlackStandIn) -> None:
        server.faults["chat.postMessage"] = deque([HANGS_AFTER])
        app = SlackApp(TOKEN, CHANNEL, api=server.api, timeout=0.3)
        assert app.tell(NEWS) == Retry("ReadTimeout")
        app.close()
        assert server.hanging.acquire(timeout=30)  # by now Slack has it
        patient = SlackApp(TOKEN, CHANNEL, api=server.api)
        tell(patient, NEWS, again=True)
        patient.close()
        assert ids(server) == [NEWS.id]

    def test_it_is_said_if_it_is_not_there(self, app: SlackApp, server: SlackStandIn) -> None:
        server.faults["chat.postMessage"] = deque([BROKEN])
        assert app.tell(NEWS) == Retry("HTTP 500")
        tell(app, NEWS, again=True)
        assert ids(server) == [NEWS.id]

    def test_got_worse_meanwhile(self, app: SlackApp, server: SlackStandIn) -> None:
        """The first message has arrived without anybody knowing: what is true now is a reply to it."""
        server.faults["chat.postMessage"] = deque([CUT_AFTER])
        assert isinstance(app.tell(WARNING), Retry)
        thread = tell(app, NEWS, again=True)
        first, reply = server.told()
        assert thread == f"{CHANNEL}:{first['ts']}"
        assert (reply["thread_ts"], reply["reply_broadcast"]) == (first["ts"], True)

    def test_a_summary(self, app: SlackApp, server: SlackStandIn) -> None:
        news = many(5)
        server.faults["chat.postMessage"] = deque([CUT_AFTER])
        assert isinstance(app.summarise(news), Retry)
        assert app.summarise([replace(one, again=True) for one in reversed(news)]) == Sent()
        assert len(server.told()) == 1

    def test_without_the_scope_it_is_said_twice(
        self, app: SlackApp, server: SlackStandIn, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.scopes.remove("channels:history")
        server.faults["chat.postMessage"] = deque([CUT_AFTER])
        assert isinstance(app.tell(NEWS), Retry)
        tell(app, NEWS, again=True)
        tell(app, NEWS, again=True)
        assert ids(server) == [NEWS.id] * 3
        assert caplog.text.count("missing_scope") == 1

    def test_it_waits_if_it_can_not_look_now(self, app: SlackApp, server: SlackStandIn) -> None:
        server.faults["conversations.history"] = deque([TOO_MANY])
        assert app.tell(replace(NEWS, again=True)) == Retry("HTTP 429: too many messages", 1.0)
        assert not server.told()

    def test_messages_of_others_are_none_of_its_business(self, app: SlackApp, server: SlackStandIn) -> None:
        foreign = [
            {"text": "hello"},
            {"metadata": None},
            {"metadata": {"event_type": "deploy", "event_payload": {"id": NEWS.id}}},
            {"metadata": {"event_type": "tocsin_news", "event_payload": None}},
        ]
        server.messages = [
            {**one, "ts": f"9999999999.{number:06d}", "blocks": []} for number, one in enumerate(foreign)
        ]
        tell(app, NEWS, again=True)
        assert len(server.told()) == 5


class TestRefusals:
    @pytest.mark.parametrize("error", ["ratelimited", "rate_limited"])
    def test_too_many(self, app: SlackApp, server: SlackStandIn, error: str) -> None:
        server.faults["chat.postMessage"] = deque([Fault(error=error)])
        assert app.tell(NEWS) == Retry(f"Slack: {error}", 30.0)

    @pytest.mark.parametrize("error", ["internal_error", "fatal_error", "service_unavailable", "request_timeout"])
    def test_trouble_that_passes(self, app: SlackApp, server: SlackStandIn, error: str) -> None:
        server.faults["chat.postMessage"] = deque([Fault(error=error)])
        assert app.tell(NEWS) == Retry(f"Slack: {error}")

    @pytest.mark.parametrize(
        ("error", "hint"),
        [
            ("invalid_auth", "bot token"),
            ("token_revoked", "bot token"),
            ("channel_not_found", "invite the app"),
            ("not_in_channel", "invite the app"),
            ("is_archived", "archived"),
            ("missing_scope", "chat:write"),
            ("msg_too_long", "docs.slack.dev"),
            ("<!channel> very-secret", "unknown_error"),
        ],
    )
    def test_trouble_that_somebody_has_to_mend(self, server: SlackStandIn, error: str, hint: str) -> None:
        server.faults["chat.postMessage"] = deque([Fault(error=error)] * 2)
        app = SlackApp(TOKEN, CHANNEL, api=server.api)
        result = app.tell(NEWS)
        app.close()
        message_is_wrong = error == "msg_too_long" or "secret" in error
        assert isinstance(result, Failed if message_is_wrong else Retry)  # the rest waits until it is mended
        assert hint in result.reason
        assert "very-secret" not in result.reason

    @pytest.mark.parametrize("body", [b"ok", b"[]", b'"ok"', b"{}", b"\xff"])
    def test_an_answer_that_is_not_slacks(self, hook: Any, body: bytes) -> None:
        hook.body = body
        app = SlackApp(TOKEN, CHANNEL, api=hook.address)
        assert app.tell(NEWS) == Retry("the answer is not Slack's")
        app.close()

    @pytest.mark.parametrize("token", ["", "xoxb with spaces", "xoxb\nnewline", "xöxb"])
    def test_a_token_that_is_none(self, token: str) -> None:
        with pytest.raises(ValueError, match="a token of Slack"):
            SlackApp(token, CHANNEL)


class TestPictures:
    def test_a_message_goes_without_a_picture_that_slack_can_not_load(
        self, app: SlackApp, server: SlackStandIn
    ) -> None:
        server.bad_pictures = True
        thread = tell(app, WARNING)
        tell(app, WORSE, thread)
        assert all(block["type"] != "image" for message in server.told() for block in message["blocks"])
        assert [len(server.called(method)) for method in ("chat.postMessage", "chat.update")] == [4, 2]

    def test_with_a_picture(self, app: SlackApp, server: SlackStandIn) -> None:
        tell(app, WARNING)
        assert "image" in {block["type"] for block in server.told()[0]["blocks"]}


def test_a_new_token_is_used_without_a_restart(server: SlackStandIn, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("xoxb-an-old-one")
    app = SlackApp(Secret.of_file(file), CHANNEL, api=server.api)
    result = app.tell(NEWS)
    assert isinstance(result, Retry)
    assert "invalid_auth" in result.reason
    file.write_text(TOKEN)
    tell(app, NEWS)
    app.close()


def test_the_token_is_in_no_log_and_no_representation(
    app: SlackApp, server: SlackStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.faults["chat.postMessage"] = deque([BROKEN, Fault(error="invalid_auth")])
    results = [app.tell(NEWS) for _ in range(3)]
    assert "very-secret" not in caplog.text + repr(results) + repr(vars(app))


class TestTheFileOfReceivers:
    @staticmethod
    def make(tmp_path: Path, api: str) -> Receiver:
        (tmp_path / "token").write_text(TOKEN)
        file = tmp_path / "receivers.yml"
        slack = f"{{token_file: token, channel: {CHANNEL}, api: '{api}'}}"
        file.write_text(f"receivers:\n  - name: team\n    slack: {slack}\n")
        (described,) = read_plan(file).receivers
        return make_receiver(described, Surroundings(), file)

    def test_it_says_where_slack_is(self, server: SlackStandIn, tmp_path: Path) -> None:
        receiver = self.make(tmp_path, server.api)
        assert isinstance(receiver.tell(NEWS), Sent)
        receiver.close()
        assert receiver.name == "team"
        assert len(server.told()) == 1

    def test_a_token_goes_nowhere_in_the_clear(self, tmp_path: Path) -> None:
        with pytest.raises(ReceiversError, match="https://"):
            self.make(tmp_path, "http://slack.example/api")
