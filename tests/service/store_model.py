"""A store in some lines that keeps everything in lists: what both stores are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tocsin_detectors.alerts import Alert, AlertEvent, Incident
from tocsin_detectors.entries import Entry, RunConfig, StepVector
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.audit import Act
from tocsin_service.store import Appended, Commit, Record, Told, Trimmed
from tocsin_service.store.trimming import config_after, superseded

__all__ = ["MAX_RUNS", "Model", "Run"]

MAX_RUNS = 3


@dataclass
class Run:
    """Positions are numbers of entries, from 1."""

    created: float
    last_seen: float | None = None
    vectors: int = 0
    step: int | None = None
    given: RunConfig = field(default_factory=RunConfig)
    given_at: int = 0
    view: RunConfig | None = None
    log: dict[int, Entry] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    head: int = 0
    committed: int = 0
    version: str | None = None
    attempt: int | None = None
    error: str | None = None
    snapshot: int = 0
    base: int = 0
    seen_events: set[str] = field(default_factory=set)


@dataclass
class Row:
    """A row of the outbox."""

    run: str
    due: float
    news: int = 0
    settled: int = 0
    tries: int = 0
    told: Told | None = None
    error: str | None = None
    postponed: bool = False
    taken: bool = False


class Model:
    """What a store does."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.subjects: dict[
            tuple[str, str], tuple[int, Alert | Incident]
        ] = {}  # (kind, id) -> began, subject; in order
        self.outbox: dict[tuple[str, str], Row] = {}
        self.acknowledged: dict[str, Acknowledgement] = {}
        self.acts: list[Act] = []

    def append(self, name: str, records: list[Record], now: float) -> Appended | None:
        if name not in self.runs and len(self.runs) >= MAX_RUNS:
            return None
        run = self.runs.setdefault(name, Run(now))
        before = run.head
        for record in records:
            self._append(run, record, now)
        return Appended(run.head - before, len(records) - (run.head - before))

    def _append(self, run: Run, record: Record, now: float) -> None:
        entry = record.entry
        if record.key is not None and record.key in run.keys:
            return
        config = run.given
        if isinstance(entry, RunConfig):
            config = config.updated(entry)
            if config == run.given:
                return
        run.head += 1
        run.log[run.head] = entry
        if record.key is not None:
            run.keys[record.key] = run.head
        if isinstance(entry, StepVector):
            run.vectors, run.step, run.last_seen = run.vectors + 1, entry.step, now
            config = replace(config, finished=None) if config.finished else config
        if config != run.given:
            run.given, run.given_at, run.view = config, run.head, None

    def commit(self, name: str, change: Commit) -> bool:
        run = self.runs.get(name)
        if run is None or run.committed != change.expected or change.position > run.head:
            return False
        run.committed, run.version = change.position, change.version
        run.attempt = run.attempt if change.attempt is None else change.attempt
        run.error = change.error or run.error
        if run.given_at > change.position:
            run.view = None
        elif change.config is not None:
            run.view = change.config
        run.snapshot = run.snapshot if change.state is None else change.position
        if change.rewrite:
            for key, (began, subject) in list(self.subjects.items()):
                if subject.run == name and began > run.base:
                    del self.subjects[key]
                elif subject.run == name:
                    self.subjects[key] = began, superseded(subject, run.step)
        new = {event.id for event in change.events} - run.seen_events
        for event, cause in zip(change.events, change.causes, strict=True):
            subject = event.alert if isinstance(event, AlertEvent) else event.incident
            key = ("alerts" if isinstance(event, AlertEvent) else "incidents", subject.id)
            self.subjects[key] = self.subjects.get(key, (cause, subject))[0], subject
        run.seen_events |= new
        for wish in change.notifications:
            if wish.event in new:
                self._notify(self.outbox.setdefault((wish.receiver, wish.incident), Row(name, 0)), change.time)
        return True

    def _notify(self, row: Row, now: float) -> None:
        if row.news <= row.settled or row.postponed:
            row.due = now
        row.news, row.postponed = row.news + 1, False

    def acknowledge(self, one: Acknowledgement) -> bool:
        _, found = self.subjects.get(("incidents", one.incident), (0, None))
        if found is None or found.run != one.run:
            return False
        self.acknowledged[one.incident] = one
        for (_, incident), row in self.outbox.items():
            if incident == one.incident and row.told:
                self._notify(row, one.time)
        return True

    def claim(self, receiver: str, now: float, lease: float) -> tuple[str, Row] | None:
        """The incident, and its row as it was before."""
        waiting = [(row.due, key[1], row) for key, row in self.waiting(receiver).items() if row.due <= now]
        if not waiting:
            return None
        _, incident, row = min(waiting, key=lambda one: one[0])
        before = replace(row)
        row.due, row.postponed, row.taken = now + lease, False, True
        return incident, before

    def settle(self, key: tuple[str, str], news: int, told: Told | None, retry_at: float | None, error: str) -> None:
        row = self.outbox.get(key)
        if row is None or row.settled >= news:
            return
        row.taken = False
        done = told is not None or retry_at is None
        if error:
            row.tries, row.error = row.tries + 1, error
        elif done:
            row.tries, row.error = 0, None
        row.told = told or row.told
        if done:
            row.settled = news
        is_new = row.news > news
        if retry_at is None or (is_new and not error):
            row.due = 0.0
            return
        row.due, row.postponed = retry_at, not error
        row.news += told is not None

    def waiting(self, receiver: str) -> dict[tuple[str, str], Row]:
        return {key: row for key, row in self.outbox.items() if key[0] == receiver and row.news > row.settled}

    def trim(self, entries: int) -> Trimmed:
        removed = 0
        for run in self.runs.values():
            cut = min(run.head - entries, run.committed, run.snapshot)
            base = max(run.base, 1)
            if cut > base:
                config = config_after(run.log[number] for number in sorted(run.log) if number <= cut)
                run.log = {cut: config} | {number: entry for number, entry in run.log.items() if number > cut}
                run.keys = {key: number for key, number in run.keys.items() if number > cut}
                run.base = cut
                removed += cut - base
        return Trimmed(removed, 0)
