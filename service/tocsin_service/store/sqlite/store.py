"""The embedded store: one SQLite file in WAL mode, one writing thread, readers on connections of their own.

What was acknowledged survives a killed process: it is in the WAL, which the next start reads. ``sync="full"`` makes it
survive a power cut too.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.audit import Act
from tocsin_service.silences import Silence
from tocsin_service.store import (
    Appended,
    Claim,
    Commit,
    Outcome,
    Progress,
    Record,
    Retention,
    RunSummary,
    Settlement,
    Snapshot,
    Store,
    Stored,
    StoreRefused,
    StoreUnavailable,
    Trimmed,
    Usage,
)
from tocsin_service.store.encoding import (
    acknowledgement_from_text,
    act_from_text,
    alert_from_text,
    config_from_text,
    entry_from_text,
    incident_from_text,
    silence_from_text,
    state_text,
)
from tocsin_service.store.sqlite import acknowledging, auditing, outbox, retention, schema, silencing, writing
from tocsin_service.store.sqlite.wal import Wal
from tocsin_service.store.sqlite.writer import Writer

__all__ = ["SqliteStore"]

T = TypeVar("T")

READERS = 4  # read connections kept open; more are made when needed and closed afterwards


class SqliteStore(Store):
    """The store of one service. See :class:`tocsin_service.store.Store` for what the methods promise.

    Args:
        path: the file; made if it doesn't exist.
        max_runs: most runs it may hold.
        sync: "normal" or "full", see :class:`tocsin_service.settings.Settings`.

    Raises:
        StoreRefused: another service has the file, it isn't ours, or it can't be used.
    """

    def __init__(self, path: Path, *, max_runs: int = 10_000, sync: Literal["normal", "full"] = "normal") -> None:
        self._path, self._max_runs, self._sync = path, max_runs, sync
        self._lock = schema.lock(path)
        try:
            self._connection = schema.connect(path, readonly=False, sync=sync)
            try:
                schema.migrate(self._connection, path)
                outbox.release_leases(self._connection)
            except BaseException:
                self._connection.close()
                raise
        except (sqlite3.Error, StoreRefused) as error:
            os.close(self._lock)
            if isinstance(error, StoreRefused):
                raise
            raise StoreRefused(f"{path}: can't be opened as the database ({error}); choose another db") from None
        self._wal = Wal(self._connection, path)
        self._writer = Writer(self._connection, self._wal)
        self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue(READERS)
        self._closed = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        while not self._readers.empty():
            self._readers.get_nowait().close()
        self._connection.close()
        os.close(self._lock)

    # Writing: every method is one function on the writing thread.

    def append(self, run: str, records: Sequence[Record], now: float) -> Future[Appended]:
        # Encoded here, in the caller's thread: the writing thread is what everybody waits for.
        rows = [writing.encode(record) for record in records]
        return self._writer.submit(partial(writing.append, run=run, rows=rows, now=now, max_runs=self._max_runs))

    def commit(self, run: str, change: Commit) -> bool:
        return self._hand_over(run, change).result()

    def commit_all(self, changes: Sequence[tuple[str, Commit]]) -> list[Outcome]:
        handed_over = [self._hand_over(run, change) for run, change in changes]
        return [_outcome(future) for future in handed_over]

    def _hand_over(self, run: str, change: Commit) -> Future[bool]:
        try:
            state = None if change.state is None else state_text(change.state)
            return self._writer.submit(partial(writing.commit, run=run, change=change, state=state))
        except Exception as error:  # noqa: BLE001 - of this change alone, also where there are several
            failed: Future[bool] = Future()
            failed.set_exception(error)
            return failed

    def claim(self, receiver: str, now: float, lease: float) -> Claim | None:
        with self._reader() as connection:
            if not outbox.is_due(connection, receiver=receiver, now=now):
                return None  # the usual case doesn't bother the writing thread
        return self._write(outbox.claim, receiver=receiver, now=now, lease=lease)

    def settle(self, settlement: Settlement) -> None:
        self._write(outbox.settle, settlement=settlement)

    def trim(self, keep: Retention, now: float, wanted: Callable[[str], bool] | None = None) -> Trimmed:
        with self._reader() as connection:
            due = retention.due(connection, keep=keep, now=now)
        entries = runs = 0
        for run, whole in due:
            if wanted is None or wanted(run):
                # A long log goes bit by bit, also if all of it has to go.
                least = Retention(entries=1) if whole else keep
                while removed := self._write(retention.trim_log, run=run, keep=least, now=now):
                    entries += removed
                rest = self._write(retention.remove_run, run=run, keep=keep, now=now) if whole else None
                if rest is not None:
                    entries, runs = entries + rest, runs + 1
        if keep.days:
            self._write(retention.trim_silences, keep=keep, now=now)
        while self._write(retention.give_back):
            pass
        return Trimmed(entries, runs)

    def add_silence(self, silence: Silence) -> None:
        self._write(silencing.add, silence=silence)

    def expire_silence(self, silence: str, now: float) -> bool:
        return self._write(silencing.expire, silence=silence, now=now)

    def acknowledge(self, acknowledgement: Acknowledgement) -> bool:
        return self._write(acknowledging.acknowledge, acknowledgement=acknowledgement)

    def record(self, act: Act) -> None:
        self._write(auditing.record, act=act)

    def check(self) -> None:
        # Writes a page although nothing changes: only that finds a full disk.
        self._writer.submit(
            lambda connection: connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
        ).result()

    def _write(self, work: Callable[..., T], **arguments: Any) -> T:
        return self._writer.submit(partial(work, **arguments)).result()

    # Reading.

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            connection = self._open_reader()
        try:
            yield connection
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the database can't be read: {error}") from error
        finally:
            self._give_back(connection)

    def _open_reader(self) -> sqlite3.Connection:
        try:
            return schema.connect(self._path, readonly=True, sync=self._sync)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the database can't be read: {error}") from error

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if not self._closed:
            try:
                self._readers.put_nowait(connection)
            except queue.Full:
                pass
            else:
                return
        connection.close()

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reader() as connection:
            return connection.execute(query, values).fetchall()

    def read(self, run: str, after: int, limit: int) -> list[Stored]:
        rows = self._rows(
            "SELECT position, entry FROM log WHERE run_id = (SELECT id FROM runs WHERE run = ?) AND position > ?"
            " ORDER BY position LIMIT ?",
            run,
            after,
            limit,
        )
        return [Stored(position, entry_from_text(entry)) for position, entry in rows]

    def news(self, wanted: Callable[[str], bool] | None = None) -> list[str]:
        runs = [run for (run,) in self._rows("SELECT run FROM runs WHERE head > committed ORDER BY id")]
        return [run for run in runs if wanted is None or wanted(run)]

    def load(self, run: str) -> Progress:
        rows = self._rows(
            "SELECT committed, runs.version, state.version, position, snapshot"
            " FROM runs LEFT JOIN state ON run_id = id WHERE run = ?",
            run,
        )
        if not rows:
            return Progress()
        committed, version, made_by, position, text = rows[0]
        snapshot = None if text is None else Snapshot(made_by, position, json.loads(text))
        return Progress(committed, version, snapshot)

    def next_due(self, receiver: str) -> float | None:
        (due,) = self._rows("SELECT min(due) FROM outbox WHERE receiver = ? AND news > settled", receiver)[0]
        return None if due is None else float(due)

    def pending_notifications(self) -> int:
        return int(self._rows("SELECT count(*) FROM outbox WHERE news > settled AND NOT postponed")[0][0])

    def run(self, run: str) -> RunSummary | None:
        found = self._summaries("WHERE run = ?", run)
        return found[0] if found else None

    def runs(self, limit: int) -> list[RunSummary]:
        return self._summaries("ORDER BY last_seen DESC NULLS LAST, id DESC LIMIT ?", limit)

    def count_runs(self) -> int:
        return int(self._rows("SELECT count(*) FROM runs")[0][0])

    def _summaries(self, tail: str, *values: object) -> list[RunSummary]:
        rows = self._rows(
            "SELECT run, created, last_seen, step, vectors, attempt,"  # noqa: S608 - the tail is one of ours
            " (SELECT json_group_object(severity, n) FROM"
            "  (SELECT severity, count(*) AS n FROM alerts"
            "   WHERE run_id = runs.id AND state = 'firing' GROUP BY severity)),"
            f" coalesce(view, given), head - committed, error FROM runs {tail}",
            *values,
        )
        return [
            RunSummary(
                run,
                created,
                last_seen,
                step,
                vectors,
                attempt,
                json.loads(firing),
                config_from_text(config),
                pending,
                error,
            )
            for run, created, last_seen, step, vectors, attempt, firing, config, pending, error in rows
        ]

    def alerts(self, run: str | None, state: State | None, severity: Severity | None, limit: int) -> list[Alert]:
        return [alert_from_text(text) for text in self._payloads("alerts", run, state, severity, limit)]

    def incidents(self, run: str | None, state: State | None, severity: Severity | None, limit: int) -> list[Incident]:
        return [incident_from_text(text) for text in self._payloads("incidents", run, state, severity, limit)]

    def incident(self, run: str, incident: str) -> tuple[Incident, tuple[Alert, ...]] | None:
        with self._reader() as connection:
            connection.execute("BEGIN")  # so that the alerts are those of the incident as it is here
            try:
                row = connection.execute(
                    "SELECT payload FROM incidents WHERE id = ? AND run_id = (SELECT id FROM runs WHERE run = ?)",
                    (incident, run),
                ).fetchone()
                if row is None:
                    return None
                found = incident_from_text(row[0])
                return found, outbox.members(connection, found)
            finally:
                connection.execute("ROLLBACK")

    def acknowledgements(self, run: str | None = None) -> dict[str, Acknowledgement]:
        where = "" if run is None else "WHERE run_id = (SELECT id FROM runs WHERE run = ?)"
        given = () if run is None else (run,)
        rows = self._rows(f"SELECT incident, payload FROM acknowledgements {where}", *given)  # noqa: S608 - one of ours
        return {incident: acknowledgement_from_text(text) for incident, text in rows}

    def _payloads(
        self, table: str, run: str | None, state: State | None, severity: Severity | None, limit: int
    ) -> list[str]:
        conditions = {
            "run_id = (SELECT id FROM runs WHERE run = ?)": run,
            "state = ?": state,
            "severity = ?": severity,
        }
        given = {condition: str(value) for condition, value in conditions.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        rows = self._rows(
            f"SELECT payload FROM {table} {where} ORDER BY rowid DESC LIMIT ?",  # noqa: S608 - both are ours
            *given.values(),
            limit,
        )
        return [text for (text,) in rows]

    def silences(self) -> list[Silence]:
        return [
            silence_from_text(text) for (text,) in self._rows("SELECT payload FROM silences ORDER BY starts DESC, id")
        ]

    def acts(self, limit: int) -> list[Act]:
        rows = self._rows("SELECT payload FROM acts ORDER BY id DESC LIMIT ?", limit)
        return [act_from_text(text) for (text,) in rows]

    def usage(self) -> Usage:
        runs = self.count_runs()
        try:
            disk = os.statvfs(self._path)
            used = self._path.stat().st_size + self._wal.size()
        except OSError as error:
            raise StoreUnavailable(f"the database's file can't be looked at: {error}") from error
        return Usage(used, disk.f_bavail * disk.f_frsize, runs, self._max_runs)

    def dead_letters(self) -> int:
        return 0  # there is no way past the API

    def seek(self, run: str, after: int | None, last: int) -> int:
        if after is None:
            query, value = "SELECT max(head - ?, 0) FROM runs WHERE run = ?", last
        else:
            query = (
                "SELECT coalesce(min(position) - 1, max(head, 0)) FROM runs LEFT JOIN log ON run_id = runs.id"
                " AND log.step > ? WHERE run = ?"
            )
            value = after
        rows = self._rows(query, value, run)
        return int(rows[0][0] or 0) if rows else 0

    def recent_times(self, run: str, limit: int) -> list[tuple[int, float]]:
        return [
            (step, time)
            for step, time in self._rows(
                "SELECT step, time FROM log WHERE run_id = (SELECT id FROM runs WHERE run = ?)"
                " AND time IS NOT NULL ORDER BY position DESC LIMIT ?",
                run,
                limit,
            )
        ]


def _outcome(future: Future[bool]) -> Outcome:
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 - for whoever has handed it over
        return error
