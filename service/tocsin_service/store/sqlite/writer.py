"""One thread that writes, and commits in groups: many small requests share the cost of one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from tocsin_service.store import StoreUnavailable
from tocsin_service.store.groups import Groups, Job
from tocsin_service.store.sqlite.wal import Wal

__all__ = ["Writer"]

T = TypeVar("T")
_Job: TypeAlias = Job[Callable[[sqlite3.Connection], Any]]


class Writer:
    """Runs functions on the one writing connection. A function that raises leaves nothing behind.

    The future of a function is done after its transaction has been committed. SQLite's own errors (disk full,
    read-only file) become :class:`StoreUnavailable`; other exceptions reach the caller as they are.

    Args:
        connection: the one connection that writes.
        wal: kept small between transactions.
    """

    def __init__(self, connection: sqlite3.Connection, wal: Wal) -> None:
        self._connection, self._wal = connection, wal
        self._groups: Groups[Callable[[sqlite3.Connection], Any]] = Groups("tocsin-writer", self._run)

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Hands over ``work``.

        Raises:
            StoreUnavailable: the writer is closed, or too much is waiting.
        """
        return self._groups.submit(work)

    def close(self) -> None:
        """Finishes what was handed over. May be called twice."""
        self._groups.close()

    def _run(self, group: Sequence[_Job]) -> None:
        try:
            self._transact(group)
            self._wal.bound()
        except sqlite3.Error as error:
            self._roll_back()
            if len(group) == 1:
                group[0].future.set_exception(StoreUnavailable(f"the database can't be written: {error}"))
                return
            for job in group:  # one by one, so that only whoever causes the trouble has it
                self._run([job])

    def _transact(self, group: Sequence[_Job]) -> None:
        outcomes: list[Callable[[], None]] = []
        self._connection.execute("BEGIN IMMEDIATE")
        for job in group:
            self._connection.execute("SAVEPOINT job")
            try:
                outcomes.append(_success(job, job.work(self._connection)))
            except sqlite3.Error:
                raise
            except Exception as error:  # noqa: BLE001 - belongs to the caller, who gets it from the future
                self._connection.execute("ROLLBACK TO job")
                outcomes.append(_failure(job, error))
            self._connection.execute("RELEASE job")
        self._connection.execute("COMMIT")
        for tell in outcomes:
            tell()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # SQLite ends it by itself after some errors
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")


def _success(job: _Job, result: object) -> Callable[[], None]:
    return lambda: job.future.set_result(result)


def _failure(job: _Job, error: Exception) -> Callable[[], None]:
    return lambda: job.future.set_exception(error)
