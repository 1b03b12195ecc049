"""The API and workers on one Redis: who does what, and what happens while Redis is away or has lost everything."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from tests.receiver_files import unpaced

from tocsin_detectors.entries import StepVector
from tocsin_service import wiring
from tocsin_service.app import Service, StartError
from tocsin_service.delivery import loop
from tocsin_service.exposition import Exposition
from tocsin_service.judging import membership, nudges
from tocsin_service.judging import worker as worker_module
from tocsin_service.judging.membership import KEY
from tocsin_service.judging.nudges import Nudges
from tocsin_service.judging.worker import BATCH, Worker
from tocsin_service.settings import Settings
from tocsin_service.store import Commit, Outcome, Record
from tocsin_service.store.redis import Address, RedisStore
from tocsin_service.store.redis.partitions import PARTITIONS, partition_of

NAMES = [f"run-{number}" for number in range(1000)]
RUNS = [run for number in range(PARTITIONS) for run in [name for name in NAMES if partition_of(name) == number][:2]]
Start = Callable[..., Any]


def broken(step: int) -> dict[str, Any]:
    return {"step": step, "metrics": {"actor/pg_loss": math.nan}, "time": 1.7e9 + step}


def until(condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


def metric(api: Any, name: str) -> float:
    """The sum of the samples of a metric, NaN without any."""
    lines = [
        line for line in api.get("/metrics").data.decode().splitlines() if line.split("{")[0].split(" ")[0] == name
    ]
    return sum(float(line.rpartition(" ")[2]) for line in lines) if lines else math.nan


@pytest.fixture
def start(shared_api: Any) -> Iterator[Start]:
    """Starts web processes (``wiring.serve``) and workers (``wiring.work``), all of them inside this process."""
    with ExitStack() as stack:

        def begin(url: str, wire: wiring.Wire, **settings: Any) -> Any:
            service = Service(Settings(port=0, store=url, **{"stop_seconds": 5.0, **settings}), wire=wire)
            return type(shared_api)(stack.enter_context(service).address, service)

        yield begin


def test_each_process_has_its_part(start: Start, redis_server: Any) -> None:
    web = start(redis_server.url, wiring.serve)
    assert "no worker is alive: start `tocsin worker`" in web.get("/readyz").json["warning"]
    assert web.post(broken(1)).status == 202  # it is stored all the same
    assert metric(web, "tocsin_nudges_pending") == 1
    worker = start(redis_server.url, wiring.work)
    web.settle()
    assert web.get("/readyz").json == worker.get("/readyz").json == {"status": "ready"}
    assert worker.get("/healthz").status == 200
    assert worker.get("/v1/runs").status == worker.post(broken(2)).status == 404
    assert web.get("/v1/runs/run").json["firing"] == {"critical": 1}
    until(lambda: metric(web, "tocsin_nudges_pending") == 0)
    # What is read from the store has one source, so that Prometheus counts it once; what a process does is its own.
    assert metric(web, "tocsin_alert") == 2
    assert metric(web, "tocsin_run_last_step") == 1
    assert math.isnan(metric(worker, "tocsin_alert"))
    assert math.isnan(metric(worker, "tocsin_run_last_step"))
    assert metric(worker, "tocsin_fold_seconds_count") == metric(worker, "tocsin_detection_events_total") == 1
    assert metric(web, "tocsin_fold_seconds_count") == 0
    assert metric(worker, "tocsin_worker_partitions") == PARTITIONS
    assert metric(web, "tocsin_workers") == metric(worker, "tocsin_workers") == 1
    assert metric(web, "tocsin_store_up") == metric(worker, "tocsin_store_up") == 1


def test_two_workers_share_the_runs_and_tell_of_each_once(
    start: Start, redis_server: Any, hook: Any, tmp_path: Path
) -> None:
    receivers = unpaced(tmp_path, "slack", hook.address)
    workers = [start(redis_server.url, wiring.work, receivers=receivers) for _ in range(2)]
    web = start(redis_server.url, wiring.serve)
    until(lambda: all(metric(worker, "tocsin_worker_partitions") == PARTITIONS // 2 for worker in workers))
    for run in RUNS:
        assert web.post([broken(step) for step in range(3)], run=run).status == 202
    told = [re.findall(r"run-\d+", json.dumps(hook.next()))[0] for _ in RUNS]
    assert sorted(told) == sorted(RUNS)
    web.settle()
    until(lambda: metric(web, "tocsin_outbox_pending") == 0)
    assert hook.posts.empty()
    for worker in workers:
        nudges = worker.service._wired.judging._nudges
        mine = [run for run in RUNS if nudges.serves(run)]
        assert metric(worker, "tocsin_detection_events_total") == len(mine)
        assert len(mine) == len(RUNS) / 2


def test_a_rolling_restart_loses_and_repeats_nothing(start: Start, redis_server: Any, hook: Any) -> None:
    web = start(redis_server.url, wiring.serve)
    worker = start(redis_server.url, wiring.work, slack_webhook=hook.address)
    for step in range(4):
        web.post(broken(step))
        newer = start(redis_server.url, wiring.work, slack_webhook=hook.address)
        worker.service.stop()
        worker = newer
    web.settle()
    store = web.service._wired.store
    assert web.get("/v1/runs/run").json["vectors"] == 4
    assert len(web.get("/v1/runs/run/incidents").json["incidents"]) == 1
    hook.next()
    worker.service.stop()
    assert hook.posts.empty()
    progress = store.load("run")
    assert progress.snapshot.position == progress.position  # so the next one folds nothing again
    with Redis.from_url(redis_server.url) as client:
        assert client.zcard(KEY) == 0


def test_a_message_that_a_worker_does_not_get_out_is_sent_by_another(
    start: Start, redis_server: Any, hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it is killed while it sends: another serves the receiver then, and after its lease the message is due."""
    monkeypatch.setattr(loop, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(membership, "DEAD_SECONDS", 600.0)  # who serves is who says so
    workers = [start(redis_server.url, wiring.work, slack_webhook=hook.address, stop_seconds=0.1) for _ in range(2)]
    web = start(redis_server.url, wiring.serve)
    until(lambda: all(metric(worker, "tocsin_worker_partitions") == PARTITIONS // 2 for worker in workers))
    hook.gate.clear()
    web.post(broken(1))
    first = hook.next()
    (served,) = [worker for worker in workers if worker.service._wired.judging._nudges.serves("slack")]
    served.service.stop()
    assert hook.next() == first
    hook.gate.set()
    until(lambda: metric(web, "tocsin_outbox_pending") == 0)
    assert hook.posts.empty()


def test_redis_goes_and_comes_back(start: Start, make_redis: Any) -> None:
    server = make_redis("--appendonly", "yes", "--appendfsync", "always")
    web, worker = start(server.url, wiring.serve), start(server.url, wiring.work)
    assert web.post(broken(1)).status == 202
    web.settle()
    server.kill()
    answer = web.post(broken(2))
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "nothing of this request was stored" in answer.json["error"]
    for api in (web, worker):
        assert api.get("/healthz").status == 200
        assert api.get("/readyz").status == 503
        assert metric(api, "tocsin_store_up") == 0
    assert math.isnan(metric(web, "tocsin_workers"))
    server.start()
    until(lambda: web.post(broken(2)).status == 202)
    web.settle()
    assert web.get("/v1/runs/run").json["vectors"] == 2
    assert web.get("/readyz").status == 200
    until(lambda: worker.get("/readyz").status == 200)
    until(lambda: metric(worker, "tocsin_redis_reconnects_total") > 0)
    assert metric(web, "tocsin_store_up") == metric(worker, "tocsin_store_up") == 1


@pytest.mark.parametrize("how", ["emptied", "restarted without persistence"])
def test_redis_has_lost_everything(start: Start, make_redis: Any, how: str) -> None:
    server = make_redis()
    web, worker = start(server.url, wiring.serve), start(server.url, wiring.work)
    web.post([broken(step) for step in range(100)])
    web.settle()
    if how == "emptied":
        server.cli("FLUSHALL")
    else:
        server.kill()
        server.start()
    until(lambda: web.post([broken(step) for step in range(3)]).status == 202)
    until(lambda: web.get("/v1/runs/run").json["pending"] == 0)
    run = web.get("/v1/runs/run").json
    assert (run["vectors"], run["firing"]) == (3, {"critical": 1})
    until(lambda: web.get("/readyz").json == {"status": "ready"})
    until(lambda: metric(web, "tocsin_nudges_pending") == 0)
    assert metric(worker, "tocsin_worker_errors_total") < 10


def test_starting_before_redis(start: Start, make_redis: Any) -> None:
    server = make_redis()
    server.kill()
    web, worker = start(server.url, wiring.serve), start(server.url, wiring.work)
    assert web.post(broken(1)).status == web.get("/readyz").status == worker.get("/readyz").status == 503
    server.start()
    until(lambda: web.post(broken(1)).status == 202)
    web.settle()
    assert web.get("/v1/runs/run").json["firing"] == {"critical": 1}


def test_a_run_that_nobody_was_told_of(start: Start, redis_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written into Redis by hand, without a nudge: the sweep finds it."""
    monkeypatch.setattr(worker_module, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(worker_module, "IDLE_SECONDS", 0.1)
    web, _ = start(redis_server.url, wiring.serve), start(redis_server.url, wiring.work)
    with Redis.from_url(redis_server.url) as client:
        for step in range(3):
            text = json.dumps({"step": step, "metrics": {"actor/pg_loss": "NaN"}})
            client.xadd("tocsin:{by-hand}:log", {"vector": text})
    until(lambda: web.get("/v1/runs/by-hand").status == 200)
    web.settle()
    assert web.get("/v1/runs/by-hand").json["firing"] == {"critical": 1}


def test_a_worker_looks_for_such_runs_when_it_gets_them(start: Start, redis_server: Any) -> None:
    """Not only every so often: what another worker had been told of and took along is found at once."""
    web = start(redis_server.url, wiring.serve)
    web.post(broken(1))
    with Redis.from_url(redis_server.url) as client:
        client.delete(*(nudges.stream(partition) for partition in range(PARTITIONS)))
    start(redis_server.url, wiring.work)
    web.settle()
    assert web.get("/v1/runs/run").json["firing"] == {"critical": 1}


def test_rubbish_written_by_hand_is_counted(start: Start, redis_server: Any) -> None:
    web, _ = start(redis_server.url, wiring.serve), start(redis_server.url, wiring.work)
    with Redis.from_url(redis_server.url) as client:
        client.xadd("tocsin:{by-hand}:log", {"vector": "{"})
        client.xadd("tocsin:{by-hand}:log", {"vector": '{"step": 1, "metrics": {}}'})
        client.xadd(nudges.stream(partition_of("by-hand")), {"run": "by-hand"})
    until(lambda: web.get("/v1/runs/by-hand").status == 200)
    web.settle()
    until(lambda: metric(web, "tocsin_dead_letters_total") == 1)


class Witnessed(RedisStore):
    """Remembers the order of its commits."""

    def __init__(self, url: str) -> None:
        super().__init__(Address(url))
        self.commits: list[tuple[str, int]] = []

    def commit_all(self, changes: Sequence[tuple[str, Commit]]) -> list[Outcome]:
        done = super().commit_all(changes)
        self.commits += [(run, change.position) for run, change in changes]
        return done


def test_a_hot_run_holds_nobody_up(redis_server: Any) -> None:
    """It has a backlog of many batches; the others, of its own partition, come after the first of them."""
    store = Witnessed(redis_server.url)
    others = [name for name in NAMES if partition_of(name) == partition_of("hot")][:5]
    hot = [Record(StepVector(step, {"actor/grad_norm": 1.0}, 1.7e9 + step)) for step in range(20 * BATCH)]
    for start in range(0, len(hot), 100):
        store.append("hot", hot[start : start + 100], 1.7e9).result(30)
    for run in others:
        store.append(run, hot[:3], 1.7e9).result(30)
    with Redis.from_url(redis_server.url) as client:
        exposition = Exposition(store, 0)
        feed = Nudges(client, "one", store.news, exposition)
        worker = Worker(store, exposition, feed=feed)
        feed.start(worker.wake)
        until(lambda: worker._news)
        worker.start()
        until(lambda: not store.news())
        feed.stop()
        worker.stop(30)
        feed.leave()
    order = [run for run, _ in store.commits]
    assert order.count("hot") >= 20
    assert max(order.index(run) for run in others) <= len(others)
    store.close()


def test_two_workers_on_one_run_at_once(redis_server: Any) -> None:
    """As when they disagree on who is alive: one of two commits counts, and the alerts are those of one fold."""
    store = Witnessed(redis_server.url)
    workers = [Worker(store, Exposition(store, 0), ("slack",)) for _ in range(2)]
    for worker in workers:
        worker.start()
    values = [math.nan if step % 50 > 40 else 0.5 for step in range(300)]
    for step, value in enumerate(values):
        store.append("run", [Record(StepVector(step, {"actor/pg_loss": value}, 1.7e9 + step))], 1.7e9).result(30)
        for worker in workers:
            worker.wake("run")
    for worker in workers:
        assert worker.wait_idle(30)
        worker.stop(30)
    alerts = store.alerts("run", None, None, 1000)
    assert len(alerts) == len({alert.id for alert in alerts}) == 6
    assert store.pending_notifications() == 6
    assert not store.news()
    store.close()


def test_a_worker_needs_a_shared_store(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="give --store redis://"):
        Service(Settings(port=0, db=tmp_path / "t.db"), wire=wiring.work).start()


def test_a_process_whose_worker_has_ended_leaves_its_runs_to_others(redis_server: Any) -> None:
    store, working = RedisStore(Address(redis_server.url)), threading.Event()
    working.set()
    with Redis.from_url(redis_server.url) as client:
        feed = Nudges(client, "one", store.news, Exposition(store, 0))
        feed.start(lambda _: None, working.is_set)
        until(lambda: client.zcard(KEY) == 1)
        working.clear()
        until(lambda: not feed.alive())
    store.close()
