"""One thread that works through what many callers hand over, in groups: they share the cost of one round."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tocsin_service.store import StoreUnavailable

__all__ = ["Groups", "Job"]

Work = TypeVar("Work")

GROUP = 256  # most jobs in one group: bounds how long the first of them waits
QUEUE = 4096  # most jobs waiting: beyond it the store is too slow for the load, and callers are told to come back


@dataclass(frozen=True, slots=True)
class Job(Generic[Work]):
    """What is to be done, and where the result goes."""

    work: Work
    future: Future[Any]


class Groups(Generic[Work]):
    """A thread and its queue.

    Args:
        name: of the thread.
        run: works through a group and ends every future of it; called by the one thread only.
    """

    def __init__(self, name: str, run: Callable[[Sequence[Job[Work]]], None]) -> None:
        self._run = run
        self._jobs: queue.SimpleQueue[Job[Work] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> Future[Any]:
        """Hands over ``work``.

        Raises:
            StoreUnavailable: closed, or too much is waiting.
        """
        job = Job(work, Future())
        with self._gate:  # nothing may be queued behind the closing mark
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._jobs.qsize() >= QUEUE:
                raise StoreUnavailable("more is waiting to be stored than the store keeps up with")
            self._jobs.put(job)
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
