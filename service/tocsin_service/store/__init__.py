"""The store's contract: the log, the engine states, the alerts and the outbox.

The log is the truth; everything else can be made from it again. An implementation may live in this process or be
shared by several, so the contract has no locks: order comes from the log's positions, and a commit is guarded by the
position it starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tocsin_detectors.alerts import Alert, Event, Incident, Severity, State
from tocsin_detectors.entries import Entry, RunConfig
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.audit import Act
from tocsin_service.silences import Silence
from tocsin_service.store.notices import Claim, Notification, Settlement, Told

__all__ = [
    "Appended",
    "Claim",
    "Commit",
    "Notification",
    "Outcome",
    "Progress",
    "Record",
    "Retention",
    "RunSummary",
    "Settlement",
    "Snapshot",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Stored",
    "Told",
    "TooManyRuns",
    "Trimmed",
    "Usage",
]


class StoreUnavailable(RuntimeError):  # noqa: N818 - reads as what happened: "except StoreUnavailable"
    """The store can't do this now (disk full, read-only, away, closed): try again later.

    Nothing of the call was stored, unless an answer got lost on its way: idempotency keys and guards find that out.
    """


Outcome: TypeAlias = bool | Exception  # what a commit has returned or raised


class StoreRefused(RuntimeError):  # noqa: N818 - as above
    """The store can't be opened at all: another service has it, or it is of a newer schema. Says what to do."""


class TooManyRuns(RuntimeError):  # noqa: N818 - as above
    """The run is new and the store holds as many runs as it may."""


@dataclass(frozen=True, slots=True)
class Record:
    """An entry on its way into the log.

    Attributes:
        key: idempotency key within the run; an entry whose key is known already is not stored again. None: no check.
    """

    entry: Entry
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """How many entries are new in the log and how many were there already."""

    accepted: int
    repeated: int


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry of the log. Positions of a run are above 0 and grow; between two of them there may be a gap."""

    position: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An engine's state after the entry at ``position``."""

    version: str
    position: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has been folded.

    Attributes:
        position: everything up to here is committed; 0 is nothing.
        version: version of the engine that committed last, None if none has.
        snapshot: the newest state kept; may lie before ``position``.
    """

    position: int = 0
    version: str | None = None
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One step of a run's fold: all of it is stored, or nothing.

    Attributes:
        expected: committed position from which the fold started.
        position: position it has reached, >= expected.
        version: the engine's version.
        time: Unix time in seconds of the commit; notifications are due from then on.
        events: in the order of the engine. An event whose id is known changes the alert but notifies nobody.
        causes: positions of the entries that caused the events, one for each; empty: ``position`` for all.
        state: the engine's state at ``position``; None keeps the older snapshot.
        attempt: the engine's view of the attempt; ``config`` its view of the configuration, None if unchanged.
        error: what went wrong in the fold, for people; None clears nothing.
        rewrite: the run was folded anew by another version: forget its alerts and incidents before storing these. Those
            that began before the first entry kept can't be found again: they stay, resolved as "reconfigured".
    """

    expected: int
    position: int
    version: str
    time: float
    events: Sequence[Event] = ()
    causes: Sequence[int] = ()
    notifications: Sequence[Notification] = ()
    state: Mapping[str, Any] | None = None
    attempt: int | None = None
    config: RunConfig | None = None
    error: str | None = None
    rewrite: bool = False


@dataclass(frozen=True, slots=True)
class Retention:
    """What the store keeps.

    Attributes:
        entries: most entries of a run's log, the latest; 0: no bound.
        days: entries that came in longer ago go, and so do runs of which nothing was heard for so long, with their
            alerts, acknowledgements and notifications, and silences that ended so long ago; 0: no bound.
    """

    entries: int = 0
    days: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """How full the store is.

    Attributes:
        used: bytes it takes: of the database files, or of Redis' memory.
        free: bytes it may still take: free space of the disk, or up to Redis' ``maxmemory``; None if there is no bound.
        runs, most_runs: how many runs it has and may have.
    """

    used: int
    free: int | None
    runs: int
    most_runs: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a look at the store has removed."""

    entries: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run at a glance.

    Attributes:
        last_seen: Unix time in seconds (the service's clock) at which the latest vector came in; None before the first.
        step: step of the latest vector in the log, None before the first.
        attempt: the engine's count of attempts.
        firing: number of firing alerts by severity.
        config: as given, with the engine's guesses once it has seen the run.
        pending: entries of the log that are not folded yet.
    """

    run: str
    created: float
    last_seen: float | None
    step: int | None
    vectors: int
    attempt: int | None
    firing: Mapping[str, int]
    config: RunConfig
    pending: int
    error: str | None


