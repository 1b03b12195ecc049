"""Nudges over a real Redis: heard by one worker, acknowledged when done, taken over when not."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from redis import Redis

from tocsin_service.exposition import Exposition
from tocsin_service.judging import membership, nudges
from tocsin_service.judging.membership import alive
from tocsin_service.judging.nudges import GROUP, Nudges, lag, stream
from tocsin_service.store.redis.partitions import PARTITIONS, owners, partition_of

RUNS = [f"run-{number}" for number in range(64)]  # in all partitions


def nothing(_: Callable[[str], bool]) -> tuple[str, ...]:
    return ()


class Ear:
    """A worker's ear, without the worker: keeps what it hears."""

    def __init__(self, url: str, name: str) -> None:
        self.heard: queue.Queue[str] = queue.Queue()
        self.name = name
        self.counts = Exposition(None)  # type: ignore[arg-type] - never rendered
        self.nudges = Nudges(Redis.from_url(url), name, nothing, self.counts)
        self.nudges.start(self.heard.put)

    def hear(self, count: int) -> list[str]:
        return sorted(self.heard.get(timeout=30) for _ in range(count))

    def finish(self, *runs: str) -> None:
        for run in runs:
            self.nudges.caught_up(run, time.monotonic())

    def die(self) -> None:
        """As a killed process: says nothing."""
        self.nudges.stop()


