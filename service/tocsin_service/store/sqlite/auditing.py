"""The audit log in SQLite."""

from __future__ import annotations

import sqlite3

from tocsin_service.audit import MOST_ACTS, Act
from tocsin_service.store.encoding import act_text

__all__ = ["record"]


def record(connection: sqlite3.Connection, *, act: Act) -> None:
    """Adds an act; the oldest go."""
    cursor = connection.execute("INSERT INTO acts (payload) VALUES (?)", (act_text(act),))
    connection.execute("DELETE FROM acts WHERE id <= ?", ((cursor.lastrowid or 0) - MOST_ACTS,))
