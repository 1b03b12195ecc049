"""Whether, why and when a receiver is told of an incident: a pure function of what is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tocsin_detectors.alerts import Incident, Severity, State
from tocsin_service.delivery import Reason
from tocsin_service.delivery.policy import Policy
from tocsin_service.store import Claim, Told

__all__ = ["Decision", "Nothing", "Tell", "Wait", "Why", "backoff", "decide", "reminder_at"]

LONGEST_BACKOFF = 300.0  # seconds
# A wait is cut into pieces, as what it waits for may change meanwhile: a silence is ended early, another process is
# started with other quiet hours. Seconds.
LONGEST_SILENCE = 60.0
LONGEST_QUIET = 600.0


class Why(StrEnum):
    """Why a receiver is not told now."""

    GONE = "gone"  # a fold by other rules knows no such incident
    UP_TO_DATE = "up to date"
    ROUTED_ELSEWHERE = "routed elsewhere"
    SILENCED = "silenced"
    QUIET_HOURS = "quiet hours"
    REMINDER = "reminder"


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell it now."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Wait:
    """Decide again at ``until`` (Unix seconds, later than now), or when there are other news."""

    until: float
    why: Why


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing is to be told until there are other news."""

    why: Why


Decision: TypeAlias = Tell | Wait | Nothing


def decide(
    claim: Claim, policy: Policy, now: float, *, routed: bool = True, silent_until: float | None = None
) -> Decision:
    """What to do about a claim.

    Who was told of an incident hears how it goes on, whatever routes say then: an incident that moves to the pager when
    it gets worse must not stay open for ever where it began.

    Args:
        claim: the incident, and what the receiver knows of it.
        policy: how the receiver wants to be told.
        now: Unix time in seconds.
        routed: whether the incident is for this receiver.
        silent_until: Unix time until which silences cover the incident; None if they don't.
    """
    incident, told = claim.incident, claim.told
    if incident is None:
        return Nothing(Why.GONE)
    if told is None and not routed:
        return Nothing(Why.ROUTED_ELSEWHERE)
    reason = _reason(claim, incident, policy, now)
    if reason is None:
        due = None if told is None else reminder_at(told, claim, policy)
        return Nothing(Why.UP_TO_DATE) if due is None else Wait(due, Why.REMINDER)
    if silent_until is not None:
        if told is None and incident.state is State.RESOLVED:
            return Nothing(Why.SILENCED)  # it came and went while nobody wanted to hear of it
        return Wait(min(silent_until, now + LONGEST_SILENCE), Why.SILENCED)
    quiet = None if incident.severity is Severity.CRITICAL else policy.quiet_until(now)
    if quiet is not None:
        return Wait(min(quiet, now + LONGEST_QUIET), Why.QUIET_HOURS)
    return Tell(reason)


def reminder_at(told: Told, claim: Claim, policy: Policy) -> float | None:
    """Unix time in seconds at which a receiver that knows ``told`` is reminded if nothing happens; None if never."""
    incident = claim.incident
    if incident is None or policy.mirrors or policy.remind_seconds is None or claim.acknowledged is not None:
        return None
    urgent = incident.severity is Severity.CRITICAL and incident.state is told.state is State.FIRING
    return told.time + policy.remind_seconds if urgent else None


def _reason(claim: Claim, incident: Incident, policy: Policy, now: float) -> Reason | None:
    """Why the receiver should hear of the incident; None if it knows what it has to.

    One message when it opens, another when it gets worse or somebody looks after it, and the all-clear for what had
    been critical. An incident that was over before anybody could be told is still told if it was critical: once, as
    resolved.
    """
    if incident.severity is Severity.INFO:
        return None
    if policy.mirrors:
        return Reason.CHANGED
    told, critical = claim.told, incident.severity is Severity.CRITICAL
    if incident.state is State.RESOLVED:
        silent = told is not None and told.state is State.RESOLVED
        return Reason.RESOLVED if critical and not silent else None
    if told is None:
        return Reason.OPENED
    # A rule changes without the severity when a critical alert turns out to be a collapse.
    if incident.severity.rank > told.severity.rank or (critical and incident.rule != told.rule):
        return Reason.ESCALATED
    if claim.acknowledged is not None:
        return None if told.acknowledged or told.state is State.RESOLVED else Reason.ACKNOWLEDGED
    due = reminder_at(told, claim, policy)
    return Reason.REMINDED if due is not None and due <= now else None


def backoff(tries: int) -> float:
    """Seconds to wait after ``tries`` failed attempts in a row: 1, 2, 4 ... up to five minutes."""
    return min(2.0 ** min(max(0, tries - 1), 10), LONGEST_BACKOFF)  # the inner bound: no float holds 2 to the 1024th
