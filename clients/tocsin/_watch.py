"""What a trainer wants done when an incident fires, and what follows from what the server tells: no clock, no socket.

Each incident acts once, when it becomes severe enough. What makes no difference any more does nothing: an incident that
is over when it is first seen, and one from before this process, whose trainer has been started again on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from tocsin._guard import Mistake

__all__ = ["SEVERITIES", "Steps", "Told", "Watch", "Wishes", "rank_of"]

Told: TypeAlias = Mapping[str, Any]
"""An incident or an alert as the server tells it."""

SEVERITIES = ("info", "warning", "critical")
_NEVER = len(SEVERITIES)
_UNSEEN = -1
_MOST_KNOWN = 10_000


def rank_of(severity: str | None) -> int:
    """How urgent a severity is, from 0; None is beyond all of them.

    Raises:
        Mistake: there is no such severity.
    """
    if severity is None:
        return _NEVER
    try:
        return SEVERITIES.index(severity)
    except ValueError:
        raise Mistake(f"{severity!r} is no severity; there are {', '.join(SEVERITIES)}") from None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the trainer asked for.

    Attributes:
        stop_on: severity of an incident from which the training is to stop; None for never.
        checkpoint_on: severity of an incident from which a checkpoint is to be saved; None for never.
        on_alert: called once with every alert that fires, and again when it has become more severe.
        watching: whether the server is to be asked at all.
    """

    stop_on: str | None = None
    checkpoint_on: str | None = None
    on_alert: Callable[[Told], object] | None = None
    watching: bool = False

    def __post_init__(self) -> None:
        rank_of(self.stop_on)
        rank_of(self.checkpoint_on)

    def updated(
        self, stop_on: str | None, checkpoint_on: str | None, on_alert: Callable[[Told], object] | None
    ) -> Self:
        """These wishes with those that are given; whoever wishes watches.

        Raises:
            Mistake: there is no such severity.
        """
        return type(self)(
            self.stop_on if stop_on is None else stop_on,
            self.checkpoint_on if checkpoint_on is None else checkpoint_on,
            self.on_alert if on_alert is None else on_alert,
            watching=True,
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that this process has logged; None where it hasn't said them as plain integers."""

    first: int | None = None
    last: int | None = None

    def including(self, step: int) -> Steps:
        """These steps and one more."""
        first = step if self.first is None else min(self.first, step)
        last = step if self.last is None else max(self.last, step)
        return Steps(first, last)

    def may_have_caused(self, step: int) -> bool:
        """Whether something that the server found at ``step`` can be about this process."""
        return (self.first is None or step >= self.first) and (self.last is None or step <= self.last)


class Watch:
    """What was seen so far, and what it asks for.

    Attributes:
        stop: the incident because of which the training is to stop; None while there is none. It stays.
        worst: rank of the most severe incident that fires, as last seen; -1 if none does.
    """

    def __init__(self) -> None:
        self.stop: Told | None = None
        self.worst = _UNSEEN
        self._checkpoints: list[Told] = []
        self._incidents: dict[str, int] = {}  # by id: the rank up to which it has acted
        self._alerts: dict[str, int] = {}

    def forgive(self, incidents: Sequence[Told], alerts: Sequence[Told]) -> None:
        """Takes what fires as known: it was there before this process had sent anything."""
        for known, found in ((self._incidents, incidents), (self._alerts, alerts)):
            known.update({one["id"]: rank_of(one["severity"]) for one in found})

    def see(self, incidents: Sequence[Told], steps: Steps, wishes: Wishes) -> list[Told]:
        """Takes what fires now.

        Args:
            incidents: those that the server calls firing, each with id, severity and opened_step.
            steps: what this process has logged.
            wishes: what is to follow.

        Returns:
            The incidents because of which something is to be done now.
        """
        self.worst = max((rank_of(one["severity"]) for one in incidents), default=_UNSEEN)
        acting = []
        for incident, before, now in _risen(self._incidents, incidents, steps, "opened_step"):
            stops = before < rank_of(wishes.stop_on) <= now
            saves = before < rank_of(wishes.checkpoint_on) <= now
            if stops:
                self.stop = self.stop or incident
            if saves:
                self._checkpoints.append(incident)
            if stops or saves:
                acting.append(incident)
        return acting

    def news(self, alerts: Sequence[Told], steps: Steps) -> list[Told]:
        """Those alerts that are new or have become more severe, of those that the server calls firing."""
        return [alert for alert, _, _ in _risen(self._alerts, alerts, steps, "fired_step")]

    def take_checkpoint(self) -> Told | None:
        """The incident that asks for a checkpoint; None if none does, or each has got its one."""
        taken, self._checkpoints = self._checkpoints, []
        return taken[-1] if taken else None


def _risen(known: dict[str, int], found: Sequence[Told], steps: Steps, step_field: str) -> list[tuple[Told, int, int]]:
    """What has become more severe than ``known`` says, the oldest first, with its rank before and now."""
    risen = []
    for one in sorted(found, key=lambda one: int(one[step_field])):
        now = rank_of(one["severity"])
        before = known.get(one["id"])
        if before is None:
            before = _UNSEEN if steps.may_have_caused(one[step_field]) else now
        if now > before:
            risen.append((one, before, now))
        known[one["id"]] = max(before, now)
    while len(known) > _MOST_KNOWN:
        del known[next(iter(known))]
    return risen
