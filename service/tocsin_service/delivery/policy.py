"""How a receiver wants to be told: what an operator chooses for each."""

from __future__ import annotations

from dataclasses import dataclass, field

from tocsin_service.delivery.pace import Pace
from tocsin_service.delivery.quiet import QuietHours

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How a receiver wants to be told.

    Attributes:
        quiet: in these hours only what is critical is told; the rest afterwards.
        pace: beyond it several incidents are one message.
        remind_seconds: so long after the last message a critical incident that still fires and that nobody has
            acknowledged is told again; None: never.
        mirrors: it keeps a copy of the state and has its own idea of whom to tell and when: it hears of every change
            at once.
    """

    quiet: tuple[QuietHours, ...] = ()
    pace: Pace = field(default_factory=Pace)
    remind_seconds: float | None = None
    mirrors: bool = False

    def quiet_until(self, now: float) -> float | None:
        """Unix time in seconds at which the quiet that holds at ``now`` ends; None if it is not quiet."""
        return max((ends for hours in self.quiet if (ends := hours.until(now)) is not None), default=None)
