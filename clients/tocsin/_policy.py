"""What follows from a server's answer: a pure function, without clock, chance or socket."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

__all__ = ["Action", "Decision", "decide"]

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


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next.

    Attributes:
        action: SPLIT means send the vectors in smaller parts; a single one is to be dropped.
        reason: the kind of failure, as it is counted; "" for DELIVERED.
        delay: seconds to wait before the next request; only for RETRY.
    """

    action: Action
    reason: str = ""
    delay: float = 0.0


def decide(status: int | None, headers: Mapping[str, str], attempt: int, jitter: float) -> Decision:
    """The decision for one answer.

    Args:
        status: HTTP status, None if there was no answer.
        headers: the answer's headers, names in lower case.
        attempt: failed attempts in a row before this one, >= 0.
        jitter: a random number in [0, 1): spreads the retries of many trainers.
    """
    if status is None:
        return Decision(Action.RETRY, "unreachable", _backoff(attempt, jitter))
    if 200 <= status < 300:
        return Decision(Action.DELIVERED)
    if status in {408, 425, 429} or status >= 500:
        wished = _retry_after(headers)
        delay = _backoff(attempt, jitter) if wished is None else wished + jitter
        return Decision(Action.RETRY, "throttled" if status == 429 else "server_error", delay)
    action, reason = _FINAL.get(status, (Action.DROP, f"status_{status}"))
    return Decision(action, reason)


def _backoff(attempt: int, jitter: float) -> float:
    """Doubles with every attempt up to a ceiling; at least half of it is waited."""
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
