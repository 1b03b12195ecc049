"""Every receiver that is told over HTTP: all the ways in which sending can go wrong, the same for each."""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.service.told import HOSTILE_NEWS, NEWS, many

from tocsin_service.delivery import Failed, News, Receiver, Retry, Sent, slack_message, webhook
from tocsin_service.delivery.slack import Slack
from tocsin_service.delivery.slack_app import SlackApp
from tocsin_service.delivery.webhook import Webhook
from tocsin_service.settings.secret import Secret

CHANNEL = "C012345"


@dataclass(frozen=True)
class Kind:
    """A kind of receivers.

    Attributes:
        make: makes one from the stand-in's address, and ``timeout``.
        render: what it says.
        hint: what it says to do if it is refused.
        path: of its requests, after the stand-in's address.
        settings: that make one, from the stand-in's address; None: its address is no secret.
    """

    make: Callable[..., Receiver]
    render: Callable[[News], dict[str, Any]]
    hint: str
    path: str = ""
    settings: Callable[[str], dict[str, Any]] | None = None


def _app(address: str, **options: Any) -> SlackApp:
    return SlackApp("xoxb-very-secret", CHANNEL, api=address, **options)


def _app_message(news: News) -> dict[str, Any]:
    metadata = {"event_type": "tocsin_news", "event_payload": {"id": news.id, "incident": news.incident.id}}
    return {**slack_message.render(news), "channel": CHANNEL, "metadata": metadata}


KINDS = {
    "slack": Kind(
        Slack, slack_message.render, "check the webhook", settings=lambda address: {"slack_webhook": address}
    ),
    "slack_app": Kind(_app, _app_message, "docs.slack.dev", "/chat.postMessage"),
    "webhook": Kind(Webhook, webhook.render, "check the webhook", settings=lambda address: {"webhook": address}),
}


# Those whose address is their secret.
WEBHOOKS = {name: kind for name, kind in KINDS.items() if kind.settings is not None}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def slack_answers(hook: Any) -> Any:
    """A stand-in whose body, which only Slack's Web API looks at, says that all is well."""
    hook.body = json.dumps({"ok": True, "channel": CHANNEL, "ts": "1.000001"}).encode()
    return hook


@pytest.fixture
def receiver(kind: Kind, slack_answers: Any) -> Iterator[Receiver]:
    receiver = kind.make(slack_answers.address)
    yield receiver
    receiver.close()


def test_sent(kind: Kind, receiver: Receiver, hook: Any) -> None:
    assert isinstance(receiver.tell(NEWS), Sent)
    assert hook.next() == kind.render(NEWS)


def test_many_are_one_message(receiver: Receiver, hook: Any) -> None:
    assert isinstance(receiver.summarise(many(3000)), Sent)
    hook.next()
    assert hook.posts.empty()


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
    hook.script = [(429, headers)] * 2
    assert receiver.tell(NEWS) == Retry("HTTP 429: too many messages", after)
    assert receiver.summarise([NEWS]) == Retry("HTTP 429: too many messages", after)


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504])
def test_trouble_that_passes(receiver: Receiver, hook: Any, status: int) -> None:
    hook.script = [(status, {})]
    assert receiver.tell(NEWS) == Retry(f"HTTP {status}")


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 410, 413, 422])
def test_trouble_that_somebody_has_to_mend(kind: Kind, receiver: Receiver, hook: Any, status: int) -> None:
    hook.script = [(status, {"location": "http://127.0.0.1:1/"})]
    result = receiver.tell(NEWS)
    assert isinstance(result, Failed if status in {400, 413, 422} else Retry)  # a wrong address keeps the news waiting
    assert f"HTTP {status}" in result.reason
    assert kind.hint in result.reason
    assert "secret" not in result.reason


def test_a_receiver_that_does_not_answer(kind: Kind, hook: Any) -> None:
    hook.gate.clear()
    receiver = kind.make(hook.address, timeout=0.2)
    assert receiver.tell(NEWS) == Retry("ReadTimeout")
    hook.gate.set()
    receiver.close()


def test_an_answer_without_an_end(kind: Kind) -> None:
    def talk(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the caller has had enough
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"x" * 100_000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk, args=(listener,))
        thread.start()
        receiver = kind.make(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        understood = not isinstance(receiver, SlackApp)
        assert receiver.tell(NEWS) == (Sent() if understood else Retry("the answer is not Slack's"))
        receiver.close()
        thread.join()


def test_nobody_there(kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    receiver = kind.make(f"http://127.0.0.1:{port}/services/very-secret")
    assert receiver.tell(NEWS) == Retry("ConnectError")
    receiver.close()


@pytest.mark.parametrize("echo", ["{address}", "/services/T0/B0/very-secret", "key=very-secret"])
def test_an_echo_of_the_secret_is_redacted(kind: Kind, hook: Any, echo: str) -> None:
    address = hook.address if kind.path else f"{hook.address}?key=very-secret"
    hook.script, hook.body = [(404, {})], f"no {echo.format(address=address)} here".encode()
    receiver = kind.make(address)
    result = receiver.tell(NEWS)
    receiver.close()
    assert isinstance(result, Retry)
    assert "HTTP 404" in result.reason
    assert "very-secret" not in result.reason


@pytest.mark.parametrize("kind", WEBHOOKS.values(), ids=WEBHOOKS)
def test_the_secret_is_in_no_log(make_api: Any, kind: Kind, hook: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert kind.settings is not None
    caplog.set_level(logging.DEBUG)
    hook.script = [(500, {}), (400, {})]
    api = make_api(**kind.settings(hook.address))
    for step in range(5):
        api.post({"step": step, "metrics": {"actor/pg_loss": math.nan}})
    hook.next()
    hook.next()
    api.service.stop()
    assert "was not told of" in caplog.text
    assert "very-secret" not in caplog.text


@pytest.mark.parametrize("kind", WEBHOOKS.values(), ids=WEBHOOKS)
def test_a_new_address_is_used_without_a_restart(kind: Kind, hook: Any, tmp_path: Path) -> None:
    file = tmp_path / "address"
    file.write_text(f"{hook.address}/old\n")
    secret = Secret.of_file(file)
    receiver = kind.make(secret)
    hook.script = [(410, {}), (200, {})]
    assert isinstance(receiver.tell(NEWS), Retry)
    replaced = tmp_path / "new"
    replaced.write_text(hook.address)
    replaced.rename(file)
    assert receiver.tell(NEWS) == Sent()
    receiver.close()
    assert "very-secret" not in repr(vars(receiver)) + repr(secret)


@given(HOSTILE_NEWS)
@settings(max_examples=20, deadline=None)
def test_whatever_is_told_is_strict_json(news: News) -> None:
    for kind in KINDS.values():
        json.dumps(kind.render(news), allow_nan=False)
    json.loads(webhook.render_summary([news] * 3))


def test_both_receivers_are_told(make_api: Any, hook: Any) -> None:
    api = make_api(slack_webhook=hook.address, webhook=hook.address, webhook_secret="key")  # noqa: S106 - a test's
    for step in range(3):
        api.post({"step": step, "metrics": {"actor/pg_loss": math.nan}})
    told = [hook.next(), hook.next()]
    assert sorted("blocks" in one for one in told) == [False, True]
