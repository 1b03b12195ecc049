"""The pace of messages: a token bucket, for what people can read."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bucket", "Pace"]

ROUNDING = 1e-5  # of a message: Unix times are not exact, and `next` has to tell a moment at which there is one


@dataclass(frozen=True, slots=True)
class Pace:
    """So many messages at once, and in the long run one each so many seconds.

    Attributes:
        burst: messages that may come at once after a pause, >= 1.
        seconds: time that gives back one of them, > 0.
    """

    burst: int = 6
    seconds: float = 30.0


class Bucket:
    """How many messages a pace allows now. Full at the beginning; the clock may be set back."""

    def __init__(self, pace: Pace, now: float) -> None:
        self._pace, self._tokens, self._at = pace, float(pace.burst), now

    def tokens(self, now: float) -> int:
        """How many messages may be sent at ``now`` (Unix seconds)."""
        gained = max(0.0, now - self._at) / self._pace.seconds
        self._tokens, self._at = min(self._pace.burst, self._tokens + gained), now
        return max(0, int(self._tokens + ROUNDING))

    def take(self) -> None:
        """One was sent."""
        self._tokens -= 1

    def next(self, now: float) -> float:
        """Unix time in seconds, >= now, from which on there is one."""
        if self.tokens(now):
            return now
        return now + (1 - self._tokens) * self._pace.seconds
