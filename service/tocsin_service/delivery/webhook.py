"""Any program that takes JSON over HTTP: one signed POST per piece of news of an incident."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from tocsin_detectors.alerts import Alert, Incident, derive_id
from tocsin_detectors.entries import RunConfig
from tocsin_service.delivery import Reason, Result
from tocsin_service.delivery.posting import TIMEOUT_SECONDS, Poster
from tocsin_service.presentation import PLAIN, Presentation

__all__ = ["Webhook", "render", "sign"]


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
    """

    name = "webhook"

    def __init__(
        self,
        address: str,
        secret: str | None = None,
        shown: Presentation = PLAIN,
        timeout: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._poster = Poster(address, "check the webhook's address and its log", timeout)
        self._secret, self._shown, self._clock = secret, shown, clock

    def send(self, reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig) -> Result:
        message = render(reason, incident, alerts, config, self._shown)
        body = json.dumps(message, allow_nan=False).encode()
        headers = {"Tocsin-Id": message["id"]}
        if self._secret is not None:
            timestamp = str(int(self._clock()))
            headers |= {"Tocsin-Timestamp": timestamp, "Tocsin-Signature": sign(self._secret, timestamp, body)}
        return self._poster.post(body, headers)

    def close(self) -> None:
        self._poster.close()


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature: ``sha256=`` and the hexadecimal HMAC-SHA256 of timestamp, a full stop, and the body.

    The timestamp is signed too, so that a receiver can refuse what somebody recorded and sends again.
    """
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def render(
    reason: Reason,
    incident: Incident,
    alerts: Sequence[Alert],
    config: RunConfig,
    shown: Presentation = PLAIN,
) -> dict[str, Any]:
    """The message as strict JSON: the incident and its alerts as the API shows them.

    Args:
        reason: why it is sent.
        incident: as it is now.
        alerts: its members in order of onset.
        config: of the run; its labels and link are part of the message.
        shown: language and links.
    """
    # What a receiver was told by is not told again: one id per incident, reason and degree.
    told = derive_id("notification", incident.id, reason, incident.severity, incident.rule)
    return {
        "version": 1,
        "id": told,
        "reason": str(reason),
        "run": incident.run,
        "labels": dict(config.labels or {}),
        "link": config.link,
        "incident": shown.incident(incident),
        "alerts": [shown.alert(alert) for alert in alerts],
    }
