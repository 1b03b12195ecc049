"""One kept-alive HTTP connection to the server, directly or through the environment's proxy."""

from __future__ import annotations

import base64
import encodings.idna  # noqa: F401 else the sender's thread imports it, and a fork meanwhile leaves its lock taken
import ipaddress
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from tocsin._guard import Mistake

__all__ = ["Address", "Answer", "Transport", "Unreachable", "told_error"]

Bytes: TypeAlias = bytes | memoryview
_LONGEST_ANSWER = 16 * 1024 * 1024


class Unreachable(Exception):  # noqa: N818 it is a state of the world rather than an error
    """No answer came: no connection, no name, no certificate, a broken or late reply."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer.

    Attributes:
        status: HTTP status.
        headers: names in lower case.
        body: the bytes as sent.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def told(self) -> str:
        """What the server said, on one line and short."""
        text = " ".join(self.body[:2000].decode("utf-8", "replace").split())[:500]
        where = self.headers.get("location", "")
        return " ".join(part for part in (f"HTTP {self.status}", where, text) if part)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is.

    Attributes:
        scheme: "http" or "https".
        host: name or address, without brackets.
        port: 1-65535.
        prefix: path under which the API lies, without a slash at its end.
        authorization: value of the Authorization header, "" for none. Never shown.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    authorization: str = ""

    @classmethod
    def parse(cls, url: str, token: str | None = None) -> Address:
        """The address that ``url`` names.

        Raises:
            Mistake: it isn't an http(s) URL with a host, or the token can't stand in a header.
        """
        parts = urlsplit(url.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            shapes = "http://host:8765, https://host or redis://host"
            raise Mistake(f"the server's address must look like {shapes} (TOCSIN_URL or url=)")
        token = (token or "").strip()
        if not (token.isascii() and token.isprintable()):
            raise Mistake("the token must be printable ASCII (TOCSIN_TOKEN or token=)")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        authorization = f"Bearer {token}" if token else _basic(parts)
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), authorization)

    @property
    def netloc(self) -> str:
        """Host and port as they stand in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        """The URL without credentials."""
        return f"{self.scheme}://{self.netloc}{self.prefix}"

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Transport:
    """Sends requests one after the other; not for use by several threads.

    Args:
        address: the server.
        timeout: seconds that connecting, and every wait for bytes, may take.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._connection: HTTPConnection | None = None
        self._extra: dict[str, str] = {}
        self._base = address.prefix

    def request(self, method: str, path: str, body: Bytes | None, headers: Mapping[str, str]) -> Answer:
        """Sends one request and reads its answer.

        Raises:
            Unreachable: there was no answer.
        """
        reused = self._connection is not None and self._connection.sock is not None
        try:
            return self._exchange(method, path, body, headers)
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            # An idle connection may have been closed by the other side: that says nothing about the server.
            if not reused or isinstance(error, TimeoutError):
                raise Unreachable(told_error(error)) from error
        return self.request(method, path, body, headers)

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _exchange(self, method: str, path: str, body: Bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._open()
        try:
            connection.request(method, self._base + path, body, {**self._extra, **headers})
        except (BrokenPipeError, ConnectionResetError):
            # A server may refuse a large body before it has read it all: then its answer is already here.
            if connection.sock is None:
                raise
        response = connection.getresponse()
        content = response.read(_LONGEST_ANSWER)
        if not response.isclosed():
            self.close()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def _open(self) -> HTTPConnection:
        address = self._address
        secure = address.scheme == "https"
        self._base = address.prefix
        self._extra = {"Authorization": address.authorization} if address.authorization else {}
        proxy = _proxy(address)
        if proxy is None or not proxy.hostname:
            kind = HTTPSConnection if secure else HTTPConnection
            return kind(address.host, address.port, timeout=self._timeout)
        credentials = {"Proxy-Authorization": _basic(proxy)} if _basic(proxy) else {}
        kind = HTTPSConnection if secure or proxy.scheme == "https" else HTTPConnection
        connection = kind(proxy.hostname, proxy.port or 80, timeout=self._timeout)
        if secure:
            connection.set_tunnel(address.host, address.port, credentials)
        else:
            self._base = str(address)
            self._extra |= credentials
        return connection


def _proxy(address: Address) -> SplitResult | None:
    """The proxy that the environment (http_proxy, https_proxy, no_proxy) names for this server."""
    proxy = urllib.request.getproxies().get(address.scheme)
    # A proxy elsewhere can't reach this machine's loopback, whatever no_proxy says.
    if not proxy or address.loopback or urllib.request.proxy_bypass(address.netloc):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _basic(parts: SplitResult) -> str:
    """The header for credentials that stand in a URL, "" if there are none."""
    if not parts.username:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def told_error(error: Exception) -> str:
    """An error of the network in words."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
