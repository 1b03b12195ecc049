"""HTTP to receivers: one attempt in a bounded time, and what its answer means for the outbox."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tocsin_service.delivery import Failed, Result, Retry, Sent
from tocsin_service.settings.secret import Secret

__all__ = ["ATTEMPT_SECONDS", "PASSING", "TIMEOUT_SECONDS", "Answer", "Http", "Poster", "as_secret", "judge"]

ATTEMPT_SECONDS = 22.0  # for everything that one attempt does; a wait more, and it is still under the promised 30
TIMEOUT_SECONDS = 7.0
PASSING = frozenset({408, 425, 429})  # nobody has to do anything
WRONG_MESSAGE = frozenset({400, 413, 414, 415, 422})  # another attempt would be answered alike
LONGEST_RETRY_AFTER = 3600.0  # a receiver must not be able to silence itself for a day
MOST_ANSWER_BYTES = 8 * 2**20


def as_secret(value: str | Secret) -> Secret:
    """``value`` as a secret that doesn't change, unless it is one already."""
    return value if isinstance(value, Secret) else Secret(value)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server has answered; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class Http:
    """Sends requests. Of an answer that is endless or trickles in it reads a part; no address gets into a log.

    Args:
        timeout: seconds for an attempt to connect, and for each wait for an answer.
    """

    def __init__(self, timeout: float = TIMEOUT_SECONDS) -> None:
        # The HTTP library logs every address it calls.
        for library in ("httpx2", "httpcore2"):
            logging.getLogger(library).setLevel(logging.WARNING)
        self._timeout = timeout
        self._client = httpx2.Client(follow_redirects=False)

    def send(
        self,
        method: str,
        address: str,
        ends: float,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer | Retry:
        """One request, given up past ``ends`` (of :func:`time.monotonic`). Never raises for what the network does."""
        left = ends - time.monotonic()
        if left <= 0:
            return Retry("no time is left in this attempt")
        waits = httpx2.Timeout(min(self._timeout, left / 3))  # to connect, to write and to read
        try:
            with self._client.stream(
                method, address, params=params, content=body, headers=dict(headers), timeout=waits
            ) as response:
                chunks, size = [], 0
                for chunk in response.iter_bytes():
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MOST_ANSWER_BYTES or time.monotonic() > ends:
                        break  # whoever needs to understand it won't
                return Answer(response.status_code, dict(response.headers), b"".join(chunks))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return Retry(type(error).__name__)  # its text may hold the address

    def close(self) -> None:
        """Lets go of the connections."""
        self._client.close()


def judge(answer: Answer) -> Result:
    """What a status says to everybody: sent, again later, or refused for good.

    Only a message can be refused for good. A wrong address, token or right is mended some day, and then people want to
    hear what they missed.
    """
    status = answer.status
    if 200 <= status < 300:
        return Sent()
    if status == 429:
        return Retry("HTTP 429: too many messages", _retry_after(answer.headers.get("retry-after")))
    return (Failed if status in WRONG_MESSAGE else Retry)(f"HTTP {status}")


class Poster:
    """Sends to one address, which may hold a password: it is in no message, log or representation.

    Args:
        address: where to send.
        hint: what to do if the receiver refuses.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
        path: what belongs behind the address's own path.
    """

    def __init__(self, address: str | Secret, hint: str, timeout: float = TIMEOUT_SECONDS, path: str = "") -> None:
        self._address, self._hint, self._path = as_secret(address), hint, path
        self._http = Http(timeout)

    def post(self, body: bytes, headers: Mapping[str, str] | None = None, ends: float | None = None) -> Result:
        """Makes one attempt with a JSON body, until ``ends`` (of :func:`time.monotonic`) at the latest."""
        address = _below(self._address.read(), self._path)
        ends = time.monotonic() + ATTEMPT_SECONDS if ends is None else ends
        headers = {"Content-Type": "application/json", **(headers or {})}
        answer = self._http.send("POST", address, ends, headers=headers, body=body)
        if isinstance(answer, Retry):
            return answer
        result = judge(answer)
        if isinstance(result, Sent) or answer.status in PASSING or answer.status >= 500:
            return result
        return type(result)(f"{result.reason}: {_redact(answer.text, address)[:100]!r}; {self._hint}")

    def close(self) -> None:
        """Lets go of the connection."""
        self._http.close()


def _below(address: str, path: str) -> str:
    parts = urlsplit(address)
    return parts._replace(path=parts.path.rstrip("/") + path).geturl() if path else address


def _redact(text: str, address: str) -> str:
    parts: Any = urlsplit(address)
    secrets = [address, parts.path if len(parts.path) > 1 else "", parts.query, parts.password or ""]
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text


def _retry_after(value: str | None) -> float:
    try:
        seconds = float(value or "")
    except ValueError:  # absent, or a date
        return 30.0
    return min(max(seconds, 1.0), LONGEST_RETRY_AFTER) if seconds == seconds else 30.0  # noqa: PLR0124 - NaN
