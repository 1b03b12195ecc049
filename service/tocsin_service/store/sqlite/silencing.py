"""Silences in SQLite."""

from __future__ import annotations

import sqlite3

from tocsin_service.silences import MOST_KEPT, Silence, expired
from tocsin_service.store.encoding import silence_from_text, silence_text

__all__ = ["add", "expire"]


def add(connection: sqlite3.Connection, *, silence: Silence) -> None:
    """Keeps a silence, in the place of one with its id; of too many those go that end first."""
    connection.execute(
        "INSERT OR REPLACE INTO silences (id, starts, ends, payload) VALUES (?, ?, ?, ?)",
        (silence.id, silence.starts, silence.ends, silence_text(silence)),
    )
    connection.execute(
        "DELETE FROM silences WHERE id IN (SELECT id FROM silences ORDER BY ends DESC, id LIMIT -1 OFFSET ?)",
        (MOST_KEPT,),
    )


def expire(connection: sqlite3.Connection, *, silence: str, now: float) -> bool:
    """Ends a silence; whether there is one of that id."""
    found = connection.execute("SELECT payload FROM silences WHERE id = ?", (silence,)).fetchone()
    if found is None:
        return False
    add(connection, silence=expired(silence_from_text(found[0]), now))
    return True
