"""What goes in and out of the outbox: a wish to tell somebody, the claim of whoever does it, and how that ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.acknowledgements import Acknowledgement

__all__ = ["Claim", "Notification", "Settlement", "Told"]


@dataclass(frozen=True, slots=True)
class Notification:
    """A wish to tell ``receiver`` of an incident. Counts only if the event of id ``event`` is new in its commit."""

    receiver: str
    incident: str
    event: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a receiver was last told of an incident, and when (Unix seconds).

    Attributes:
        thread: the receiver's own name of the first message, to which later ones refer; None if it gives none.
        acknowledged: whether it knows that somebody looks after the incident.
    """

    rule: str
    severity: Severity
    state: State
    time: float
    thread: str | None = None
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A notification that a sender has taken.

    Attributes:
        news: number of the latest news it covers; later news keep the notification pending.
        tries: attempts that have failed since the last success.
        told: what the receiver knows already, None if nothing.
        incident: as it is now. None if a re-fold has removed it.
        acknowledged: who looks after the incident, None while nobody does.
        error: of the last attempt, None if it didn't fail.
        interrupted: somebody took it before and never said how that ended: the receiver may have been told.
    """

    receiver: str
    incident_id: str
    news: int
    tries: int
    told: Told | None
    incident: Incident | None
    alerts: tuple[Alert, ...] = ()
    config: RunConfig = field(default_factory=RunConfig)
    acknowledged: Acknowledgement | None = None
    error: str | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a claim ended.

    News that came since the claim make the notification due at once, whatever ``retry_at`` says, and so do news that
    come while it waits for ``retry_at``. Only after an error both have to wait: it is backing off.

    Attributes:
        told: what the receiver knows now; None if nothing was sent.
        retry_at: Unix time in seconds at which the notification is due again, whether it was told (a reminder), failed
            or is only put off (a silence, quiet hours); None: done with this news.
        error: why it failed, without secrets; then, and only then, it counts as a failed try. What was told, or is done
            with, without an error begins to count anew; what is put off keeps its tries and its error.
    """

    claim: Claim
    told: Told | None = None
    retry_at: float | None = None
    error: str | None = None