def until(condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


@pytest.fixture
def client(redis_server: Any) -> Iterator[Redis]:
    with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
def ear(redis_server: Any) -> Iterator[Callable[[str], Ear]]:
    ears: list[Ear] = []

    def make(name: str) -> Ear:
        ears.append(Ear(redis_server.url, name))
        return ears[-1]

    yield make
    for one in ears:
        one.nudges._stopping.set()  # all of them at once: each waits for its read
    for one in ears:
        one.nudges.stop()
        one.nudges._client.close()


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is silent for half a second is dead."""
    monkeypatch.setattr(membership, "DEAD_SECONDS", 0.5)
    monkeypatch.setattr(nudges, "DEAD_SECONDS", 0.5)
    monkeypatch.setattr(nudges, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(nudges, "COLLECT_SECONDS", 0.2)
    monkeypatch.setattr(nudges, "BLOCK_MILLISECONDS", 50)


def nudge(client: Redis, *runs: str) -> None:
    for run in runs:
        client.xadd(stream(partition_of(run)), {"run": run})


def waiting(client: Redis) -> int:
    return sum(one.nudges for one in lag(client, range(PARTITIONS)).values())


def test_what_is_done_is_gone(client: Redis, ear: Callable[[str], Ear]) -> None:
    nudge(client, *RUNS)
    one = ear("one")
    assert one.hear(len(RUNS)) == sorted(RUNS)
    assert waiting(client) == len(RUNS)
    one.finish(*RUNS[:60])
    found = lag(client, range(PARTITIONS))
    assert sum(partition.nudges for partition in found.values()) == 4
    assert all(0 <= partition.oldest < 60 for partition in found.values())
    one.finish(*RUNS)
    assert waiting(client) == 0
    assert all(partition.oldest == 0 for partition in lag(client, range(PARTITIONS)).values())


def test_news_that_come_while_a_run_is_folded_are_not_done_with_it(client: Redis, ear: Callable[[str], Ear]) -> None:
    one = ear("one")
    nudge(client, "run")
    one.hear(1)
    began = time.monotonic()
    nudge(client, "run")
    one.hear(1)
    one.nudges.caught_up("run", began)
    assert waiting(client) == 1
    one.finish("run")
    assert waiting(client) == 0


def test_many_nudges_of_one_run_are_two_at_most(client: Redis, ear: Callable[[str], Ear]) -> None:
    """The oldest tells how late it is, the newest that there is something to do; the others say nothing more."""
    nudge(client, *["run"] * 500)
    one = ear("one")
    one.hear(1)
    until(lambda: waiting(client) == 2)
    one.finish("run")
    assert waiting(client) == 0


def test_workers_share_and_each_hears_its_own(client: Redis, ear: Callable[[str], Ear]) -> None:
    ears = [ear(name) for name in ("one", "two", "three")]
    until(lambda: sorted(len(each.nudges.partitions) for each in ears) == [5, 5, 6])
    assert sorted(alive(client)) == ["one", "three", "two"]
    nudge(client, *RUNS)
    for each in ears:
        mine = [run for run in RUNS if owners(["one", "two", "three"])[partition_of(run)] == each.name]
        assert all(each.nudges.serves(run) for run in mine)
        assert each.hear(len(mine)) == sorted(mine)
        each.finish(*mine)
    assert waiting(client) == 0


def test_who_leaves_hands_over_at_once(client: Redis, ear: Callable[[str], Ear]) -> None:
    """Long before it would count as dead; and nothing of it stays behind."""
    one, two = ear("one"), ear("two")
    until(lambda: len(one.nudges.partitions) == len(two.nudges.partitions) == PARTITIONS // 2)
    nudge(client, *RUNS)
    mine = [run for run in RUNS if one.nudges.serves(run)]
    one.finish(*one.hear(len(mine)))
    one.nudges.stop()
    one.nudges.leave()
    assert alive(client) == ["two"]
    until(lambda: len(two.nudges.partitions) == PARTITIONS)
    nudge(client, *mine)
    assert two.hear(len(RUNS)) == sorted(RUNS)
    names = {each["name"] for number in range(PARTITIONS) for each in client.xinfo_consumers(stream(number), GROUP)}
    assert names == {b"two"}


@pytest.mark.usefixtures("_quick")
def test_what_a_dead_worker_had_heard_is_claimed(client: Redis, ear: Callable[[str], Ear]) -> None:
    one = ear("one")
    nudge(client, *RUNS)
    one.hear(len(RUNS))
    one.finish(*RUNS[:10])
    one.die()
    two = ear("two")
    assert two.hear(len(RUNS) - 10) == sorted(RUNS[10:])
    assert two.counts.claims._value.get() == len(RUNS) - 10
    two.finish(*RUNS)
    assert waiting(client) == 0
    assert alive(client) == ["two"]


@pytest.mark.usefixtures("_quick")
def test_a_run_that_takes_long_is_not_claimed_from_oneself(client: Redis, ear: Callable[[str], Ear]) -> None:
    one = ear("one")
    nudge(client, "slow")
    one.hear(1)
    turns = client.info("commandstats")["cmdstat_xautoclaim"]["calls"]
    until(lambda: client.info("commandstats")["cmdstat_xautoclaim"]["calls"] > turns + 5 * PARTITIONS)
    assert one.heard.empty()
    assert one.counts.claims._value.get() == 0
    one.finish("slow")
    assert waiting(client) == 0


def test_more_workers_than_partitions(client: Redis, ear: Callable[[str], Ear]) -> None:
    ears = [ear(f"worker-{number}") for number in range(PARTITIONS + 2)]
    until(lambda: sum(len(each.nudges.partitions) for each in ears) == PARTITIONS == len(ears) - 2)
    nudge(client, *RUNS)
    until(lambda: sum(each.heard.qsize() for each in ears) == len(RUNS))


def test_rubbish_is_taken_out(client: Redis, ear: Callable[[str], Ear]) -> None:
    for fields in ({"run": "a/b"}, {"ran": "a"}, {"run": b"\xff\xfe"}, {"run": "x" * 10_000}, {"run": ""}):
        client.xadd(stream(3), fields)
    one = ear("one")
    nudge(client, "run")
    assert one.hear(1) == ["run"]
    until(lambda: waiting(client) == 1)


def test_a_lost_group_is_made_again(client: Redis, ear: Callable[[str], Ear]) -> None:
    one = ear("one")
    nudge(client, *RUNS)
    one.hear(len(RUNS))
    client.flushall()
    nudge(client, "new")  # before anybody has noticed
    assert one.hear(1) == ["new"]
    assert alive(client) == ["one"]
    one.finish(*RUNS, "new")
    assert waiting(client) == 0


def test_redis_goes_and_comes(make_redis: Any) -> None:
    server = make_redis()
    one = Ear(server.url, "one")
    with closing(one.nudges._client), Redis.from_url(server.url) as client:
        nudge(client, "before")
        one.hear(1)
        server.kill()
        one.finish("before")  # can't be said, and does no harm
        until(lambda: one.nudges._grouped is False)
        server.start()
        nudge(client, "after")
        assert one.hear(1) == ["after"]
        until(lambda: one.counts.reconnects._value.get() > 0)
        one.finish("after")
        assert waiting(client) == 0
        one.nudges.stop()
        server.kill()
        one.nudges.leave()  # nor does this


def test_stopping_before_starting(client: Redis) -> None:
    Nudges(client, "one", nothing, Exposition(None)).stop()  # type: ignore[arg-type]
