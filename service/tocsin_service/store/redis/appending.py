"""The way into the log: many appends share one round trip, each of them is stored by one script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain

import redis

from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.store import Appended, Record, StoreUnavailable, TooManyRuns
from tocsin_service.store.encoding import entry_text
from tocsin_service.store.groups import Groups, Job
from tocsin_service.store.redis import keys
from tocsin_service.store.redis.configs import config_to_hash
from tocsin_service.store.redis.connection import Argument, Connection
from tocsin_service.store.redis.scripts import APPEND

__all__ = ["Appender"]


@dataclass(frozen=True, slots=True)
class _Append:
    arguments: Sequence[Argument]
    count: int


class Appender:
    """One thread that appends.

    Args:
        connection: to Redis.
        max_runs: most runs there may be.
    """

    def __init__(self, connection: Connection, max_runs: int) -> None:
        self._connection, self._max_runs = connection, max_runs
        self._groups: Groups[_Append] = Groups("tocsin-appender", self._run)

    def append(self, run: str, records: Sequence[Record], now: float) -> Future[Appended]:
        """Hands the records over; see the contract."""
        try:
            run.encode()
        except UnicodeEncodeError as error:  # found here, where it harms no other append of the group
            failed: Future[Appended] = Future()
            failed.set_exception(error)
            return failed
        arguments: list[Argument] = [run, repr(float(now)), self._max_runs, keys.nudges(run)]
        for record in records:
            arguments += _record(record)
        return self._groups.submit(_Append(arguments, len(records)))

    def close(self) -> None:
        self._groups.close()

    def _run(self, jobs: Sequence[Job[_Append]]) -> None:
        try:
            answers = self._connection.run_all(APPEND, [job.work.arguments for job in jobs])
        except StoreUnavailable as error:
            for job in jobs:
                job.future.set_exception(error)
            return
        for job, answer in zip(jobs, answers, strict=True):
            self._end(job, answer)

    def _end(self, job: Job[_Append], answer: int | Exception) -> None:
        if isinstance(answer, redis.RedisError):
            job.future.set_exception(StoreUnavailable(f"Redis can't store this now: {answer}"))
        elif isinstance(answer, Exception):
            job.future.set_exception(answer)
        elif answer < 0:
            problem = f"{self._max_runs} runs are stored already; raise max_runs or use another store"
            job.future.set_exception(TooManyRuns(problem))
        else:
            job.future.set_result(Appended(answer, job.work.count - answer))


def _record(record: Record) -> Iterator[Argument]:
    """The record as arguments of the script."""
    entry, key = record.entry, record.key or ""
    match entry:
        case StepVector():
            yield from ("v", key, entry_text(entry), entry.step, "" if entry.time is None else repr(float(entry.time)))
        case RunConfig():
            fields = config_to_hash(entry)
            yield from ("c", key, entry_text(entry), len(fields))
            yield from chain.from_iterable(fields.items())
        case _:
            yield from ("o", key, entry_text(entry))
