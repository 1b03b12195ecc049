"""The outermost layer of the HTTP service: who may come in, how often, and headers that every answer carries.

Plain ASGI: a middleware with request and response objects would halve the throughput.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin_service.access import tokens
from tocsin_service.access.limits import Rates
from tocsin_service.access.tokens import Token, Tokens
from tocsin_service.addresses import is_loopback
from tocsin_service.api import scopes
from tocsin_service.api.errors import ApiError, error_response
from tocsin_service.settings import Settings

__all__ = ["ACTOR", "Guard"]

ACTOR = "tocsin.actor"  # in the ASGI scope: name of the token, or how somebody came in without one
LINK, LOCAL = "link", "local"
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
HTTPS_HEADERS = ((b"strict-transport-security", b"max-age=31536000"),)


class Guard:
    """Refuses requests that must not get in.

    Args:
        app: what it guards.
        settings: tokens, addresses and rates.
        limited: counts a request that was refused because of a rate, by the rate: "token" or "run".
    """

    def __init__(self, app: ASGIApp, settings: Settings, limited: Callable[[str], None]) -> None:
        self._app, self._host, self._limited = app, settings.host.lower(), limited
        self._tokens = Tokens(settings.tokens, settings.secret_files.get("token"))
        self._public = _netloc(settings.public_url or "")
        self._token_rates = Rates(settings.max_token_rate)
        self._run_rates = Rates(settings.max_run_rate)
        self._headers = [*SECURITY_HEADERS, *(HTTPS_HEADERS if settings.tls_cert_file is not None else ())]
        self._names = {name for name, _ in self._headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                message["headers"] = own + self._missing(own)
            await send(message)

        try:
            self._check(scope)
        except ApiError as error:
            await error_response(error)(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _missing(self, own: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers that an answer lacks. A page may need other rules than JSON does: what it says itself stays."""
        said = {name for name, _ in own if name in self._names}
        return [header for header in self._headers if header[0] not in said] if said else self._headers

    def _check(self, scope: Scope) -> None:
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        _check_path(scope.get("raw_path") or b"")
        linked, token = scopes.is_linked(path), None
        if not self._tokens:
            self._check_host(headers.get("host", ""), linked=linked)
        elif (needed := scopes.needed(method, path)) is not None:
            token = self._authorised(headers.get("authorization", ""), needed)
        self._check_origin(headers)
        scope[ACTOR] = token.name if token is not None else LINK if linked else LOCAL
        if path not in scopes.OPEN_PATHS:
            self._check_rates(scope[ACTOR] if token is None else token.digest, scopes.written_run(method, path))

    def _authorised(self, authorization: str, needed: tokens.Scope) -> Token:
        scheme, _, sent = authorization.partition(" ")
        token = self._tokens.find(sent.strip().encode())
        if scheme.lower() != "bearer" or token is None:
            raise ApiError(401, "a token is needed: send the header 'Authorization: Bearer TOKEN'", "token")
        if needed not in token.scopes:
            raise ApiError(403, f"this token lacks the scope {needed}; use one that has it", "scope")
        return token

    def _check_host(self, host: str, *, linked: bool) -> None:
        # A web page can make a browser call this machine under a name of its own; without a token the name tells.
        if linked and self._public and host.lower() == self._public:
            return
        name = _hostname(f"//{host}")
        if name is not None and name != self._host and not is_loopback(name):
            raise ApiError(421, "this service has no token and answers to localhost only; set a token", "host")

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None:
            return
        # A proxy in front may call this service by another name than people do.
        if (netloc := _netloc(origin)) is None or netloc not in {headers.get("host", "").lower(), self._public}:
            raise ApiError(403, "requests from other web sites are refused", "origin")

    def _check_rates(self, who: str | bytes, run: str | None) -> None:
        if wait := self._token_rates.take(who):
            self._limited("token")
            raise _too_often("with this token (max_token_rate)", wait)
        if run is not None and (wait := self._run_rates.take(run)):
            self._limited("run")
            raise _too_often("for this run (max_run_rate); send many vectors in one", wait)


def _too_often(what: str, wait: float) -> ApiError:
    return ApiError(429, f"too many requests {what}; come back later", "rate", retry_seconds=math.ceil(wait))


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


def _hostname(address: str) -> str | None:
    """The host of an address; "" if it is malformed, None if it has none."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    """Host and port of an origin; None if it is none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
