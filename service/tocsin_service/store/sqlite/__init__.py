"""The embedded store: one SQLite file, used by one process."""

from tocsin_service.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
