"""What only the Redis store does: it takes what others write into its streams, and shares them with other processes."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import redis
from tests.conftest import RedisServer
from tests.service.stores import NOW, add, change, events, positions, record, summary

from tocsin_detectors.alerts import Severity, State, Transition
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.api.vectors import decode
from tocsin_service.store import Appended, Progress, Record, Retention, Settlement, Store, StoreUnavailable, Told
from tocsin_service.store.redis import Address, RedisStore, keys, overlooked
from tocsin_service.store.redis.partitions import partition_of

MakeStore: TypeAlias = Callable[..., RedisStore]


@pytest.fixture
def make_store(redis_server: RedisServer) -> Iterator[MakeStore]:
    with ExitStack() as stack:

        def make(**settings: Any) -> RedisStore:
            store = RedisStore(Address(redis_server.socket_url), **settings)
            stack.callback(store.close)
            return store

        yield make


@pytest.fixture
def store(make_store: MakeStore) -> RedisStore:
    return make_store()


@pytest.fixture
def raw(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.socket_url) as client:
        yield client


def send(raw: redis.Redis, vector: Any, run: str = "r", id: str = "*") -> str:  # noqa: A002 - as Redis calls it
    """What a trainer does who has nothing but a Redis client."""
    data = vector if isinstance(vector, (bytes, str)) else json.dumps(vector)
    entry: Any = raw.xadd(f"tocsin:{{{run}}}:log", {"vector": data}, id=id)
    return str(entry.decode())


def read(store: Store, run: str = "r") -> list[Any]:
    return [one.entry for one in store.read(run, 0, 10_000)]


def dead(raw: redis.Redis) -> list[tuple[str, str]]:
    """Run and reason of the dead letters."""
    found: Any = raw.xrange("tocsin:dead")
    return [(fields[b"run"].decode(), fields[b"reason"].decode()) for _, fields in found]


class TestByHand:
    def test_a_vector(self, store: RedisStore, raw: redis.Redis) -> None:
        entry = send(raw, '{"step": 3, "metrics": {"loss": NaN, "kl": "np.float64(0.5)"}, "attempt": 1}')
        (stored,) = store.read("r", 0, 10)
        assert isinstance(stored.entry, StepVector)
        assert math.isnan(stored.entry.metrics["loss"])
        assert replace(stored.entry, metrics={}) == StepVector(3, {}, int(entry.split("-")[0]) / 1000, 1)
        assert stored.entry.metrics["kl"] == 0.5
        found = summary(store)
        assert (found.vectors, found.step, found.pending) == (1, 3, 1)
        assert found.last_seen == found.created == stored.entry.time
        assert store.recent_times("r", 5) == [(3, stored.entry.time)]

    def test_read_twice_counts_once(self, store: RedisStore, raw: redis.Redis) -> None:
        for step in range(5):
            send(raw, {"step": step, "metrics": {"loss": 1}})
        assert store.read("r", 0, 3) == store.read("r", 0, 3)
        assert read(store) == read(store)
        assert summary(store).vectors == 5

    def test_several_readers_at_once_count_once(self, make_store: MakeStore, raw: redis.Redis) -> None:
        stores = [make_store() for _ in range(4)]
        for step in range(200):
            send(raw, {"step": step, "metrics": {"loss": 1}, "sequence": str(step % 150)} if step % 7 else "garbage")
        found: list[list[Any]] = []
        threads = [threading.Thread(target=lambda one=one: found.append(read(one))) for one in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found[0] == found[1] == found[2] == found[3] == read(stores[0])
        garbage = sum(step % 7 == 0 for step in range(200))
        assert stores[0].dead_letters() == len(dead(raw)) == garbage
        assert len(found[0]) == summary(stores[0]).vectors

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"vector": "garbage"}, "not valid JSON"),
            ({"vector": b"\xff\xfe"}, "not UTF-8"),
            ({"vector": '{"step": 1, "metrics": {"a": "\xc3"}}'.encode("latin-1")}, "not UTF-8"),
            ({"vector": "[" * 9_000}, "nested"),
            ({"vector": "{}"}, "step is missing"),
            ({"vector": '{"step": 1, "step": 2, "metrics": {}}'}, "stands twice"),
            ({"vector": '{"step": -1, "metrics": {"loss": "bad"}}'}, "metrics['loss'] is 'bad'"),
            ({"vector": '{"step": 1, "metrics": {}, "tpyo": 1}'}, "is no field"),
            ({"vector": '{"step": 1, "metrics": {"a": 1, "b": 1, "c": 1}}'}, "at most 2"),
            ({"vector": '{"step": 1, "metrics": {"' + "a" * 20_000 + '": 1}}'}, "more than 10000 bytes"),
            ({"vector": '{"step": 1, "metrics": {}}', "extra": "1"}, "'extra', 'vector'; send one field"),
            ({"loss": "1"}, "'loss'; send one field"),
            ({"config": "[]"}, "send a JSON object"),
            ({"config": '{"algorithm": 7}'}, "algorithm is 7"),
            ({"config": '{"tpyo": 7}'}, "'tpyo' is unknown"),
            ({"config": "{}", "vector": "{}"}, "send one field"),
            ({b"\xff": b"\xff"}, "send one field"),
            ({"entry": "{}", "key": "k"}, "the service's own"),
            ({"entry": '{"kind":"config","algorithm":"grpo"}', "key": "#1"}, "the service's own"),
            ({"entry": '{"kind":"vector","step":1,"metrics":{}}', "key": "k1"}, "the service's own"),
            ({"entry": '{"kind":"config"}'}, "'entry'; send one field"),
        ],
    )
    def test_what_is_malformed_goes_to_the_dead_letters(
        self, make_store: MakeStore, raw: redis.Redis, fields: dict[Any, Any], reason: str
    ) -> None:
        store = make_store(max_metrics=2, max_bytes=10_000)
        add(store, record(1))  # its key is known, and is no other entry's
        bad: Any = raw.xadd("tocsin:{r}:log", fields)
        send(raw, {"step": 2, "metrics": {"loss": 1}})
        for _ in range(2):
            assert [entry.step for entry in read(store)] == [1, 2]
        (letter,) = raw.xrange("tocsin:dead")
        assert letter[1][b"id"] == bad
        assert letter[1][b"run"] == b"r"
        assert reason in letter[1][b"reason"].decode()
        assert len(letter[1][b"entry"]) <= 1000
        assert letter[1][b"entry"][:20] in b" ".join(
            part if isinstance(part, bytes) else part.encode() for pair in fields.items() for part in pair
        )
        assert store.dead_letters() == 1
        assert summary(store).vectors == 2
        assert store.commit("r", change(0, positions(store)[-1]))
        assert (store.news(), summary(store).pending) == ([], 0)

    def test_many_bad_ones_block_nothing(self, store: RedisStore, raw: redis.Redis) -> None:
        for step in range(500):
            send(raw, "garbage")
            if step % 100 == 0:
                send(raw, {"step": step, "metrics": {"loss": 1}})
        assert [one.entry.step for one in store.read("r", 0, 4)] == [0, 100, 200, 300]
        assert [entry.step for entry in read(store)] == [0, 100, 200, 300, 400]

    def test_nothing_but_bad_ones_is_no_run(self, store: RedisStore, raw: redis.Redis) -> None:
        send(raw, "garbage")
        assert store.news() == ["r"]
        assert read(store) == []
        assert store.news() == []
        assert [name for name in raw.keys("*{r}*") if raw.type(name) != b"hash"] == []

    def test_a_sequence_is_taken_once(self, store: RedisStore, raw: redis.Redis) -> None:
        for sequence, step in [("a", 1), ("b", 2), ("a", 1), ("b", 3), (None, 4), (None, 4)]:
            send(raw, {"step": step, "metrics": {"loss": step}, "sequence": sequence})
        # The same sequence with another step is another vector, as it is for the API.
        assert [entry.step for entry in read(store)] == [1, 2, 3, 4, 4]
        assert summary(store).vectors == 5
        send(raw, {"step": 1, "metrics": {"loss": 1}, "sequence": "a"})
        assert [entry.step for entry in read(store)] == [1, 2, 3, 4, 4]

    def test_a_sequence_is_the_same_over_http(self, store: RedisStore, raw: redis.Redis) -> None:
        body = json.dumps({"step": 1, "metrics": {"loss": 1}, "sequence": "a", "time": NOW})
        records = decode(body.encode(), "", NOW, max_metrics=9, max_batch=9)
        assert add(store, *records) == Appended(1, 0)
        send(raw, body)
        assert read(store) == [StepVector(1, {"loss": 1.0}, NOW)]

    def test_in_between_those_of_the_service(self, store: RedisStore, raw: redis.Redis) -> None:
        add(store, record(1))
        send(raw, {"step": 2, "metrics": {"loss": 1}, "sequence": "2"})
        read(store)
        send(raw, "garbage")
        add(store, record(3))
        send(raw, {"step": 4, "metrics": {"loss": 1}, "sequence": "4"})
        send(raw, {"step": 2, "metrics": {"loss": 1}, "sequence": "2"})
        raw.xadd("tocsin:{r}:log", {"entry": '{"kind":"rebaseline","metric":null,"note":""}', "key": "forged"})
        add(store, record(5))
        # Whoever begins in the middle sees the same, and judges nothing.
        late = store.read("r", store.seek("r", None, 4), 10)
        assert [one.entry.step for one in late] == [4, 5]
        assert store.dead_letters() == 0
        assert [entry.step for entry in read(store)] == [1, 2, 3, 4, 5]
        assert store.dead_letters() == 2
        assert (summary(store).step, summary(store).vectors) == (5, 5)

    def test_a_step_that_nobody_has_read_yet_is_found(self, store: RedisStore, raw: redis.Redis) -> None:
        add(store, record(1))
        send(raw, {"step": 1000, "metrics": {"loss": 1}})
        add(store, *(record(step) for step in range(2, 200)))
        (first, *_) = store.read("r", store.seek("r", 500, 0), 1)
        assert first.entry.step == 1000
        read(store)
        assert store.read("r", store.seek("r", 500, 0), 1) == [first]

    def test_a_configuration(self, store: RedisStore, raw: redis.Redis) -> None:
        for told in (
            '{"algorithm": "GRPO", "labels": {"team": "a"}}',
            '{"algorithm": "grpo"}',
            '{"labels": {"b": ""}}',
        ):
            raw.xadd(keys.log("r"), {"config": told})
        add(store, Record(RunConfig(temperature=1.0)))
        assert read(store) == [
            RunConfig("grpo", labels={"team": "a"}),
            RunConfig(labels={"b": ""}),
            RunConfig(temperature=1.0),
        ]
        assert summary(store).config == RunConfig("grpo", temperature=1.0, labels={"team": "a", "b": ""})
        assert store.dead_letters() == 0
        assert read(store) == read(store)

    def test_it_takes_back_that_a_run_has_finished(self, store: RedisStore, raw: redis.Redis) -> None:
        add(store, Record(RunConfig("grpo", finished=True)))
        send(raw, {"step": 2, "metrics": {"loss": 1}})
        read(store)
        assert summary(store).config == RunConfig("grpo")

    def test_bound_of_runs(self, make_store: MakeStore, raw: redis.Redis) -> None:
        store = make_store(max_runs=1)
        add(store, record(1))
        send(raw, {"step": 2, "metrics": {"loss": 1}}, run="s")
        assert read(store, "s") == []
        assert store.run("s") is None
        assert dead(raw) == [("s", "there are 1 runs already; raise max_runs")]
        assert store.news() == ["r"]

    @pytest.mark.parametrize("entry", ["99999999999999-0", "5-9999999", "18446744073709551614-1"])
    def test_an_id_made_by_hand_that_is_too_large(self, store: RedisStore, raw: redis.Redis, entry: str) -> None:
        send(raw, {"step": 1, "metrics": {"loss": 1}}, id=entry)
        assert read(store) == []
        assert "let Redis choose" in dead(raw)[0][1]

    def test_admitted_is_admitted(self, make_store: MakeStore, raw: redis.Redis) -> None:
        send(raw, {"step": 1, "metrics": {"a": 1, "b": 2}})
        assert len(read(make_store(max_metrics=2))) == 1
        assert len(read(make_store(max_metrics=1))) == 1  # another fold has to see what the first has seen

    def test_retention(self, store: RedisStore, raw: redis.Redis) -> None:
        for step in range(10):
            send(raw, {"step": step, "metrics": {"loss": 1}, "sequence": str(step)})
        assert store.commit("r", change(0, positions(store)[-1], state={}))
        store.trim(Retention(entries=3), NOW)
        assert [getattr(entry, "step", None) for entry in read(store)] == [None, 7, 8, 9]
        assert raw.hlen("tocsin:{r}:keys") == 3
        send(raw, {"step": 9, "metrics": {"loss": 1}, "sequence": "9"})
        send(raw, {"step": 1, "metrics": {"loss": 1}, "sequence": "1"})
        assert [getattr(entry, "step", None) for entry in read(store)] == [None, 7, 8, 9, 1]
        assert summary(store).pending == 1


class TestNews:
    def test_every_append_nudges_a_worker(self, store: RedisStore, raw: redis.Redis) -> None:
        for run in ("r", "s", "ü"):
            add(store, record(1), run=run)
            add(store, record(1), run=run)  # nothing new
            nudges: Any = raw.xrange(f"tocsin:nudges:{partition_of(run)}")
            assert sum(fields == {b"run": run.encode()} for _, fields in nudges) == 1

    def test_runs_that_nobody_told_of(self, store: RedisStore, raw: redis.Redis) -> None:
        for run in ("known", "b", "ü"):
            send(raw, {"step": 1, "metrics": {"loss": 1}}, run=run)
        add(store, record(1), run="known")
        assert sorted(store.news()) == ["b", "known", "ü"]
        assert store.news(lambda run: run > "x") == ["ü"]
        for run in ("known", "b", "ü"):
            assert store.commit(run, change(0, positions(store, run)[-1]))
        assert store.news() == []
        send(raw, {"step": 2, "metrics": {"loss": 1}}, run="b")
        assert store.news() == ["b"]

    @pytest.mark.parametrize("run", ["a/b", "..", "a\nb", "", "x" * 129, "\udcff"])
    def test_no_run_of_ours(self, store: RedisStore, raw: redis.Redis, run: str) -> None:
        raw.xadd(f"tocsin:{{{run}}}:log".encode(errors="surrogateescape"), {"vector": '{"step": 1, "metrics": {}}'})
        assert store.news() == []

    def test_found_bit_by_bit_among_other_keys(
        self, store: RedisStore, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(overlooked, "SCANNED", 10)
        raw.mset({f"other:{number}": 1 for number in range(2000)})
        send(raw, {"step": 1, "metrics": {"loss": 1}})
        looks = [store.news() for _ in range(20)]
        assert ["r"] in looks
        assert [] in looks


class TestSharing:
    def test_two_workers_at_one_run(self, make_store: MakeStore) -> None:
        first, second = make_store(), make_store()
        add(first, record(1), record(2))
        at = positions(second)
        outcomes = [one.commit("r", change(0, at[2], events())) for one in (first, second)]
        assert outcomes == [True, False]

    def test_configurations_by_several_processes_merge(self, make_store: MakeStore) -> None:
        stores = [make_store() for _ in range(4)]
        futures = [
            stores[number % 4].append("r", [Record(RunConfig(labels={f"l{number}": "x"}))], NOW) for number in range(40)
        ]
        assert sum(future.result(30).accepted for future in futures) == 40
        assert len(summary(stores[0]).config.labels) == 40

    def test_one_bound_of_runs(self, make_store: MakeStore) -> None:
        stores = [make_store(max_runs=10) for _ in range(4)]
        futures = [stores[number % 4].append(f"r{number}", [record(1)], NOW) for number in range(40)]
        assert sum(future.exception(30) is None for future in futures) == stores[0].count_runs() == 10

    def test_claims_of_several_senders(self, make_store: MakeStore) -> None:
        stores = [make_store() for _ in range(4)]
        add(stores[0], record(1))
        found = [event for number in range(20) for event in events(id=f"i{number}")]
        assert stores[0].commit("r", change(0, positions(stores[0])[-1], found))
        claimed: list[str] = []

        def claim(store: RedisStore) -> None:
            while (one := store.claim("slack", NOW, 60)) is not None:
                claimed.append(one.incident_id)

        threads = [threading.Thread(target=claim, args=(one,)) for one in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(claimed) == sorted(f"i{number}" for number in range(20))

    def test_a_sender_that_comes_back_after_its_lease_spoils_nothing(self, make_store: MakeStore) -> None:
        store = make_store()
        add(store, record(1), record(2))
        at = positions(store)
        store.commit("r", change(0, at[1], events()))
        slow = store.claim("slack", NOW, 60)
        store.commit("r", change(at[1], at[2], events(Transition.ESCALATED, severity=Severity.CRITICAL)))
        quick = store.claim("slack", NOW + 60, 60)
        assert slow is not None
        assert quick is not None
        told = Told("non_finite", Severity.CRITICAL, State.FIRING, NOW)
        store.settle(Settlement(quick, told=told))
        store.settle(Settlement(slow, told=replace(told, severity=Severity.WARNING)))
        store.settle(Settlement(slow, retry_at=NOW + 90))
        assert store.pending_notifications() == 0
        add(store, record(3))
        worse = events(Transition.GREW, severity=Severity.CRITICAL)
        store.commit("r", change(at[2], positions(store)[-1], worse))
        late = store.claim("slack", NOW + 99, 60)
        assert late is not None
        assert late.told == told


class TestForgetfulRedis:
    def test_scripts_are_sent_again(self, store: RedisStore, raw: redis.Redis) -> None:
        add(store, record(1))
        raw.script_flush()
        futures = [store.append("r", [record(step)], NOW) for step in range(2, 300)]
        assert sum(future.result(30).accepted for future in futures) == 298
        raw.script_flush()
        assert store.commit("r", change(0, positions(store)[-1], events()))
        assert store.claim("slack", NOW, 1) is not None

    def test_an_emptied_redis(self, store: RedisStore, raw: redis.Redis) -> None:
        add(store, record(1))
        last = positions(store)[-1]
        assert store.commit("r", change(0, last, events(), state={}))
        raw.flushall()
        # A worker that goes on from what it has in memory is told that it knows better than the store.
        assert not store.commit("r", change(last, last))
        assert store.load("r") == Progress()
        assert add(store, record(1)) == Appended(1, 0)
        assert not store.commit("r", change(last, positions(store)[-1]))
        assert store.commit("r", change(0, positions(store)[-1]))
        assert store.run("r") is not None

    def test_a_key_of_another_kind(self, store: RedisStore, raw: redis.Redis) -> None:
        raw.set("tocsin:{r}:log", "oops")
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            add(store, record(1))
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            store.read("r", 0, 1)
