"""One POST to a receiver's secret address, and what its answer means for the outbox."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tocsin_service.delivery import Failed, Result, Retry, Sent

__all__ = ["Poster"]

TIMEOUT_SECONDS = 10.0
LONGEST_RETRY_AFTER = 3600.0  # a receiver must not be able to silence itself for a day


class Poster:
    """Sends to one address, which may hold a password: it is in no message, log or representation.

    Args:
        address: where to send.
        hint: what to do if the receiver refuses a message for good.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
    """

    def __init__(self, address: str, hint: str, timeout: float = TIMEOUT_SECONDS) -> None:
        # The HTTP library logs every address it calls.
        for library in ("httpx2", "httpcore2"):
            logging.getLogger(library).setLevel(logging.WARNING)
        self._address, self._hint = address, hint
        self._client = httpx2.Client(timeout=timeout, follow_redirects=False)

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> Result:
        """Makes one attempt with a JSON body; never raises for what the network does."""
        try:
            response = self._client.post(
                self._address, content=body, headers={"Content-Type": "application/json", **(headers or {})}
            )
        except httpx2.HTTPError as error:
            return Retry(type(error).__name__)  # its text may hold the address
        status = response.status_code
        if 200 <= status < 300:
            return Sent()
        if status == 429:
            return Retry("HTTP 429: too many messages", _retry_after(response.headers.get("retry-after")))
        if status in {408, 425} or status >= 500:
            return Retry(f"HTTP {status}")
        return Failed(f"HTTP {status}: {self._redact(response.text)[:100]!r}; {self._hint}")

    def close(self) -> None:
        """Lets go of the connection."""
        self._client.close()

    def _redact(self, text: str) -> str:
        parts: Any = urlsplit(self._address)
        secrets = [self._address, parts.path if len(parts.path) > 1 else "", parts.query, parts.password or ""]
        for secret in filter(None, secrets):
            text = text.replace(secret, "***")
        return text


def _retry_after(value: str | None) -> float:
    try:
        seconds = float(value or "")
    except ValueError:  # absent, or a date
        return 30.0
    return min(max(seconds, 1.0), LONGEST_RETRY_AFTER) if seconds == seconds else 30.0  # noqa: PLR0124 - NaN
