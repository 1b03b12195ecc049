"""Any program that takes JSON over HTTP: one signed POST per piece of news of an incident, or for many at once."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from tocsin_service.delivery import News, Result
from tocsin_service.delivery.digest import summary_id
from tocsin_service.delivery.posting import TIMEOUT_SECONDS, Poster, as_secret
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.settings.secret import Secret

__all__ = ["MOST_BYTES", "Webhook", "render", "render_summary", "sign"]

MOST_BYTES = 2**20  # of a summary that has everything; beyond, its entries have what names an incident
_NAMING = ("id", "rule", "title", "severity", "state", "onset_step", "attempt")


class Webhook:
    """Sends to one address.

    Each POST carries ``Tocsin-Id``, the notification's id: a receiver that was told twice sees the same id twice. With
    a secret it also carries ``Tocsin-Timestamp`` (Unix seconds) and ``Tocsin-Signature``, see :func:`sign`.

    Args:
        address: where to send; a secret, as it may hold a password.
        secret: the key of the signature; None sends unsigned. Secret.
        shown: language and links of the messages.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
        clock: Unix time in seconds.
        name: of this receiver.
    """

    def __init__(
        self,
        address: str | Secret,
        secret: str | Secret | None = None,
        shown: Presentation = PLAIN,
        timeout: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
        name: str = "webhook",
    ) -> None:
        self.name = name
        self._poster = Poster(address, "check the webhook's address and its log", timeout)
        self._secret = None if secret is None else as_secret(secret)
        self._shown, self._clock = shown, clock

    def tell(self, news: News) -> Result:
        return self._send(news.id, _encoded(render(news, self._shown)))

    def summarise(self, news: Sequence[News]) -> Result:
        return self._send(summary_id(news), render_summary(news, self._shown))

    def close(self) -> None:
        self._poster.close()

    def _send(self, told: str, body: bytes) -> Result:
        headers = {"Tocsin-Id": told}
        if self._secret is not None:
            timestamp = str(int(self._clock()))
            signature = sign(self._secret.read(), timestamp, body)
            headers |= {"Tocsin-Timestamp": timestamp, "Tocsin-Signature": signature}
        return self._poster.post(body, headers)


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature: ``sha256=`` and the hexadecimal HMAC-SHA256 of timestamp, a full stop, and the body.

    The timestamp is signed too, so that a receiver can refuse what somebody recorded and sends again.
    """
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def render(news: News, shown: Presentation = PLAIN) -> dict[str, Any]:
    """The message as strict JSON: the incident and its alerts as the API shows them."""
    return {
        "version": 1,
        "id": news.id,
        "reason": str(news.reason),
        "run": news.incident.run,
        "labels": dict(news.config.labels or {}),
        "link": news.config.link,
        "dashboard": shown.view(news.incident),
        "samples": shown.samples(news.incident, news.alerts),
        "acknowledged": None if news.acknowledged is None else asdict(news.acknowledged),
        "incident": shown.incident(news.incident),
        "alerts": [shown.alert(alert) for alert in news.alerts],
    }


def render_summary(news: Sequence[News], shown: Presentation = PLAIN) -> bytes:
    """One body for many pieces of news, as strict JSON.

    ``incidents`` are the messages that :func:`render` gives. Where they would be more than :data:`MOST_BYTES`,
    ``complete`` is false and they have only what names them: the whole is to be had from the API.
    """
    head = {"version": 1, "id": summary_id(news), "reason": "summary"}
    messages, size = list[dict[str, Any]](), 0
    for one in news:
        messages.append(render(one, shown))
        size += len(_encoded(messages[-1]))
        if size > MOST_BYTES:
            return _encoded({**head, "complete": False, "incidents": [_brief(one, shown) for one in news]})
    return _encoded({**head, "complete": True, "incidents": messages})


def _brief(news: News, shown: Presentation) -> dict[str, Any]:
    incident = shown.incident(news.incident)
    named = {name: incident[name] for name in _NAMING}
    return {"id": news.id, "reason": str(news.reason), "run": news.incident.run, "incident": named}


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, allow_nan=False).encode()
