"""News from Redis: which runs have new entries, heard from the partitions that fall to this worker.

A nudge is an entry of one of 16 streams that says "run R has news", read through one consumer group. It is
acknowledged, and taken out of the stream, only after the run was committed beyond it; so what a stream still holds is
what is not done. A nudge means nothing but "look": heard twice, or by two workers, it does no harm, and a lost one is
made good by the sweep.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis, RedisError, ResponseError

from tocsin_service.exposition import Exposition
from tocsin_service.judging.membership import DEAD_SECONDS, Membership
from tocsin_service.receiving.vectors import is_run_id
from tocsin_service.store import StoreUnavailable
from tocsin_service.store.redis.partitions import PARTITIONS, partition_of, served_by

__all__ = ["GROUP", "Lag", "Nudges", "lag", "stream"]

logger = logging.getLogger(__name__)

GROUP = "workers"
BEAT_SECONDS = 1.0
BLOCK_MILLISECONDS = 250  # how long a read waits for news; also how long a stop waits for the read
COLLECT_SECONDS = 5.0  # how often nudges are looked for that somebody took and didn't finish
COUNT = 1000  # nudges in one answer
FORGOTTEN_MILLISECONDS = 60_000  # a consumer that is dead, holds nothing and was silent for so long is removed
PAUSE_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # waits while Redis is away


def stream(partition: int) -> str:
    """The key of a partition's nudges."""
    return f"tocsin:nudges:{partition}"


@dataclass(frozen=True, slots=True)
class Lag:
    """What a partition has to do: nudges not acknowledged, and the age of the oldest in seconds (0 without any)."""

    nudges: int
    oldest: float


def lag(client: Redis, partitions: Iterable[int]) -> dict[int, Lag]:
    """The lag of each of ``partitions``."""
    numbers = list(partitions)
    with client.pipeline(transaction=False) as pipe:
        pipe.time()
        for number in numbers:
            pipe.xlen(stream(number))
            pipe.xrange(stream(number), count=1)
        (seconds, micros), *answers = pipe.execute()
    now = seconds + micros / 1e6
    ages = [max(0.0, now - _milliseconds(first[0][0]) / 1e3) if first else 0.0 for first in answers[1::2]]
    return {number: Lag(*found) for number, found in zip(numbers, zip(answers[::2], ages, strict=True), strict=True)}


def _milliseconds(entry: bytes) -> int:
    return int(entry.partition(b"-")[0])


@dataclass(frozen=True, slots=True)
class _Nudge:
    key: str
    id: bytes
    taken: float  # monotonic


