"""Quiet hours: times of the day in which only what is critical is told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

__all__ = ["DAYS", "QuietHours"]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")  # in the order of :meth:`datetime.date.weekday`


@dataclass(frozen=True, slots=True)
class QuietHours:
    """One span of the day, on the clocks of one place.

    On the days on which those clocks change, the span is what they show: one hour shorter or longer if the change falls
    into it. A time that the clocks skip is the moment an hour later; of a time that they show twice the first counts.

    Attributes:
        start: time of day at which it begins.
        end: time of day at which it ends; on the next day, unless it is later than ``start``.
        timezone: the place.
        days: on which it begins, 0 is Monday.
    """

    start: time
    end: time
    timezone: ZoneInfo
    days: frozenset[int] = frozenset(range(7))

    def until(self, now: float) -> float | None:
        """Unix time in seconds at which the quiet that holds at ``now`` ends, > now; None if it is not quiet."""
        today = datetime.fromtimestamp(now, self.timezone).date()
        for day in (today, today - timedelta(days=1)):
            if day.weekday() in self.days:
                last = day if self.end > self.start else day + timedelta(days=1)
                begins = datetime.combine(day, self.start, self.timezone).timestamp()
                ends = datetime.combine(last, self.end, self.timezone).timestamp()
                if begins <= now < ends:
                    return ends
        return None
