"""Delivery: tells receivers of incidents, from the outbox, at least once, with backoff.

Every receiver has a thread of its own, so that a broken one delays nobody. Whether there is something to say is decided
when it is said: a message that had to wait tells what is true now.

This module has the words; :mod:`~tocsin_service.delivery.decision` decides, :mod:`~tocsin_service.delivery.loop` acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from tocsin_detectors.alerts import Alert, Incident, derive_id
from tocsin_detectors.entries import RunConfig
from tocsin_service.acknowledgements import Acknowledgement

__all__ = ["Failed", "News", "Reason", "Receiver", "Result", "Retry", "Sent"]


class Reason(StrEnum):
    """Why a receiver is told of an incident."""

    OPENED = "opened"
    ESCALATED = "escalated"
    ACKNOWLEDGED = "acknowledged"
    REMINDED = "reminded"  # it is critical, still firing, and nobody has acknowledged it
    RESOLVED = "resolved"
    CHANGED = "changed"  # for receivers that mirror the state: anything is different


@dataclass(frozen=True, slots=True)
class News:
    """What there is to say of an incident.

    Attributes:
        reason: why it is said.
        incident: as it is now.
        alerts: its members in order of onset.
        config: of the run; its labels and link are part of a message.
        acknowledged: by whom the incident was acknowledged; None while nobody has.
        thread: how the receiver named its first message of this incident when it was sent (see :class:`Sent`); None if
            it was told nothing yet or gives no names.
        again: an earlier attempt may have arrived (a time-out, 5xx, a process that was killed): a receiver that can
            look should look before it says it twice.
        told_at: Unix time in seconds at which the receiver was last told of the incident; None if never.
    """

    reason: Reason
    incident: Incident
    alerts: tuple[Alert, ...] = ()
    config: RunConfig = field(default_factory=RunConfig)
    acknowledged: Acknowledgement | None = None
    thread: str | None = None
    again: bool = False
    told_at: float | None = None

    @property
    def id(self) -> str:
        """The same for every attempt to say this: one id per incident, reason and degree, and for each reminder."""
        reminds = (self.told_at,) if self.reason is Reason.REMINDED else ()
        of = self.incident
        return derive_id("notification", of.id, self.reason, of.severity, of.rule, *reminds)


@dataclass(frozen=True, slots=True)
class Sent:
    """The receiver has it. ``thread``: what to give back in later news of it, so that they refer to this message."""

    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now. ``after``: seconds for which the receiver asked not to be disturbed at all; None: our own backoff."""

    reason: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It will never take this message; ``reason`` says why, without secrets."""

    reason: str


Result: TypeAlias = Sent | Retry | Failed


class Receiver(Protocol):
    """Somebody to tell. One attempt at a time; a result for everything that can go wrong, never an exception.

    An attempt takes less than 30 seconds.
    """

    @property
    def name(self) -> str:
        """Name in the outbox, in routes and in the metrics."""
        ...

    def tell(self, news: News) -> Result:
        """Makes one attempt to tell of one incident."""
        ...

    def summarise(self, news: Sequence[News]) -> Result:
        """Makes one attempt to tell of many at once, in one message that people can read: there were too many."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...
