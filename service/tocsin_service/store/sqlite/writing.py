"""What the writing thread does to the log and to the state of the fold, inside a transaction of its caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tocsin_detectors.alerts import Event, State
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.store import Appended, Commit, Record, TooManyRuns
from tocsin_service.store.encoding import (
    KINDS,
    Subject,
    config_from_text,
    config_text,
    encode_subject,
    entry_text,
    subject_from_text,
    subject_of,
)
from tocsin_service.store.sqlite.outbox import notify
from tocsin_service.store.trimming import DAY, superseded

__all__ = ["Row", "append", "commit", "encode"]

# Rows in one statement. Around every statement Python lets other threads go on, and then has to wait for its turn.
PIECE = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A record in the form in which the table holds it."""

    record: Record
    step: int | None
    time: float | None
    text: str


def encode(record: Record) -> Row:
    entry = record.entry
    step, time = (entry.step, entry.time) if isinstance(entry, StepVector) else (None, None)
    return Row(record, step, time, entry_text(entry))


def append(connection: sqlite3.Connection, *, run: str, rows: Sequence[Row], now: float, max_runs: int) -> Appended:
    """Adds the rows whose key is new to the log of ``run``; see the contract."""
    run_id, head, given = _open_run(connection, run, now, max_runs)
    first, vectors, step = head, 0, None
    config, given_at = given, 0
    new: list[tuple[object, ...]] = []
    for row in _unknown(connection, run_id, rows):
        if isinstance(row.record.entry, RunConfig):
            updated = config.updated(row.record.entry)
            if updated == config:
                continue
            config, given_at = updated, head + 1
        head += 1
        new.append((run_id, head, row.record.key, row.step, row.time, row.text))
        if row.step is not None:
            vectors, step = vectors + 1, row.step
            if config.finished:
                # A vector takes it back, here as in the fold.
                config, given_at = replace(config, finished=None), head
    for start in range(0, len(new), PIECE):
        piece = new[start : start + PIECE]
        connection.execute(
            f"INSERT INTO log (run_id, position, key, step, time, entry) VALUES {', '.join([_marks(6)] * len(piece))}",  # noqa: S608 - marks
            [*chain.from_iterable(piece)],
        )
    if head > first:
        connection.execute("INSERT OR IGNORE INTO days VALUES (?, ?, ?)", (run_id, now // DAY, first))
    connection.execute(
        "UPDATE runs SET head = ?, vectors = vectors + ?, step = coalesce(?, step), last_seen = coalesce(?, last_seen)"
        " WHERE id = ?",
        (head, vectors, step, now if vectors else None, run_id),
    )
    if config is not given:
        # The engine's view is older than this; until it has caught up the given configuration is the better answer.
        connection.execute(
            "UPDATE runs SET given = ?, given_at = ?, view = NULL WHERE id = ?",
            (config_text(config), given_at, run_id),
        )
    return Appended(head - first, len(rows) - (head - first))


def _unknown(connection: sqlite3.Connection, run_id: int, rows: Sequence[Row]) -> Iterator[Row]:
    """The rows without a key, and those whose key is neither in the log nor in a row before."""
    keys = [row.record.key for row in rows if row.record.key is not None]
    known: set[str | None] = set()
    for start in range(0, len(keys), PIECE):
        piece = keys[start : start + PIECE]
        query = f"SELECT key FROM log WHERE run_id = ? AND key IN {_marks(len(piece))}"  # noqa: S608 - marks
        known.update(key for (key,) in connection.execute(query, (run_id, *piece)))
    for row in rows:
        if row.record.key is None or row.record.key not in known:
            known.add(row.record.key)
            yield row


def _marks(count: int) -> str:
    return f"({', '.join('?' * count)})"


def _open_run(connection: sqlite3.Connection, run: str, now: float, max_runs: int) -> tuple[int, int, RunConfig]:
    found = connection.execute("SELECT id, head, given FROM runs WHERE run = ?", (run,)).fetchone()
    if found is not None:
        return found[0], found[1], config_from_text(found[2])
    if connection.execute("SELECT count(*) FROM runs").fetchone()[0] >= max_runs:
        raise TooManyRuns(f"{max_runs} runs are stored already; raise max_runs or use another db")
    cursor = connection.execute("INSERT INTO runs (run, created) VALUES (?, ?)", (run, now))
    return int(cursor.lastrowid or 0), 0, RunConfig()


def commit(connection: sqlite3.Connection, *, run: str, change: Commit, state: str | None) -> bool:
    """Stores one step of the fold if the run is still where it started; see the contract."""
    found = connection.execute(
        "UPDATE runs SET committed = ?, version = ?, attempt = coalesce(?, attempt), error = coalesce(?, error),"
        " view = CASE WHEN given_at <= ? THEN coalesce(?, view) END WHERE run = ? AND committed = ? AND head >= ?"
        " RETURNING id, base, step",
        (
            change.position,
            change.version,
            change.attempt,
            change.error,
            change.position,
            None if change.config is None else config_text(change.config),
            run,
            change.expected,
            change.position,
        ),
    ).fetchone()
    if found is None:
        return False
    run_id, base, step = found
    if change.rewrite:
        _rewrite(connection, run_id, base, step)
    causes = change.causes or [change.position] * len(change.events)
    new = {
        event.id
        for event, cause in zip(change.events, causes, strict=True)
        if _store_event(connection, run_id, cause, event)
    }
    for notification in change.notifications:
        if notification.event in new:
            notify(connection, run_id, notification, change.time)
    if state is not None:
        connection.execute(
            "INSERT OR REPLACE INTO state (run_id, version, position, snapshot) VALUES (?, ?, ?, ?)",
            (run_id, change.version, change.position, state),
        )
    return True


def _rewrite(connection: sqlite3.Connection, run_id: int, base: int, step: int | None) -> None:
    """Forgets the alerts and incidents that the fold can find again, and ends those that it can't."""
    for kind in KINDS:
        connection.execute(f"DELETE FROM {kind} WHERE run_id = ? AND began > ?", (run_id, base))  # noqa: S608 - one of two names
        left = connection.execute(
            f"SELECT payload FROM {kind} WHERE run_id = ? AND state = ?",  # noqa: S608 - as above
            (run_id, State.FIRING),
        )
        for (text,) in left.fetchall():
            _store_subject(connection, run_id, base, encode_subject(superseded(subject_from_text(kind, text), step)))


def _store_subject(connection: sqlite3.Connection, run_id: int, began: int, subject: Subject) -> None:
    """Stores the latest form of an alert or incident; it keeps the position at which it began."""
    connection.execute(
        f"INSERT INTO {subject.kind} (id, run_id, state, severity, payload, began) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - one of two names
        " ON CONFLICT (id) DO UPDATE"
        " SET state = excluded.state, severity = excluded.severity, payload = excluded.payload",
        (subject.id, run_id, subject.state, subject.severity, subject.text, began),
    )


def _store_event(connection: sqlite3.Connection, run_id: int, position: int, event: Event) -> bool:
    """Stores the latest form of the event's alert or incident, and the event; whether the event is new."""
    subject = subject_of(event)
    _store_subject(connection, run_id, position, subject)
    cursor = connection.execute(
        "INSERT INTO events (id, run_id, position, transition, step, time, subject) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO NOTHING",
        (event.id, run_id, position, event.transition, event.step, event.time, subject.id),
    )
    return cursor.rowcount > 0
