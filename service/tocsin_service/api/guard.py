"""The outermost layer of the HTTP service: who may come in, and headers that every answer carries.

Plain ASGI: a middleware with request and response objects would halve the throughput.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin_service.api.errors import ApiError, error_response
from tocsin_service.settings import is_loopback

__all__ = ["Guard"]

OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # for probes, which have no token
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Refuses requests that must not get in.

    Args:
        app: what it guards.
        tokens: accepted bearer tokens; none means that nobody is asked, and then only this machine is listened to.
        host: the address that the service listens on.
    """

    def __init__(self, app: ASGIApp, tokens: Sequence[str], host: str) -> None:
        self._app, self._host = app, host
        # Digests have one length: comparing them takes the same time whatever was sent.
        self._tokens = [hashlib.sha256(token.encode()).digest() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        try:
            self._check(scope)
        except ApiError as error:
            await error_response(error)(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._check_path(scope.get("raw_path") or b"")
        if self._tokens:
            if scope["path"] not in OPEN_PATHS:
                self._check_token(headers.get("authorization", ""))
        else:
            self._check_host(headers.get("host", ""))
        self._check_origin(headers)

    @staticmethod
    def _check_path(raw: bytes) -> None:
        # The server decodes the path before it is routed: an encoded slash would change which route is meant.
        if b"%" not in raw:
            return
        path = raw.split(b"?")[0]
        if b"%2f" in path.lower() or b"%5c" in path.lower():
            raise ApiError(422, "a run id can't have a slash or backslash, encoded or not; choose another id", "path")
        try:
            unquote_to_bytes(path).decode()
        except UnicodeDecodeError:
            raise ApiError(422, "the path is not UTF-8 after percent-decoding", "path") from None

    def _check_token(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        sent = hashlib.sha256(token.strip().encode()).digest()
        known = [hmac.compare_digest(sent, one) for one in self._tokens]  # all of them: no early end
        if scheme.lower() != "bearer" or not any(known):
            raise ApiError(401, "a token is needed: send the header 'Authorization: Bearer TOKEN'", "token")

    def _check_host(self, host: str) -> None:
        # A web page can make a browser call this machine under a name of its own; without a token the name tells.
        name = _hostname(f"//{host}")
        if name is not None and name != self._host.lower() and not is_loopback(name):
            raise ApiError(421, "this service has no token and answers to localhost only; set a token", "host")

    @staticmethod
    def _check_origin(headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers.get("host", "").lower():
            raise ApiError(403, "requests from other web sites are refused", "origin")


def _hostname(address: str) -> str | None:
    """The host of an address; "" if it is malformed, None if it has none."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
