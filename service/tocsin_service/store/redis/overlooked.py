"""Runs whose log is ahead of what is committed, found by looking and not by being told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tocsin_service.receiving.vectors import is_run_id
from tocsin_service.store.redis import keys
from tocsin_service.store.redis.connection import Connection
from tocsin_service.store.redis.scripts import AHEAD

__all__ = ["Lookout"]

PAGE = 500  # runs looked at by one script
SCANNED = 1000  # keys that Redis looks at for one answer
SCANS = 20  # answers in one look: bounds what a look costs, whatever else lies in this Redis


class Lookout:
    """Looks at all runs that the store knows, and for logs of runs that it doesn't know yet.

    The second looks at a part of all keys each time, and goes on from there the next time.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor = "0"

    def look(self, wanted: Callable[[str], bool] | None) -> list[str]:
        """The runs that are ahead, among those that are ``wanted``."""
        known = self._connection.ask("ZRANGE", keys.RUNS, 0, -1)
        unknown = {run for run in self._scan() if is_run_id(run)}.difference(known)
        runs = [run for run in (*known, *sorted(unknown)) if wanted is None or wanted(run)]
        found: list[str] = []
        for start in range(0, len(runs), PAGE):
            found += self._connection.run(AHEAD, *runs[start : start + PAGE])
        return found

    def _scan(self) -> Iterator[str]:
        for _ in range(SCANS):
            command = ("SCAN", self._cursor, "MATCH", keys.LOGS, "COUNT", SCANNED, "TYPE", "stream")
            cursor, found = self._connection.ask(*command)
            self._cursor = str(cursor)
            yield from map(keys.run_of, found)
            if self._cursor == "0":
                return
