"""Slack's Web API: calls of a method with an app's token, and what its refusals mean.

Methods and errors: https://docs.slack.dev/reference/methods.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tocsin_service.delivery import Failed, Retry, Sent
from tocsin_service.delivery.posting import PASSING, TIMEOUT_SECONDS, Http, judge
from tocsin_service.settings.secret import Secret

__all__ = ["API", "Called", "Refused", "SlackApi", "check_token"]

API = "https://slack.com/api"

_PASSING = frozenset(
    {
        "accesslimited",
        "fatal_error",
        "internal_error",
        "rate_limited",
        "ratelimited",
        "request_timeout",
        "service_unavailable",
        "team_added_to_org",
    }
)
_TOKEN = "the token isn't valid: put the bot token (xoxb-...) of an app that is installed into the token's file"  # noqa: S105
_HINTS = {
    **dict.fromkeys(("invalid_auth", "not_authed", "token_expired", "token_revoked", "account_inactive"), _TOKEN),
    "channel_not_found": "write the channel's id (C...), and invite the app into the channel",
    "not_in_channel": "invite the app into the channel",
    "is_archived": "the channel is archived: choose another",
    "missing_scope": "give the app the scopes chat:write and channels:history (groups:history if it is private)",
    "not_allowed_token_type": "use the app's bot token (xoxb-...)",
}
_HINT = "see https://docs.slack.dev/reference/methods"


def check_token(token: str) -> None:
    """Raises :class:`ValueError` if ``token`` can't stand in a header."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("a token of Slack has printable ASCII characters and no spaces")


@dataclass(frozen=True, slots=True)
class Refused:
    """Slack has understood and won't do it.

    Attributes:
        error: its name for the reason.
        final: it never will; else until somebody mends token, channel or rights.
    """

    error: str
    final: bool

    def result(self) -> Failed | Retry:
        """This as the end of an attempt."""
        return (Failed if self.final else Retry)(f"Slack refuses: {self.error}; {_HINTS.get(self.error, _HINT)}")


Called: TypeAlias = dict[str, Any] | Refused | Retry


class SlackApi:
    """Calls methods.

    Args:
        token: of the app; in no message, log or representation.
        base: where the methods are.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
    """

    def __init__(self, token: Secret, base: str = API, timeout: float = TIMEOUT_SECONDS) -> None:
        self._token, self._base, self._http = token, base.rstrip("/"), Http(timeout)

    def post(self, method: str, arguments: Mapping[str, Any], ends: float) -> Called:
        """Calls a method that takes JSON; given up past ``ends`` (of :func:`time.monotonic`)."""
        return self._call(method, ends, body=json.dumps(arguments, allow_nan=False).encode())

    def get(self, method: str, arguments: Mapping[str, str], ends: float) -> Called:
        """Calls a method that only reads."""
        return self._call(method, ends, params=arguments)

    def close(self) -> None:
        """Lets go of the connections."""
        self._http.close()

    def _call(
        self, method: str, ends: float, *, params: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Called:
        headers = {"Authorization": f"Bearer {self._token.read()}"}
        if body is not None:
            headers["Content-Type"] = "application/json; charset=utf-8"
        verb = "GET" if body is None else "POST"
        answer = self._http.send(verb, f"{self._base}/{method}", ends, headers=headers, params=params, body=body)
        if isinstance(answer, Retry):
            return answer
        result = judge(answer)
        if isinstance(result, Retry) and (answer.status in PASSING or answer.status >= 500):
            return result
        if not isinstance(result, Sent):
            return Refused(result.reason, isinstance(result, Failed))
        try:
            told = json.loads(answer.body)
            ok, error = told["ok"], told.get("error")
        except (ValueError, TypeError, KeyError, AttributeError):
            return Retry("the answer is not Slack's")
        if ok is True:
            return dict(told)
        name = error if isinstance(error, str) and error.isidentifier() and len(error) < 100 else "unknown_error"
        return Retry(f"Slack: {name}", _pause(name)) if name in _PASSING else Refused(name, name not in _HINTS)


def _pause(error: str) -> float | None:
    return 30.0 if error in {"ratelimited", "rate_limited"} else None
