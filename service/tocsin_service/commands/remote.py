"""A service somewhere, as the commands ask it. Standard library only."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tocsin._guard import Mistake
from tocsin._transport import Address, Answer, Transport, Unreachable
from tocsin_service.terminal import CannotError, printable

__all__ = ["DEFAULT_URL", "Remote", "path"]

DEFAULT_URL = "http://127.0.0.1:8765"
TIMEOUT_SECONDS = 15.0
_HINTS = {
    401: "give --token-file FILE, or set TOCSIN_TOKEN",
    403: "a token with the scope for this is needed",
}


def path(*parts: str) -> str:
    """A path under ``/v1`` of these parts, whatever they hold."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Remote:
    """Asks one service.

    Args:
        arguments: its ``url`` and ``token_file``; what is None comes from the environment.

    Raises:
        CannotError: they can't be used.
    """

    def __init__(self, arguments: Namespace) -> None:
        url = arguments.url or os.environ.get("TOCSIN_URL") or DEFAULT_URL
        try:
            self._address = Address.parse(url, _token(arguments.token_file))
        except (Mistake, ValueError) as error:
            raise CannotError(f"{error}; give --url http://HOST:PORT") from None
        self._transport = Transport(self._address, TIMEOUT_SECONDS)

    def ask(self, method: str, where: str, body: Any = None, query: dict[str, Any] | None = None) -> Any:
        """The JSON that it answers.

        Args:
            method: of HTTP.
            where: see :func:`path`.
            body: what to send as JSON; None: nothing.
            query: parameters; those that are None are left out.

        Raises:
            CannotError: it is not there, refuses, or answers something else.
        """
        given = urlencode({name: value for name, value in (query or {}).items() if value is not None})
        data = None if body is None else json.dumps(body).encode()
        headers = {"User-Agent": "tocsin", **({} if data is None else {"Content-Type": "application/json"})}
        try:
            answer = self._transport.request(method, f"{where}?{given}" if given else where, data, headers)
        except Unreachable as error:
            raise CannotError(f"{self._address} doesn't answer: {printable(error)}") from None
        finally:
            self._transport.close()
        if not 200 <= answer.status < 300:
            raise CannotError(f"{self._address} refuses: {_refusal(answer)}")
        try:
            return json.loads(answer.body)
        except ValueError:
            raise CannotError(f"{self._address} answers no JSON; is it a Tocsin?") from None


def _token(file: str | None) -> str | None:
    if file is None:
        if given := os.environ.get("TOCSIN_TOKEN"):
            return given
        file = os.environ.get("TOCSIN_TOKEN_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotError(f"the token's file {file} can't be read: {type(error).__name__}") from None


def _refusal(answer: Answer) -> str:
    """What the service said, as text; each problem on a line of its own."""
    try:
        told = json.loads(answer.body)
        lines = [told["error"], *(f"{one['field']}: {one['problem']}" for one in told.get("problems") or ())]
    except (ValueError, KeyError, TypeError, AttributeError):
        lines = [answer.told()]
    if answer.status in _HINTS:
        lines.append(_HINTS[answer.status])
    return "\n  ".join(printable(line) for line in lines)
