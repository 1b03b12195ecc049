"""Acknowledgements in SQLite."""

from __future__ import annotations

import sqlite3

from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.store.encoding import acknowledgement_text
from tocsin_service.store.sqlite import outbox

__all__ = ["acknowledge"]


def acknowledge(connection: sqlite3.Connection, *, acknowledgement: Acknowledgement) -> bool:
    """Keeps an acknowledgement and makes it news for those who know of the incident; whether there is the incident."""
    incident = acknowledgement.incident
    found = connection.execute(
        "SELECT run_id FROM incidents WHERE id = ? AND run_id = (SELECT id FROM runs WHERE run = ?)",
        (incident, acknowledgement.run),
    ).fetchone()
    if found is None:
        return False
    (run_id,) = found
    connection.execute(
        "INSERT OR REPLACE INTO acknowledgements (incident, run_id, payload) VALUES (?, ?, ?)",
        (incident, run_id, acknowledgement_text(acknowledgement)),
    )
    outbox.notify_told(connection, run_id, incident, acknowledgement.time)
    return True
