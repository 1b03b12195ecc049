"""The keys of the Redis store: their names, what they take, and that they go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from tests.conftest import RedisServer
from tests.service.stores import ACKNOWLEDGEMENT, NOW, TOLD, add, change, events, positions, record, taken

from tocsin_detectors.alerts import State, Transition
from tocsin_detectors.entries import RunConfig
from tocsin_service.store import Record, Retention, Settlement
from tocsin_service.store.redis import Address, RedisStore, keys
from tocsin_service.store.redis.partitions import partition_of


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RedisStore]:
    store = RedisStore(Address(redis_server.socket_url))
    yield store
    store.close()


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.socket_url) as client:
        yield client


def test_what_a_run_takes_is_bounded(store: RedisStore, raw: redis.Redis) -> None:
    for part in range(4):
        before = positions(store)[-1]
        add(store, *(record(part * 1000 + step) for step in range(1000)))
        assert store.commit("r", change(before, positions(store)[-1], state={}))
        store.trim(Retention(entries=200), NOW)
        sizes = {key: raw.memory_usage(key, samples=0) for key in raw.keys("*{r}*")}
        total = sum(sizes.values())
        if part == 0:
            first = total
    assert total < 2 * first
    assert raw.zcard("tocsin:{r}:marks") < 8


def test_nothing_is_left_of_a_run_that_goes(store: RedisStore, raw: redis.Redis) -> None:
    add(store, Record(RunConfig("grpo")), *(record(step) for step in range(100)))
    found = events() + events(Transition.RESOLVED, id="i2", state=State.RESOLVED)
    assert store.commit("r", change(0, positions(store)[-1], found, state={}))
    store.settle(Settlement(taken(store), TOLD))
    store.settle(Settlement(taken(store), retry_at=NOW + 60))  # one is told, the other put off
    assert store.acknowledge(ACKNOWLEDGEMENT)
    assert store.trim(Retention(entries=50, days=1), NOW).entries > 0
    assert store.trim(Retention(days=1), NOW * 2).runs == 1
    left = {key.decode() for key in raw.keys("*")}
    assert left == {"tocsin:counts", "tocsin:receivers", f"tocsin:nudges:{partition_of('r')}"}


class TestKeys:
    @pytest.mark.parametrize("position", [1, 2**20, 2**20 - 1, 1_796_000_000_000 << 20, (2**42 - 1) << 20 | 2**20 - 1])
    def test_positions_and_ids(self, position: int) -> None:
        assert keys.position(keys.entry_id(position)) == position
        assert keys.is_position(keys.entry_id(position))
        assert position < 2**63

    def test_ids_that_are_no_positions(self) -> None:
        assert not keys.is_position(f"{2**42}-0")
        assert not keys.is_position(f"0-{2**20}")

    @pytest.mark.parametrize("run", ["r", "a}:log", "{a}", "tocsin:{a", "ü"])
    def test_the_run_of_a_log(self, run: str) -> None:
        assert keys.run_of(keys.log(run)) == run
