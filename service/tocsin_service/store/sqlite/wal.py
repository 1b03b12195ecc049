"""The write-ahead log: SQLite copies it into the file from time to time, and here it is kept from growing on and on.

SQLite begins the WAL anew only when no reader needs it any more. Readers that overlap all the time can put that off for
ever, so from some size on the writer asks for it: SQLite then waits for the readers that are there, not for new ones.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

__all__ = ["LIMIT", "Wal"]

LIMIT = 16 * 2**20  # bytes
PATIENCE_MILLISECONDS = 100  # for readers; everybody who writes waits meanwhile


class Wal:
    """The WAL of a database.

    Args:
        connection: the one that writes.
        path: of the database.
        limit: bytes above which the WAL is emptied.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, limit: int = LIMIT) -> None:
        self._connection, self._path, self._limit = connection, Path(f"{path}-wal"), limit
        self._bound = limit

    def size(self) -> int:
        """Its bytes."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def bound(self) -> None:
        """Empties it if it has become large. Only between transactions."""
        size = self.size()
        if size > self._bound:
            # If a reader stood in the way, nobody waits for him again before much more is written.
            self._bound = self._limit if self.empty() else size + self._limit // 4

    def empty(self) -> bool:
        """Copies it into the database and empties it; False if a reader stands in the way."""
        busy = True
        with contextlib.suppress(sqlite3.Error):  # a full disk, say: whoever writes next hears of it
            (before,) = self._connection.execute("PRAGMA busy_timeout").fetchone()
            self._connection.execute(f"PRAGMA busy_timeout = {PATIENCE_MILLISECONDS}")
            try:
                busy = bool(self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {before}")
        return not busy
