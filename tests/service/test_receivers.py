"""Every receiver that is told over HTTP: all the ways in which sending can go wrong, the same for each."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tocsin_detectors.alerts import Alert, Evidence, Incident, Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.delivery import Failed, Reason, Receiver, Retry, Sent
from tocsin_service.delivery import slack as slack_messages
from tocsin_service.delivery import webhook as webhook_messages
from tocsin_service.delivery.slack import Slack
from tocsin_service.delivery.webhook import Webhook, sign
from tocsin_service.presentation import Presentation

ALERT = Alert(
    id="a1",
    run="qwen-7b",
    attempt=1,
    rule="kl_collapse",
    family="kl",
    severity=Severity.CRITICAL,
    metric="actor/kl_loss",
    source="kl",
    onset_step=120,
    fired_step=121,
    evidence=Evidence(math.inf, baseline=0.01, limit=0.1, window=64, detail="d"),
    summary="s",
    meaning="m",
    remedies=("r",),
    incident="i1",
)
INCIDENT = Incident(
    id="i1",
    run="qwen-7b",
    attempt=1,
    rule="kl_collapse",
    title="KL jumps",
    severity=Severity.CRITICAL,
    onset_step=120,
    first_sign="a1",
    last_good_step=119,
    members=("a1",),
    meaning="m",
    remedies=("r",),
)
CONFIG = RunConfig(labels={"team": "rl"}, link="https://tracker.example/7")

# name of the setting -> how it is made, and what it says
RECEIVERS: dict[str, tuple[Callable[..., Receiver], Callable[..., dict[str, Any]]]] = {
    "slack_webhook": (Slack, slack_messages.render),
    "webhook": (Webhook, webhook_messages.render),
}


@pytest.fixture(params=RECEIVERS)
def setting(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(setting: str) -> Callable[..., Receiver]:
    return RECEIVERS[setting][0]


@pytest.fixture
def receiver(make: Callable[..., Receiver], hook: Any) -> Iterator[Receiver]:
    receiver = make(hook.address)
    yield receiver
    receiver.close()


def send(receiver: Receiver) -> Any:
    return receiver.send(Reason.OPENED, INCIDENT, (ALERT,), CONFIG)


def test_sent(setting: str, receiver: Receiver, hook: Any) -> None:
    assert send(receiver) == Sent()
    assert hook.next() == RECEIVERS[setting][1](Reason.OPENED, INCIDENT, (ALERT,), CONFIG)


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": "0"}, 1.0),
        ({"retry-after": "99999999"}, 3600.0),
        ({"retry-after": "-5"}, 1.0),
        ({"retry-after": "nan"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({}, 30.0),
    ],
)
def test_too_many_messages(receiver: Receiver, hook: Any, headers: dict[str, str], after: float) -> None:
    hook.script = [(429, headers)]
    assert send(receiver) == Retry("HTTP 429: too many messages", after)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_trouble_that_passes(receiver: Receiver, hook: Any, status: int) -> None:
    hook.script = [(status, {})]
    assert send(receiver) == Retry(f"HTTP {status}")


@pytest.mark.parametrize("status", [301, 400, 403, 404, 410])
def test_trouble_that_stays(receiver: Receiver, hook: Any, status: int) -> None:
    hook.script = [(status, {"location": "http://127.0.0.1:1/"})]
    result = send(receiver)
    assert isinstance(result, Failed)
    assert f"HTTP {status}" in result.reason
    assert "check the webhook" in result.reason
    assert "secret" not in result.reason


def test_a_receiver_that_does_not_answer(make: Callable[..., Receiver], hook: Any) -> None:
    hook.gate.clear()
    receiver = make(hook.address, timeout=0.2)
    assert send(receiver) == Retry("ReadTimeout")
    hook.gate.set()
    receiver.close()


def test_nobody_there(make: Callable[..., Receiver]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    receiver = make(f"http://127.0.0.1:{port}/services/very-secret")
    assert send(receiver) == Retry("ConnectError")
    receiver.close()


@pytest.mark.parametrize("echo", ["{address}", "/services/T0/B0/very-secret", "key=very-secret"])
def test_an_echo_of_the_secret_is_redacted(make: Callable[..., Receiver], hook: Any, echo: str) -> None:
    address = f"{hook.address}?key=very-secret"
    hook.script, hook.body = [(404, {})], f"no {echo.format(address=address)} here".encode()
    receiver = make(address)
    result = send(receiver)
    receiver.close()
    assert isinstance(result, Failed)
    assert "no *** here" in result.reason


def test_the_secret_is_in_no_log(make_api: Any, setting: str, hook: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hook.script = [(500, {}), (404, {})]
    api = make_api(**{setting: hook.address})
    for step in range(5):
        api.post({"step": step, "metrics": {"actor/pg_loss": math.nan}})
    hook.next()
    hook.next()
    api.service.stop()
    assert setting.removesuffix("_webhook") in caplog.text
    assert "very-secret" not in caplog.text


class TestWebhook:
    def test_a_message(self) -> None:
        message = webhook_messages.render(Reason.OPENED, INCIDENT, (ALERT,), CONFIG, Presentation(runbook_base="rb"))
        assert message["alerts"][0]["evidence"]["value"] == "Infinity"  # strict JSON
        assert message["alerts"][0]["runbook"] == message["incident"]["runbook"] == "rb/kl_collapse.md"
        assert (message["run"], message["reason"], message["link"]) == ("qwen-7b", "opened", CONFIG.link)
        assert message["labels"] == {"team": "rl"}
        json.dumps(message, allow_nan=False)

    def test_an_id_per_piece_of_news(self) -> None:
        def id_of(reason: Reason = Reason.OPENED, **changes: Any) -> Any:
            return webhook_messages.render(reason, replace(INCIDENT, **changes), (ALERT,), CONFIG)["id"]

        told = id_of()
        assert told == id_of(members=("a1", "a2"), resolved_step=9)
        news = [
            id_of(Reason.RESOLVED, state=State.RESOLVED),
            id_of(Reason.ESCALATED, rule="model_collapse"),
            id_of(severity=Severity.WARNING),
            id_of(id="i2"),
        ]
        assert len({told, *news}) == 5

    def test_the_signature(self, hook: Any) -> None:
        receiver = Webhook(hook.address, "key of the two", clock=lambda: 1_700_000_000.9)
        assert send(receiver) == Sent()
        receiver.close()
        headers, body = hook.raw.get(timeout=30)
        signed = hmac.new(b"key of the two", b"1700000000." + body, hashlib.sha256).hexdigest()
        assert headers["Tocsin-Timestamp"] == "1700000000"
        assert headers["Tocsin-Signature"] == f"sha256={signed}" == sign("key of the two", "1700000000", body)
        assert headers["Tocsin-Id"] == json.loads(body)["id"]

    def test_without_a_secret_nothing_is_signed(self, hook: Any) -> None:
        receiver = Webhook(hook.address)
        send(receiver)
        receiver.close()
        headers, _ = hook.raw.get(timeout=30)
        assert "Tocsin-Signature" not in headers

    def test_both_receivers_are_told(self, make_api: Any, hook: Any) -> None:
        api = make_api(slack_webhook=hook.address, webhook=hook.address, webhook_secret="key")  # noqa: S106 - a test's
        for step in range(3):
            api.post({"step": step, "metrics": {"actor/pg_loss": math.nan}})
        told = [hook.next(), hook.next()]
        assert sorted("blocks" in one for one in told) == [False, True]
