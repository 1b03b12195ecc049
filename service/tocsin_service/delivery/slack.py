"""Slack, by an incoming webhook: one message for each piece of news."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from tocsin_service.delivery import Failed, News, Reason, Result
from tocsin_service.delivery.posting import ATTEMPT_SECONDS, TIMEOUT_SECONDS, Poster
from tocsin_service.delivery.slack_message import render, render_reply, render_summary, without_picture
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.settings.secret import Secret

__all__ = ["Slack"]


class Slack:
    """Sends to one incoming webhook.

    A webhook can't look for what it has sent, nor answer it. A message that may or may not have arrived is sent again;
    a later message names the incident and the step at which it was opened.

    Args:
        webhook: the address that Slack gave; a secret that is in no message, log or representation.
        shown: language and links of the messages.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
        name: of this receiver.
    """

    def __init__(
        self, webhook: str | Secret, shown: Presentation = PLAIN, timeout: float = TIMEOUT_SECONDS, name: str = "slack"
    ) -> None:
        self._poster, self._shown, self.name = Poster(webhook, "check the webhook in Slack", timeout), shown, name

    def tell(self, news: News) -> Result:
        later = news.reason in {Reason.ACKNOWLEDGED, Reason.REMINDED}
        return self._send((render_reply if later else render)(news, self._shown))

    def summarise(self, news: Sequence[News]) -> Result:
        return self._send(render_summary(news, self._shown))

    def close(self) -> None:
        self._poster.close()

    def _send(self, message: dict[str, Any]) -> Result:
        ends = time.monotonic() + ATTEMPT_SECONDS
        result = self._post(message, ends)
        bare = without_picture(message)
        if isinstance(result, Failed) and result.reason.startswith("HTTP 400") and bare is not None:
            return self._post(bare, ends)  # a picture that Slack can't load is a reason for it to refuse the whole
        return result

    def _post(self, message: dict[str, Any], ends: float) -> Result:
        return self._poster.post(json.dumps(message, allow_nan=False).encode(), ends=ends)
