"""Everything is killed with -9 at random, and nothing is lost: no vector, no alert, no message, and none comes double.

The long form (``make soak``, or ``TOCSIN_SOAK=1``) is what docs/benchmarks.md reports; the short one is for every day.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx2
import pytest
from tests.conftest import recordings
from tests.faults.fleet import Job, Receiver, Storm, Tocsin, eventually
from tests.judged import by_id
from tests.receiver_files import unpaced

from tocsin_detectors.alerts import AlertEvent, Severity, alert_to_json, incident_to_json
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import RunConfig, StepVector


@dataclass(frozen=True)
class Scale:
    """How much of it.

    Attributes:
        runs: training runs, each of ``vectors`` step vectors.
        senders: processes that send them.
        pause: seconds that a sender waits between two vectors.
        calm: seconds between two kills are drawn from this range.
        patience: seconds after which something has gone wrong.
    """

    runs: int
    vectors: int
    senders: int
    pause: float
    calm: tuple[float, float]
    patience: float


SOAK = bool(os.environ.get("TOCSIN_SOAK"))
SCALE = Scale(200, 300, 6, 0.0, (3.0, 9.0), 1200.0) if SOAK else Scale(18, 90, 3, 0.012, (0.4, 1.5), 100.0)

pytestmark = pytest.mark.timeout(3 * SCALE.patience)


@dataclass(frozen=True)
class Run:
    """A training run made from a recorded one: its rows again and again, its steps counted on."""

    name: str
    config: dict[str, Any]
    vectors: list[StepVector]

    @property
    def told(self) -> dict[str, Any]:
        bodies = [{"step": one.step, "metrics": dict(one.metrics), "time": one.time} for one in self.vectors]
        return {"config": self.config, "bodies": bodies}

    def judged(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Alerts and incidents by id, as folding the same vectors in one go finds them."""
        engine, alerts, incidents = Engine(self.name), {}, {}
        for entry in (RunConfig(**self.config), *self.vectors, RunConfig(finished=True)):
            for event in engine.feed(entry):
                if isinstance(event, AlertEvent):
                    alerts[event.alert.id] = alert_to_json(event.alert)
                else:
                    incidents[event.incident.id] = incident_to_json(event.incident)
        return alerts, incidents


def make_runs(scale: Scale) -> list[Run]:
    made = []
    for number in range(scale.runs):
        recording = recordings()[number % len(recordings())]
        rows = recording.vectors[-scale.vectors :] if recording.onset else recording.vectors
        vectors = [
            StepVector(step, rows[step % len(rows)].metrics, 1_760_000_000.0 + 10.0 * step)
            for step in range(scale.vectors)
        ]
        made.append(Run(f"{recording.name} №{number}", recording.told, vectors))
    return made


@dataclass
class Stage:
    """Where it all happens.

    Attributes:
        api: address of a web process that is read from at the end.
        inlets: for each way in: whether the client is used, and the address.
        targets: what may be killed, and how often it is drawn.
    """

    api: str
    inlets: list[tuple[bool, str]]
    targets: list[tuple[Any, int]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def embedded(tmp_path: Path, receiver: Receiver) -> Iterator[Stage]:
    receivers = str(unpaced(tmp_path, "webhook", receiver.url))
    service = Tocsin(("serve",), {"db": str(tmp_path / "tocsin.db"), "receivers": receivers})
    service.start()
    yield Stage(service.url, [(True, service.url), (False, service.url)], [(service, 1)])
    service.kill()


@pytest.fixture
def shared(make_redis: Callable[..., Any], receiver: Receiver, tmp_path: Path) -> Iterator[Stage]:
    redis = make_redis("--appendonly", "yes", "--appendfsync", "always")
    settings = {"store": redis.url, "receivers": str(unpaced(tmp_path, "webhook", receiver.url))}
    webs = [Tocsin(("serve",), settings) for _ in range(2)]
    workers = [Tocsin(("worker",), settings) for _ in range(2)]
    with ExitStack() as stack:
        for one in (*webs, *workers):
            stack.callback(one.kill)
            one.start()
        inlets = [(True, webs[0].url), (False, webs[1].url), (True, redis.url)]
        yield Stage(webs[0].url, inlets, [(redis, 2), *((one, 1) for one in (*webs, *workers))])


@pytest.mark.parametrize("stage", ["embedded", "shared"])
def test_nothing_is_lost_and_nothing_comes_double(
    stage: str, request: pytest.FixtureRequest, receiver: Receiver, tmp_path: Path
) -> None:
    where: Stage = request.getfixturevalue(stage)
    runs = make_runs(SCALE)
    senders = []
    for number in range(SCALE.senders):
        client, url = where.inlets[number % len(where.inlets)]
        mine = {run.name: run.told for run in runs[number :: SCALE.senders]}
        job = Job(url, client, mine, SCALE.pause, SCALE.patience, str(tmp_path / "spool"))
        senders.append(job.start(tmp_path / f"job-{number}.json"))
    try:
        with Storm(where.targets, SCALE.calm) as storm:
            told = [json.loads(sender.communicate(timeout=SCALE.patience)[0]) for sender in senders]
    finally:
        for sender in senders:
            with sender:
                sender.kill()
    assert storm.trouble is None
    assert not any(stats.get("dropped") for one in told for stats in one.values() if isinstance(stats, dict))
    with httpx2.Client(base_url=where.api, timeout=60) as api:
        eventually(lambda: is_settled(api, runs), SCALE.patience, "everything folded and told")
        for run in runs:
            check(api, run, receiver)
    print(f"{len(storm.kills)} kills, {sum(map(len, receiver.told.values()))} messages, {len(receiver.told)} ids")


def is_settled(api: httpx2.Client, runs: list[Run]) -> bool:
    """Whether every log is folded and nobody waits to be told."""
    pending = {row["run"]: row["pending"] for row in api.get("/v1/runs").json()["runs"]}
    waiting = [line for line in api.get("/metrics").text.splitlines() if line.startswith("tocsin_outbox_pending ")]
    return all(pending[run.name] == 0 for run in runs) and [float(line.split()[1]) for line in waiting] == [0.0]


def check(api: httpx2.Client, run: Run, receiver: Receiver) -> None:
    path = f"/v1/runs/{quote(run.name, safe='')}"
    metric = next(iter(run.vectors[0].metrics))
    query = urlencode({"metric": metric, "limit": 10_000})
    (series,) = api.get(f"{path}/series?{query}").json()["series"]
    assert series["steps"] == [vector.step for vector in run.vectors]
    alerts, incidents = run.judged()
    links = {"runbook"}  # the service's own, too
    assert by_id(api.get(f"{path}/alerts?limit=10000").json()["alerts"], links) == alerts
    assert by_id(api.get(f"{path}/incidents?limit=10000").json()["incidents"], links) == incidents
    check_messages(run, incidents, receiver)


def check_messages(run: Run, incidents: dict[str, Any], receiver: Receiver) -> None:
    """Every incident that was worth a page was told of, and what is told under one id is one thing."""
    mine = {key: told for key, told in receiver.told.items() if told[0]["run"] == run.name}
    for told in mine.values():
        things = {(one["incident"]["id"], one["reason"], one["incident"]["severity"]) for one in told}
        assert len(things) == 1
    once = {(told[0]["incident"]["id"], told[0]["reason"], told[0]["incident"]["rule"]) for told in mine.values()}
    assert len(once) == len(mine)  # no two ids for one piece of news
    critical = {key for key, one in incidents.items() if one["severity"] == Severity.CRITICAL}
    assert critical <= {told[0]["incident"]["id"] for told in mine.values()} <= set(incidents)
