"""The promise of the fold over Redis: workers share the runs, are killed and replaced, and the alerts are the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.judged import check_same

from tocsin_service.store.redis.partitions import PARTITIONS, partition_of


def until(condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it never came true")


def samples(process: Any, name: str) -> dict[str, float]:
    """The samples of a metric, by their labels as /metrics writes them."""
    lines = [line.rpartition(" ") for line in process.api.get("/metrics").data.decode().splitlines()]
    return {key.removeprefix(name): float(value) for key, _, value in lines if key.partition("{")[0] == name}


def partitions(worker: Any) -> set[int]:
    return {int(label.split('"')[1]) for label in samples(worker, "tocsin_nudges_pending")}


def test_two_workers_killed_in_between(start_process: Any, redis_server: Any, recorded: Any) -> None:
    """Every recorded run at once; one worker is killed with -9, one ends gracefully, others come: nothing shows."""
    store = ("--store", redis_server.url)
    web, first, second = (start_process(command, *store) for command in ("serve", "worker", "worker"))
    until(lambda: len(partitions(first)) == len(partitions(second)) == PARTITIONS // 2)
    assert partitions(first) | partitions(second) == set(range(PARTITIONS))
    for recording in recorded:
        assert web.api.call("PUT", f"/v1/runs/{recording.name}", recording.told).status == 200

    rows = {recording.name: recording.bodies for recording in recorded}

    def post(start: int, end: int) -> None:
        """Rows ``start`` to ``end`` of every run, in turn, eight at a time."""
        for row in range(start, min(end, max(map(len, rows.values()))), 8):
            for run, bodies in rows.items():
                some = bodies[row : min(row + 8, end)]
                assert not some or web.api.post(some, run=run).status == 202

    post(0, 60)
    shares = partitions(first), partitions(second)
    first.kill()
    third = start_process("worker", *store)
    post(60, 120)
    assert second.end() == 0
    post(120, 10_000)

    def judged() -> bool:
        return all(run["pending"] == 0 for run in web.api.get("/v1/runs").json["runs"])

    until(judged)
    for recording in recorded:
        check_same(web.api, recording)
    until(lambda: sum(samples(web, "tocsin_nudges_pending").values()) == 0)
    assert samples(web, "tocsin_workers") == {"": 1.0}
    assert partitions(third) == set(range(PARTITIONS))
    busy = {partition_of(recording.name) for recording in recorded}
    assert all(busy & share for share in shares)  # both had something to do
    assert samples(third, "tocsin_worker_errors_total") == {"": 0.0}
