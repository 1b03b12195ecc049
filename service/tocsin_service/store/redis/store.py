"""The shared store: one Redis, any number of web processes and workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.audit import MOST_ACTS, Act
from tocsin_service.silences import Silence, expired, superfluous
from tocsin_service.store import (
    Appended,
    Claim,
    Commit,
    Outcome,
    Progress,
    Record,
    Retention,
    RunSummary,
    Settlement,
    Snapshot,
    Store,
    Stored,
    Trimmed,
    Usage,
)
from tocsin_service.store.encoding import (
    acknowledgement_from_text,
    acknowledgement_text,
    act_from_text,
    act_text,
    alert_from_text,
    incident_from_text,
    silence_from_text,
    silence_text,
)
from tocsin_service.store.redis import committing, keys, outbox, retention
from tocsin_service.store.redis.appending import Appender
from tocsin_service.store.redis.connection import Address, Connection, connect
from tocsin_service.store.redis.entries import Limits
from tocsin_service.store.redis.overlooked import Lookout
from tocsin_service.store.redis.reading import Reader
from tocsin_service.store.redis.scripts import ACKNOWLEDGE
from tocsin_service.store.redis.summaries import listed, members, summaries

__all__ = ["RedisStore"]


class RedisStore(Store):
    """The store of many services. See :class:`tocsin_service.store.Store` for what the methods promise.

    Nothing is asked of Redis before the first call, and it may come and go: calls fail while it is away.

    Args:
        address: which Redis.
        max_runs: most runs it may hold.
        max_metrics: most metrics in a vector that a trainer writes into the log himself.
        max_bytes: largest such vector.

    Raises:
        StoreRefused: the address is none.
    """

    def __init__(
        self, address: Address, *, max_runs: int = 10_000, max_metrics: int = 2_000, max_bytes: int = 8 * 2**20
    ) -> None:
        self._connection = Connection(connect(address))
        self._max_runs = max_runs
        self._appender = Appender(self._connection, max_runs)
        self._reader = Reader(self._connection, Limits(max_metrics, max_bytes), max_runs)
        self._lookout = Lookout(self._connection)

    def close(self) -> None:
        self._appender.close()
        self._connection.close()

    def append(self, run: str, records: Sequence[Record], now: float) -> Future[Appended]:
        return self._appender.append(run, records, now)

    def read(self, run: str, after: int, limit: int) -> list[Stored]:
        return self._reader.read(run, after, limit)

    def news(self, wanted: Callable[[str], bool] | None = None) -> list[str]:
        return self._lookout.look(wanted)

    def load(self, run: str) -> Progress:
        # In this order: a snapshot may be older than what is committed, but not newer.
        (made_by, position, text), (committed, version) = self._connection.ask_all(
            [
                ("HMGET", keys.of(run, "state"), "version", "position", "snapshot"),
                ("HMGET", keys.of(run, "run"), "committed", "version"),
            ]
        )
        if committed is None:
            return Progress()
        snapshot = None if text is None else Snapshot(made_by, keys.position(position), json.loads(text))
        return Progress(keys.position(committed), version, snapshot)

    def commit(self, run: str, change: Commit) -> bool:
        (outcome,) = self.commit_all([(run, change)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def commit_all(self, changes: Sequence[tuple[str, Commit]]) -> list[Outcome]:
        return committing.commit_all(self._connection, changes)

    def claim(self, receiver: str, now: float, lease: float) -> Claim | None:
        return outbox.claim(self._connection, receiver, now, lease)

    def settle(self, settlement: Settlement) -> None:
        outbox.settle(self._connection, settlement)

    def next_due(self, receiver: str) -> float | None:
        return outbox.next_due(self._connection, receiver)

    def pending_notifications(self) -> int:
        return outbox.pending(self._connection)

    def run(self, run: str) -> RunSummary | None:
        return next(iter(summaries(self._connection, [run])), None)

    def runs(self, limit: int) -> list[RunSummary]:
        return summaries(self._connection, self._connection.ask("ZRANGE", keys.RUNS, 0, limit - 1, "REV"))

    def count_runs(self) -> int:
        return int(self._connection.ask("ZCARD", keys.RUNS))

    def alerts(self, run: str | None, state: State | None, severity: Severity | None, limit: int) -> list[Alert]:
        texts = listed(self._connection, "alerts", run, state, severity, limit)
        return [alert_from_text(text) for text in texts]

    def incidents(self, run: str | None, state: State | None, severity: Severity | None, limit: int) -> list[Incident]:
        texts = listed(self._connection, "incidents", run, state, severity, limit)
        return [incident_from_text(text) for text in texts]

    def incident(self, run: str, incident: str) -> tuple[Incident, tuple[Alert, ...]] | None:
        known, text = self._connection.ask_all(
            [("HEXISTS", keys.of(run, "incidents"), incident), ("HGET", "tocsin:incidents", incident)]
        )
        if not known or text is None:
            return None
        found = incident_from_text(text)
        return found, members(self._connection, found)

    def acknowledge(self, acknowledgement: Acknowledgement) -> bool:
        run, incident, time = acknowledgement.run, acknowledgement.incident, acknowledgement.time
        text = acknowledgement_text(acknowledgement)
        return bool(self._connection.run(ACKNOWLEDGE, run, incident, text, repr(float(time))))

    def acknowledgements(self, run: str | None = None) -> dict[str, Acknowledgement]:
        if run is None:
            found = self._connection.ask("HGETALL", keys.ACKNOWLEDGED)
        else:
            ids = self._connection.ask("SMEMBERS", keys.of(run, "acknowledged"))
            texts = self._connection.ask("HMGET", keys.ACKNOWLEDGED, *ids) if ids else []
            found = {name: text for name, text in zip(ids, texts, strict=True) if text is not None}
        return {name: acknowledgement_from_text(text) for name, text in found.items()}

    def record(self, act: Act) -> None:
        self._connection.ask_all([("LPUSH", keys.AUDIT, act_text(act)), ("LTRIM", keys.AUDIT, 0, MOST_ACTS - 1)])

    def acts(self, limit: int) -> list[Act]:
        return [act_from_text(text) for text in self._connection.ask("LRANGE", keys.AUDIT, 0, limit - 1)]

    def usage(self) -> Usage:
        memory, runs = self._connection.ask_all([("INFO", "memory"), ("ZCARD", keys.RUNS)])
        used, most = int(memory["used_memory"]), int(memory["maxmemory"])
        return Usage(used, max(0, most - used) if most else None, int(runs), self._max_runs)

    def seek(self, run: str, after: int | None, last: int) -> int:
        return self._reader.seek(run, after, last)

    def recent_times(self, run: str, limit: int) -> list[tuple[int, float]]:
        times = self._connection.ask("LRANGE", keys.of(run, "times"), 0, limit - 1)
        pairs = (text.split(" ") for text in times)
        return [(int(step), float(time)) for step, time in pairs]

    def trim(self, keep: Retention, now: float, wanted: Callable[[str], bool] | None = None) -> Trimmed:
        runs = [run for run in self._connection.ask("ZRANGE", keys.RUNS, 0, -1) if wanted is None or wanted(run)]
        entries = gone = 0
        for one in retention.due(self._connection, runs, keep, now):
            rest = retention.remove_run(self._connection, one.run, keep, now) if one.whole else None
            if rest is not None:
                entries, gone = entries + rest, gone + 1
                continue
            while removed := retention.trim_log(self._connection, one.run, keep, now):
                entries += removed
        if keep.days:
            retention.trim_silences(self._connection, keep, now)
        return Trimmed(entries, gone)

    def dead_letters(self) -> int:
        return int(self._connection.ask("HGET", keys.COUNTS, "dead") or 0)

    def add_silence(self, silence: Silence) -> None:
        self._connection.ask("HSET", keys.SILENCES, silence.id, silence_text(silence))
        for old in superfluous(self.silences()):
            self._connection.ask("HDEL", keys.SILENCES, old.id)

    def silences(self) -> list[Silence]:
        found = map(silence_from_text, self._connection.ask("HVALS", keys.SILENCES))
        return sorted(found, key=lambda one: (-one.starts, one.id))

    def expire_silence(self, silence: str, now: float) -> bool:
        text = self._connection.ask("HGET", keys.SILENCES, silence)
        if text is None:
            return False
        self.add_silence(expired(silence_from_text(text), now))
        return True

    def check(self) -> None:
        # Writes: only that finds a Redis that is full, or a replica of another.
        self._connection.ask("HINCRBY", keys.COUNTS, "checks", 1)
