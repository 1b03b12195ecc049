"""What the writing thread removes, a little at a time: everybody else waits meanwhile."""

from __future__ import annotations

import sqlite3

from tocsin_detectors.entries import StepVector
from tocsin_service.store import Retention
from tocsin_service.store.encoding import entry_from_text, entry_text
from tocsin_service.store.trimming import DAY, config_after

__all__ = ["due", "give_back", "remove_run", "trim_log", "trim_silences"]

CHUNK = 1_000  # log entries removed in one go
PAGES = 1_000  # pages given back to the file system in one go

# How far a run's log had come when day ?3 began: the first day noted from then on says so.
_AGED = "coalesce((SELECT min(days.position) FROM days WHERE days.run_id = runs.id AND day >= ?3), head)"
_A_VECTOR = StepVector(0, {})  # stands for any: their content is not needed


def due(connection: sqlite3.Connection, *, keep: Retention, now: float) -> list[tuple[str, bool]]:
    """The runs of which something may have to go; whether the whole run has to."""
    silent = now - keep.days * DAY if keep.days else 0.0
    rows = connection.execute(
        "SELECT run, committed >= head AND coalesce(last_seen, created) < ?1 AS whole FROM runs"  # noqa: S608 - one of ours
        f" WHERE whole OR (?2 > 0 AND head - base > ?2) OR (?1 > 0 AND {_AGED} > max(base, 1)) ORDER BY id",
        (silent, keep.entries, _day(keep, now)),
    )
    return [(run, bool(whole)) for run, whole in rows]


def trim_log(connection: sqlite3.Connection, *, run: str, keep: Retention, now: float) -> int:
    """Removes up to :data:`CHUNK` entries that are beyond ``keep``; how many."""
    found = connection.execute(
        f"SELECT id, head, max(base, 1), min(committed, coalesce(state.position, 0)), {_AGED}"  # noqa: S608 - as above
        " FROM runs LEFT JOIN state ON run_id = id WHERE run = ?1",
        (run, None, _day(keep, now)),
    ).fetchone()
    if found is None:
        return 0
    run_id, head, base, folded, aged = found  # the first entry is always there, as it was or as the base
    crowded = head - keep.entries if keep.entries else 0
    cut = min(max(aged if keep.days else 0, crowded), folded, base + CHUNK)
    if cut <= base:
        return 0
    _cut(connection, run_id, cut)
    connection.execute("DELETE FROM days WHERE run_id = ? AND day < ?", (run_id, _day(keep, now) if keep.days else 0))
    return int(cut - base)


def _day(keep: Retention, now: float) -> int:
    """The first day, counted from 1970, whose entries are not all too old."""
    return int((now - keep.days * DAY) // DAY)


def _cut(connection: sqlite3.Connection, run_id: int, cut: int) -> None:
    """Makes ``cut`` the first position of the log, and what was the configuration there its entry."""
    entries = connection.execute(
        "SELECT CASE WHEN step IS NULL THEN entry END FROM log WHERE run_id = ? AND position <= ? ORDER BY position",
        (run_id, cut),
    )
    config = config_after(_A_VECTOR if text is None else entry_from_text(text) for (text,) in entries)
    connection.execute("DELETE FROM log WHERE run_id = ? AND position < ?", (run_id, cut))
    connection.execute(
        "UPDATE log SET key = NULL, step = NULL, time = NULL, entry = ? WHERE run_id = ? AND position = ?",
        (entry_text(config), run_id, cut),
    )
    connection.execute("UPDATE runs SET base = ? WHERE id = ?", (cut, run_id))


def remove_run(connection: sqlite3.Connection, *, run: str, keep: Retention, now: float) -> int | None:
    """Removes a run that is silent, once its log is short; how many entries went, None if it is silent no more."""
    found = connection.execute(
        "SELECT id, head - max(base, 1) + 1 FROM runs"
        " WHERE run = ? AND committed >= head AND coalesce(last_seen, created) < ?",
        (run, now - keep.days * DAY),
    ).fetchone()
    if found is None:
        return None
    run_id, entries = found
    for table in ("log", "days", "state", "events", "alerts", "incidents", "acknowledgements", "outbox"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - one of ours
    connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))
    return int(entries) if entries > 0 else 0


def trim_silences(connection: sqlite3.Connection, *, keep: Retention, now: float) -> None:
    """Forgets silences that were over long ago."""
    connection.execute("DELETE FROM silences WHERE ends < ?", (now - keep.days * DAY,))


def give_back(connection: sqlite3.Connection) -> bool:
    """Makes the file smaller by some of what is free in it; whether there is more to give.

    A file that was made before schema 3 keeps its size, and what is free in it is used again.
    """
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    connection.execute(f"PRAGMA incremental_vacuum({PAGES})").fetchall()
    (left,) = connection.execute("PRAGMA freelist_count").fetchone()
    return bool(0 < left < free)
