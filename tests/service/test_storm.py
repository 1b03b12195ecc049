"""Too much at once: hundreds of runs collapse in the same minute, and people get what they can read."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.receiver_files import write_receivers
from tests.service.delivering import Recorder, Stage, resolved

from tocsin_detectors.alerts import Severity, Transition
from tocsin_service import wiring
from tocsin_service.app import Service
from tocsin_service.delivery.policy import Policy
from tocsin_service.exposition import Exposition
from tocsin_service.judging import membership
from tocsin_service.settings import Settings
from tocsin_service.store.sqlite import SqliteStore

RUNS = 500
HEALTHY, BROKEN = 20, 3  # steps
CALLERS = 8


def until(condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


def steps(first: int, count: int, *, broken: bool) -> list[dict[str, Any]]:
    chance = random.Random(first)  # noqa: S311 - a test's
    return [
        {
            "step": step,
            "time": 1.7e9 + step,
            "metrics": {
                "actor/kl_loss": 0.01 * chance.uniform(0.9, 1.1) * (30 if broken else 1),
                "critic/rewards/mean": 0.5 * chance.uniform(0.95, 1.05) - (0.4 if broken else 0),
            },
        }
        for step in range(first, first + count)
    ]


def post_all(api: Any, names: Sequence[str], body: list[dict[str, Any]]) -> None:
    """Every run sends these steps, several at a time."""
    with ThreadPoolExecutor(CALLERS) as callers:
        answers = callers.map(lambda run: api.post(body, run=run).status, names)
        assert set(answers) == {202}


def drained(hook: Any) -> Iterator[dict[str, Any]]:
    while not hook.posts.empty():
        yield hook.posts.get_nowait()


def test_500_runs_collapse_in_the_same_minute(make_api: Any, hook: Any, tmp_path: Path) -> None:
    """Everything is real but the pace, which is 15 times as fast as usual, so that the test needn't wait."""
    (tmp_path / "hook").write_text(hook.address)
    pace = {"burst": 6, "seconds": 2.0}
    receivers = write_receivers(
        tmp_path,
        {"name": "chat", "slack": {"webhook_file": "hook"}, "pace": pace},
        {"name": "program", "webhook": {"address_file": "hook"}, "pace": pace},
    )
    begun = time.monotonic()
    api = make_api(receivers=receivers, stop_seconds=30.0)
    store = api.service._wired.store
    names = [f"run-{number}" for number in range(RUNS)]
    post_all(api, names, steps(0, HEALTHY, broken=False))
    api.settle()
    assert store.incidents(None, None, None, RUNS) == []
    post_all(api, names, steps(HEALTHY, BROKEN, broken=True))
    api.settle()
    until(lambda: store.pending_notifications() == 0)
    most = pace["burst"] + (time.monotonic() - begun) / pace["seconds"]

    # Nothing is lost in the API.
    incidents = {one.id: one for one in store.incidents(None, None, None, 10 * RUNS)}
    assert {one.run for one in incidents.values()} == set(names)
    assert {one.rule for one in incidents.values()} == {"model_collapse"}
    (shown,) = api.get("/v1/runs/run-7/incidents").json["incidents"]
    assert (shown["rule"], shown["severity"]) == ("model_collapse", "critical")

    # A readable number of messages, and every incident is in one of them.
    chat: list[dict[str, Any]] = []
    program: list[dict[str, Any]] = []
    for message in drained(hook):
        (chat if "blocks" in message else program).append(message)
    assert len(chat) <= most
    assert len(program) <= most
    told = [one for message in program for one in message.get("incidents", [message])]
    assert {one["incident"]["id"] for one in told} == set(incidents)
    assert sum(map(incidents_of, chat)) >= RUNS  # more only if an answer took so long that it was told again
    assert store.next_due("chat") is None
    assert store.next_due("program") is None


def incidents_of(message: dict[str, Any]) -> int:
    """How many incidents a message in the chat is about."""
    summary = re.search(r"(\d+) incidents of \d+ runs", message["text"])
    return int(summary[1]) if summary else 1


def test_how_many_messages_a_storm_is_by_default(tmp_path: Path) -> None:
    """A hundred incidents open in one minute, get worse in the next and are over in the third."""
    store = SqliteStore(tmp_path / "tocsin.db")
    stage, receiver = Stage(store, Exposition(store), receivers=("recorder",)), Recorder()
    delivery = stage.deliver(receiver, policy=Policy())
    for transition, changes in (
        (Transition.FIRED, {}),
        (Transition.ESCALATED, {"severity": Severity.CRITICAL}),
        (Transition.RESOLVED, resolved(severity=Severity.CRITICAL)),
    ):
        for number in range(100):
            stage.say(transition, id=f"i{number}", **changes)
            stage.now += 0.6
            if number % 5 == 0:
                delivery._send_due()
    stage.now += 30
    delivery._send_due()
    assert store.next_due("recorder") is None
    assert 6 + 180 / 30 <= len(receiver.calls) <= 6 + 210 / 30  # and not 300
    last = {news.incident.id: str(news.incident.state) for call in receiver.calls for news in call}
    assert len(last) == 100
    assert set(last.values()) == {"resolved"}
    store.close()


def test_several_workers_keep_one_pace(
    redis_server: Any, hook: Any, tmp_path: Path, shared_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "DEAD_SECONDS", 600.0)  # nobody is taken for dead on a slow machine
    (tmp_path / "hook").write_text(hook.address)
    receivers = write_receivers(
        tmp_path,
        {"name": "program", "webhook": {"address_file": "hook"}, "pace": {"burst": 3, "seconds": 86_400}},
    )
    with ExitStack() as stack:

        def start(wire: wiring.Wire, **settings: Any) -> Any:
            service = Service(Settings(port=0, store=redis_server.url, stop_seconds=5.0, **settings), wire=wire)
            return type(shared_api)(stack.enter_context(service).address, service)

        web, *workers = [start(wiring.serve), *(start(wiring.work, receivers=receivers) for _ in range(2))]
        feeds = [worker.service._wired.judging._nudges for worker in workers]
        until(lambda: all(len(feed.partitions) == 8 for feed in feeds))
        store = web.service._wired.store
        broken = [{"step": step, "metrics": {"actor/pg_loss": float("nan")}} for step in range(2)]
        for number in range(3):
            web.post(broken, run=f"first-{number}")
            assert hook.next()["run"] == f"first-{number}"
        for number in range(16):
            web.post(broken, run=f"later-{number}")
        web.settle()
        until(lambda: store.pending_notifications() == 16)
        # Who doesn't serve the receiver ends first: at the end of the other nobody is left to begin a pace of his own.
        for worker, _ in sorted(zip(workers, feeds, strict=True), key=lambda one: one[1].serves("program")):
            worker.service.stop()
        assert store.pending_notifications() == 16
        assert hook.posts.empty()