class Store(Protocol):
    """The contract. Every method may raise :class:`StoreUnavailable` and be called from any thread."""

    def append(self, run: str, records: Sequence[Record], now: float) -> Future[Appended]:
        """Adds entries to the log of ``run``, all or none; the future is done when they are durable.

        A configuration that changes nothing counts as repeated. The future fails with :class:`TooManyRuns`.
        """
        ...

    def read(self, run: str, after: int, limit: int) -> list[Stored]:
        """Up to ``limit`` entries of the log behind position ``after``, in order; fewer only at the log's end."""
        ...

    def news(self, wanted: Callable[[str], bool] | None = None) -> list[str]:
        """The runs whose log is ahead of their committed position; only those ``wanted``, if that is given."""
        ...

    def load(self, run: str) -> Progress:
        """How far the run has been folded, with the newest snapshot."""
        ...

    def commit(self, run: str, change: Commit) -> bool:
        """Stores a step of the fold; False, and nothing stored, if the run is not at ``change.expected`` any more."""
        ...

    def commit_all(self, changes: Sequence[tuple[str, Commit]]) -> list[Outcome]:
        """:meth:`commit` for several runs at once, each for itself: what fails is an outcome, and raised by none."""
        ...

    def claim(self, receiver: str, now: float, lease: float) -> Claim | None:
        """The notification for ``receiver`` that is due longest; nobody else gets it for ``lease`` seconds."""
        ...

    def settle(self, settlement: Settlement) -> None:
        """Ends a claim, unless its news have been settled meanwhile: by whoever had it after the lease was over."""
        ...

    def next_due(self, receiver: str) -> float | None:
        """Unix time in seconds at which the next notification for ``receiver`` is due, None if there is none."""
        ...

    def pending_notifications(self) -> int:
        """Notifications that wait for their receiver, without those that are put off: reminders, silences."""
        ...

    def run(self, run: str) -> RunSummary | None:
        """One run, None if it is unknown."""
        ...

    def runs(self, limit: int) -> list[RunSummary]:
        """The ``limit`` runs heard of last, latest first."""
        ...

    def count_runs(self) -> int:
        """The number of runs."""
        ...

    def alerts(self, run: str | None, state: State | None, severity: Severity | None, limit: int) -> list[Alert]:
        """Alerts in their latest form, newest first; None does not filter."""
        ...

    def incidents(self, run: str | None, state: State | None, severity: Severity | None, limit: int) -> list[Incident]:
        """Incidents in their latest form, newest first; None does not filter."""
        ...

    def incident(self, run: str, incident: str) -> tuple[Incident, tuple[Alert, ...]] | None:
        """An incident of the run with its alerts in order of onset; None if there is none of that id."""
        ...

    def acknowledge(self, acknowledgement: Acknowledgement) -> bool:
        """Keeps who looks after an incident, in place of an earlier one; False if there is no such incident.

        It is news for the receivers that were told of the incident, due from the acknowledgement's time on.
        """
        ...

    def acknowledgements(self, run: str | None = None) -> dict[str, Acknowledgement]:
        """Acknowledgements of the run, or of all, by the incident's id."""
        ...

    def record(self, act: Act) -> None:
        """Adds to the audit log, of which the latest 10,000 acts are kept."""
        ...

    def acts(self, limit: int) -> list[Act]:
        """The ``limit`` latest acts, latest first."""
        ...

    def usage(self) -> Usage:
        """How full the store is."""
        ...

    def seek(self, run: str, after: int | None, last: int) -> int:
        """Position in the log behind which the first vector of a step beyond ``after`` lies.

        If ``after`` is None: the position behind which the ``last`` latest entries lie.
        """
        ...

    def recent_times(self, run: str, limit: int) -> list[tuple[int, float]]:
        """(step, time) of the latest ``limit`` vectors, latest first; a store may remember no more than 64."""
        ...

    def trim(self, keep: Retention, now: float, wanted: Callable[[str], bool] | None = None) -> Trimmed:
        """Removes what is beyond ``keep``, of the runs ``wanted`` if that is given; takes as long as it takes.

        Nothing goes that isn't folded or lies behind the newest snapshot. In front of the entries kept stands the run's
        configuration up to there, so that a fold that begins with it knows the run. Idempotency keys go with their
        entries.
        """
        ...

    def dead_letters(self) -> int:
        """Entries ever that somebody wrote into the log past the API and that were refused."""
        ...

    def add_silence(self, silence: Silence) -> None:
        """Keeps a silence; one of the same id is replaced. Of more than 2,000 those go that end first."""
        ...

    def silences(self) -> list[Silence]:
        """All silences, those too that are over or have yet to begin; the latest start first."""
        ...

    def expire_silence(self, silence: str, now: float) -> bool:
        """Ends a silence, unless it is over; False if there is none of that id."""
        ...

    def check(self) -> None:
        """Raises :class:`StoreUnavailable` if nothing can be written now."""
        ...

    def close(self) -> None:
        """Finishes what was handed over and lets go of everything. May be called twice."""
        ...
