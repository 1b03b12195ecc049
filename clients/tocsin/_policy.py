"""What follows from a server's answer: a pure function, without clock, chance or socket."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

__all__ = ["LONGEST_DELAY", "UNREACHABLE", "Action", "Verdict", "delay", "judge_redis", "judge_status"]

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
# A Retry-After beyond this is a mistake of some proxy rather than a wish.
LONGEST_RETRY_AFTER = 3600.0


class Action(enum.Enum):
    """What to do with the body that was sent."""

    DELIVERED = "delivered"
    RETRY = "retry"
    SPLIT = "split"
    DROP = "drop"


# A repetition would get the same answer.
_FINAL = {
    400: (Action.SPLIT, "refused"),
    422: (Action.SPLIT, "refused"),
    413: (Action.SPLIT, "too_large"),
    401: (Action.DROP, "unauthorised"),
    403: (Action.DROP, "unauthorised"),
    407: (Action.DROP, "unauthorised"),
    404: (Action.DROP, "not_found"),
    405: (Action.DROP, "not_found"),
    410: (Action.DROP, "not_found"),
}


# The word at the beginning of a Redis error; every other one may pass: out of memory, loading, a failover, a full disk.
_REDIS_FINAL = {
    "NOAUTH": (Action.DROP, "unauthorised"),
    "WRONGPASS": (Action.DROP, "unauthorised"),
    "NOPERM": (Action.DROP, "unauthorised"),
    "WRONGTYPE": (Action.DROP, "not_found"),
    "MOVED": (Action.DROP, "not_found"),
    "CROSSSLOT": (Action.DROP, "not_found"),
}
# Errors that share the word ERR are known by their text alone.
_REDIS_TEXTS = {
    "ERR unknown command": (Action.DROP, "not_found"),
    "ERR DB index": (Action.DROP, "not_found"),
    "ERR invalid DB index": (Action.DROP, "not_found"),
    "ERR SELECT is not allowed": (Action.DROP, "not_found"),
    "ERR AUTH": (Action.DROP, "unauthorised"),
    "ERR Client sent AUTH": (Action.DROP, "unauthorised"),
    "ERR invalid password": (Action.DROP, "unauthorised"),
    "ERR Protocol error": (Action.SPLIT, "too_large"),
    "ERR string exceeds": (Action.SPLIT, "too_large"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer means for what was sent.

    Attributes:
        action: SPLIT means send the vectors in smaller parts; a single one is to be dropped. DROP means that nothing
            would be taken by this server from this client: wrong address or credentials.
        reason: the kind of failure, as it is counted; "" for DELIVERED.
        wait: seconds that the server asks to wait before the next request; None if it doesn't say. Only for RETRY.
    """

    action: Action
    reason: str = ""
    wait: float | None = None


UNREACHABLE = Verdict(Action.RETRY, "unreachable")
"""There was no answer."""


def judge_status(status: int, headers: Mapping[str, str]) -> Verdict:
    """The verdict on an HTTP answer.

    Args:
        status: HTTP status.
        headers: the answer's headers, names in lower case.
    """
    if 200 <= status < 300:
        return Verdict(Action.DELIVERED)
    if status in {408, 425, 429} or status >= 500:
        return Verdict(Action.RETRY, "throttled" if status == 429 else "server_error", _retry_after(headers))
    action, reason = _FINAL.get(status, (Action.DROP, f"status_{status}"))
    return Verdict(action, reason)


def judge_redis(error: str) -> Verdict:
    """The verdict on a Redis error.

    Args:
        error: the error's text without the "-" before it, such as "OOM command not allowed".
    """
    for text, (action, reason) in _REDIS_TEXTS.items():
        if error.lower().startswith(text.lower()):
            return Verdict(action, reason)
    action, reason = _REDIS_FINAL.get(error.partition(" ")[0], (Action.RETRY, "server_error"))
    return Verdict(action, reason)


def delay(verdict: Verdict, attempt: int, jitter: float) -> float:
    """Seconds to wait before the next request.

    Args:
        verdict: on the last one, a RETRY.
        attempt: failed attempts in a row before this one, >= 0.
        jitter: a random number in [0, 1): spreads the retries of many trainers.
    """
    if verdict.wait is not None:
        return verdict.wait + jitter
    # Doubles with every attempt up to a ceiling; at least half of it is waited.
    ceiling = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt, 16))
    return ceiling * (0.5 + 0.5 * jitter)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of the Retry-After header. A date counts from the answer's own Date, so clocks needn't agree."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(LONGEST_RETRY_AFTER, float(text))
    try:
        wait = (parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(LONGEST_RETRY_AFTER, max(0.0, wait))
