"""One thread that writes, and commits in groups: many small requests share the cost of one transaction."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tocsin_service.store import StoreUnavailable

__all__ = ["Writer"]

T = TypeVar("T")

GROUP = 256  # most jobs in one transaction: bounds how long the first of them waits
QUEUE = 4096  # most jobs waiting: beyond it the disk is too slow for the load, and callers are told to come back


@dataclass(frozen=True, slots=True)
class _Job(Generic[T]):
    work: Callable[[sqlite3.Connection], T]
    future: Future[T]


class Writer:
    """Runs functions on the one writing connection. A function that raises leaves nothing behind.

    The future of a function is done after its transaction has been committed. SQLite's own errors (disk full,
    read-only file) become :class:`StoreUnavailable`; other exceptions reach the caller as they are.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._jobs: queue.Queue[_Job[Any] | None] = queue.Queue(QUEUE)
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="tocsin-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Hands over ``work``.

        Raises:
            StoreUnavailable: the writer is closed, or too much is waiting.
        """
        job: _Job[T] = _Job(work, Future())
        with self._gate:  # nothing may be queued behind the closing mark
            if self._closed:
                raise StoreUnavailable("the store is closed")
            try:
                self._jobs.put_nowait(job)
            except queue.Full:
                raise StoreUnavailable("more is waiting to be stored than the disk keeps up with") from None
        return job.future

    def close(self) -> None:
        """Finishes what was handed over. May be called twice."""
        with self._gate:
            first, self._closed = not self._closed, True
        if first:
            self._jobs.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (first := self._jobs.get()) is not None:
            group, closing = [first], False
            while len(group) < GROUP and not closing:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                closing = job is None
                if job is not None:
                    group.append(job)
            # A caller that has gone away before its turn stores nothing.
            self._run([job for job in group if job.future.set_running_or_notify_cancel()])
            if closing:
                break

    def _run(self, group: list[_Job[Any]]) -> None:
        try:
            self._transact(group)
        except sqlite3.Error as error:
            self._roll_back()
            if len(group) == 1:
                group[0].future.set_exception(StoreUnavailable(f"the database can't be written: {error}"))
                return
            for job in group:  # one by one, so that only whoever causes the trouble has it
                self._run([job])

    def _transact(self, group: list[_Job[Any]]) -> None:
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


def _success(job: _Job[T], result: T) -> Callable[[], None]:
    return lambda: job.future.set_result(result)


def _failure(job: _Job[Any], error: Exception) -> Callable[[], None]:
    return lambda: job.future.set_exception(error)
