"""Vectors over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

from tocsin._courier import Outcome
from tocsin._policy import UNREACHABLE, judge_status
from tocsin._transport import Address, Transport, Unreachable

__all__ = ["HttpCourier"]

_GZIP_FROM = 2048


class HttpCourier:
    """A :class:`tocsin._courier.Courier` to the service's API.

    Args:
        address: the service.
        path: the run's path under that address.
        timeout: seconds that connecting, and every wait for bytes, may take.
    """

    def __init__(self, address: Address, path: str, timeout: float) -> None:
        self._path = path
        self._transport = Transport(address, timeout)

    def configure(self, config: bytes) -> Outcome:
        """PUT on the run."""
        return self._request("PUT", self._path, config)

    def deliver(self, vectors: Sequence[bytes]) -> Outcome:
        """POST on the run's steps."""
        return self._request("POST", f"{self._path}/steps", b"[" + b",".join(vectors) + b"]")

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def _request(self, method: str, path: str, body: bytes) -> Outcome:
        headers = {"Content-Type": "application/json", "User-Agent": "tocsin"}
        if len(body) >= _GZIP_FROM:
            body = gzip.compress(body, compresslevel=4)
            headers["Content-Encoding"] = "gzip"
        try:
            answer = self._transport.request(method, path, body, headers)
        except Unreachable as error:
            return Outcome(UNREACHABLE, str(error), answered=False)
        return Outcome(judge_status(answer.status, answer.headers), answer.told())
