"""The SQLite file: its tables, its version, and who may open it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Literal

from tocsin_service.store import StoreRefused

__all__ = ["SCHEMA_VERSION", "connect", "lock", "migrate"]

SCHEMA_VERSION = 4
APPLICATION_ID = 0x746F6373  # "tocs": tells our files from other programs' SQLite files

# Payloads are JSON texts: a REAL column would turn NaN into NULL. `entry` is the last column, so that a scan over steps
# and times doesn't read the payloads. `days` says of a run how far its log had come when a day (of Unix time) began.
# Only days at which something came in are noted.
# `base` is the position of the first entry that is kept, once some are not; `began` that of a subject's first event.
# `postponed` says that a row of the outbox waits because somebody wants it so, and not in a backoff.
TABLES = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    created REAL NOT NULL,
    last_seen REAL,
    vectors INTEGER NOT NULL DEFAULT 0,
    step INTEGER,
    given TEXT NOT NULL DEFAULT '{}',
    given_at INTEGER NOT NULL DEFAULT 0,
    head INTEGER NOT NULL DEFAULT 0,
    committed INTEGER NOT NULL DEFAULT 0,
    base INTEGER NOT NULL DEFAULT 0,
    version TEXT,
    attempt INTEGER,
    view TEXT,
    error TEXT
);
CREATE INDEX runs_with_news ON runs (id) WHERE head > committed;
CREATE INDEX runs_by_last_seen ON runs (last_seen);
CREATE TABLE log (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    position INTEGER NOT NULL,
    key TEXT,
    step INTEGER,
    time REAL,
    entry TEXT NOT NULL
);
CREATE UNIQUE INDEX log_by_position ON log (run_id, position);
CREATE UNIQUE INDEX log_by_key ON log (run_id, key) WHERE key IS NOT NULL;
CREATE TABLE days (
    run_id INTEGER NOT NULL REFERENCES runs (id),
    day INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (run_id, day)
) WITHOUT ROWID;
CREATE TABLE state (
    run_id INTEGER PRIMARY KEY REFERENCES runs (id),
    version TEXT NOT NULL,
    position INTEGER NOT NULL,
    snapshot TEXT NOT NULL
);
CREATE TABLE events (
    id TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    position INTEGER NOT NULL,
    transition TEXT NOT NULL,
    step INTEGER NOT NULL,
    time REAL,
    subject TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX events_by_run ON events (run_id);
CREATE TABLE alerts (
    id TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    state TEXT NOT NULL,
    severity TEXT NOT NULL,
    payload TEXT NOT NULL,
    began INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX alerts_by_run ON alerts (run_id);
CREATE INDEX alerts_firing ON alerts (run_id, severity) WHERE state = 'firing';
CREATE TABLE incidents (
    id TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    state TEXT NOT NULL,
    severity TEXT NOT NULL,
    payload TEXT NOT NULL,
    began INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX incidents_by_run ON incidents (run_id);
CREATE TABLE outbox (
    receiver TEXT NOT NULL,
    incident TEXT NOT NULL,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    news INTEGER NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL,
    leased INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    told TEXT,
    error TEXT,
    postponed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (receiver, incident)
) WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox (receiver, due) WHERE news > settled;
CREATE INDEX outbox_by_run ON outbox (run_id);
CREATE TABLE silences (
    id TEXT PRIMARY KEY,
    starts REAL NOT NULL,
    ends REAL NOT NULL,
    payload TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE acknowledgements (
    incident TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    payload TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX acknowledgements_by_run ON acknowledgements (run_id);
CREATE TABLE acts (
    id INTEGER PRIMARY KEY,
    payload TEXT NOT NULL
);
"""

# What takes a file of an older version to the next one.
MIGRATIONS = {
    1: "ALTER TABLE runs ADD COLUMN given_at INTEGER NOT NULL DEFAULT 0;",
    2: """
ALTER TABLE runs ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
ALTER TABLE alerts ADD COLUMN began INTEGER NOT NULL DEFAULT 0;
ALTER TABLE incidents ADD COLUMN began INTEGER NOT NULL DEFAULT 0;
CREATE TEMP TABLE first_events AS SELECT subject, min(position) AS position FROM events GROUP BY subject;
UPDATE alerts SET began = first.position FROM first_events AS first WHERE first.subject = alerts.id;
UPDATE incidents SET began = first.position FROM first_events AS first WHERE first.subject = incidents.id;
DROP TABLE first_events;
CREATE TABLE days (
    run_id INTEGER NOT NULL REFERENCES runs (id),
    day INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (run_id, day)
) WITHOUT ROWID;
INSERT INTO days SELECT id, CAST(strftime('%s', 'now') AS INTEGER) / 86400, 0 FROM runs WHERE head > 0;
CREATE INDEX events_by_run ON events (run_id);
CREATE INDEX outbox_by_run ON outbox (run_id);
CREATE TABLE silences (
    id TEXT PRIMARY KEY,
    starts REAL NOT NULL,
    ends REAL NOT NULL,
    payload TEXT NOT NULL
) WITHOUT ROWID;
""",
    3: """
ALTER TABLE outbox ADD COLUMN postponed INTEGER NOT NULL DEFAULT 0;
CREATE TABLE acknowledgements (
    incident TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    payload TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX acknowledgements_by_run ON acknowledgements (run_id);
CREATE TABLE acts (
    id INTEGER PRIMARY KEY,
    payload TEXT NOT NULL
);
""",
}


def lock(path: Path) -> int:
    """Makes this process the only service on ``path``; the lock ends with the returned file descriptor.

    Raises:
        StoreRefused: another service has it, or the folder can't be written.
    """
    lock_path = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreRefused(
            f"{path}: can't be written ({error.strerror}); give this user the right to write there or choose another db"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreRefused(f"{path}: another Tocsin service uses this file; stop it or choose another db") from None
    return descriptor


def connect(path: Path, *, readonly: bool, sync: Literal["normal", "full"]) -> sqlite3.Connection:
    """A connection in autocommit mode: whoever writes says BEGIN. It may move between threads, one at a time."""
    mode = "ro" if readonly else "rwc"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=5
    )
    connection.execute(f"PRAGMA synchronous = {sync.upper()}")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Makes the tables of a new file and takes an older one to the present schema.

    Refuses a file that isn't ours or is of a newer Tocsin.

    Raises:
        StoreRefused: says which and what to do.
    """
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not empty and application != APPLICATION_ID:
            raise StoreRefused(f"{path}: is a database of another program; choose another db")
        if version > SCHEMA_VERSION:
            raise StoreRefused(
                f"{path}: was written by a newer Tocsin (schema {version}, this one knows {SCHEMA_VERSION}); "
                "update Tocsin or choose another db"
            )
        if empty:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # possible only before there is a table
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(
                f"BEGIN; {TABLES}"
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
            return
        for old in range(version, SCHEMA_VERSION):
            connection.executescript(f"BEGIN; {MIGRATIONS[old]} PRAGMA user_version = {old + 1}; COMMIT;")
    except sqlite3.Error as error:
        raise StoreRefused(f"{path}: can't be used as the database ({error}); choose another db") from None