class Nudges:
    """One thread that beats, hears and claims; a feed of :class:`tocsin_service.judging.worker.Worker`.

    Args:
        client: of its own: it blocks; answers in bytes.
        name: of this worker, see :func:`tocsin_service.judging.membership.worker_name`.
        behind: the runs that have news, of those for which the given condition holds: the store's ``news``.
        exposition: where it counts.
    """

    def __init__(
        self,
        client: Redis,
        name: str,
        behind: Callable[[Callable[[str], bool]], Iterable[str]],
        exposition: Exposition,
    ) -> None:
        self._client, self._behind, self._exposition = client, behind, exposition
        self._membership = Membership(client, name)
        self._partitions: frozenset[int] = frozenset()
        self._wake: Callable[[str], None] = lambda _: None
        self._working: Callable[[], bool] = lambda: True
        # Of every run the oldest nudge, which tells the lag, and the newest, which stands for all between them.
        self._held: dict[str, list[_Nudge]] = {}
        self._lock = threading.Lock()
        self._grouped = False  # the consumer groups are there
        self._beat = self._collect = 0.0  # when the next one is due (monotonic)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tocsin-nudges", daemon=True)

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this worker serves now."""
        return self._partitions

    def serves(self, run: str) -> bool:
        """Whether ``run`` falls to this worker now."""
        return partition_of(run) in self._partitions

    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self, wake: Callable[[str], None], working: Callable[[], bool] = lambda: True) -> None:
        """Starts hearing.

        Args:
            wake: called for every run that has news.
            working: whether what it wakes still works; when it doesn't, the partitions are left to others.
        """
        self._wake, self._working = wake, working
        self._thread.start()

    def stop(self) -> None:
        """Hears no more. What was heard can still be finished."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def leave(self) -> None:
        """Hands over to the others, at once; what is not acknowledged by now is theirs."""
        try:
            self._membership.leave()
            with self._client.pipeline(transaction=False) as pipe:
                for number in range(PARTITIONS):
                    pipe.xpending_range(stream(number), GROUP, "-", "+", 1, consumername=self._membership.name)
                held = pipe.execute(raise_on_error=False)
                for number, pending in enumerate(held):
                    if pending == []:
                        pipe.xgroup_delconsumer(stream(number), GROUP, self._membership.name)
                pipe.execute(raise_on_error=False)
        except RedisError as error:
            logger.warning("this worker couldn't say that it leaves; the others find out: %s", error)

    # What the worker asks and tells.

    def overlooked(self) -> Iterable[str]:
        """Runs of the served partitions that are behind, whether or not a nudge told of them."""
        return self._behind(self.serves)

    def caught_up(self, run: str, since: float) -> None:
        """Acknowledges the nudges of ``run`` that were heard before ``since`` (monotonic): all of that is committed."""
        with self._lock:
            held = self._held.pop(run, [])
            done = [nudge for nudge in held if nudge.taken < since]
            if len(done) < len(held):
                self._held[run] = [nudge for nudge in held if nudge.taken >= since]
        try:
            self._acknowledge(done)
        except RedisError as error:
            logger.warning("nudges of run %r can't be acknowledged now; they are heard again: %s", run, error)

    # The thread.

    def _loop(self) -> None:
        trouble = 0
        while not self._stopping.is_set():
            if not self._working():
                logger.error("the worker has ended: its runs are left to others")
                return
            try:
                self._turn()
                if trouble:
                    logger.info("Redis is heard again")
                    self._exposition.reconnects.inc()
                trouble = 0
            except (RedisError, StoreUnavailable) as error:
                # Also a lost consumer group (NOGROUP), after Redis was emptied or came back with nothing: made again.
                logger.warning("Redis can't be heard: %s", error)
                self._stopping.wait(PAUSE_SECONDS[min(trouble, len(PAUSE_SECONDS) - 1)])
                trouble += 1
                self._grouped = False
                self._beat = self._collect = 0.0
            except Exception:
                logger.exception("nudges can't be heard")
                self._stopping.wait(PAUSE_SECONDS[-1])

    def _turn(self) -> None:
        now = time.monotonic()
        if not self._grouped:
            self._make_groups()
            self._grouped = True
        if now >= self._beat:
            self._live()
            self._beat = now + BEAT_SECONDS
        if now >= self._collect:
            self._collect_abandoned()
            self._collect = now + COLLECT_SECONDS
        streams: dict[Any, Any] = {stream(partition): ">" for partition in sorted(self._partitions)}
        if not streams:  # more workers than partitions: this one stands by
            self._stopping.wait(BEAT_SECONDS)
            return
        heard: Any = self._client.xreadgroup(GROUP, self._membership.name, streams, COUNT, BLOCK_MILLISECONDS)
        for key, entries in heard:
            self._hear(key.decode(), entries)

    def _make_groups(self) -> None:
        for partition in range(PARTITIONS):
            try:
                # From the beginning: what is done is taken out of the stream, so all that is there is to be done.
                self._client.xgroup_create(stream(partition), GROUP, "0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    def _live(self) -> None:
        """Says that this worker lives, and takes the partitions that fall to it."""
        workers = self._membership.beat()
        partitions = served_by(self._membership.name, workers)
        if partitions != self._partitions:
            logger.info("one of %d workers, serving partitions %s", len(workers), sorted(partitions))
            self._partitions, self._collect = partitions, 0.0
            for run in self.overlooked():
                self._wake(run)

    def _collect_abandoned(self) -> None:
        """Claims what somebody heard and didn't finish: a worker that died, or that served this partition before."""
        for partition in sorted(self._partitions):
            key, cursor = stream(partition), b"0-0"
            while True:
                answer: Any = self._client.xautoclaim(
                    key, GROUP, self._membership.name, int(DEAD_SECONDS * 1000), cursor, COUNT
                )
                cursor, entries = answer[:2]
                self._exposition.claims.inc(self._hear(key, entries))
                if cursor == b"0-0":
                    break
            self._forget_dead(key)

    def _forget_dead(self, key: str) -> None:
        consumers: Any = self._client.xinfo_consumers(key, GROUP)
        for one in consumers:
            if (
                not one["pending"]
                and one["idle"] > FORGOTTEN_MILLISECONDS
                and one["name"] != self._membership.name.encode()
            ):
                self._client.xgroup_delconsumer(key, GROUP, one["name"])

    def _hear(self, key: str, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> int:
        """Takes nudges and wakes the worker; how many of them were new to this worker."""
        now, done, woken = time.monotonic(), [], []
        for entry, fields in entries:
            nudge = _Nudge(key, entry, now)
            run = fields.get(b"run", b"").decode(errors="surrogateescape")
            if not is_run_id(run):  # anybody may write here: nothing is to be done
                done.append(nudge)
                continue
            with self._lock:
                held = self._held.setdefault(run, [])
                if any(one.id == entry for one in held):
                    continue
                if len(held) == 2:
                    done.append(held.pop())
                held.append(nudge)
            woken.append(run)
        for run in dict.fromkeys(woken):
            self._wake(run)
        self._acknowledge(done)
        return len(woken)

    def _acknowledge(self, nudges: Sequence[_Nudge]) -> None:
        """Says that these are done, and takes them out of their streams."""
        keys: dict[str, list[bytes]] = {}
        for nudge in nudges:
            keys.setdefault(nudge.key, []).append(nudge.id)
        if not keys:
            return
        with self._client.pipeline(transaction=False) as pipe:
            for key, ids in keys.items():
                pipe.xack(key, GROUP, *ids)
                pipe.xdel(key, *ids)
            pipe.execute()
