"""What people do changes what receivers are told: end to end, with a stand-in for the receiver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Api

from tocsin_service.app import Service
from tocsin_service.delivery import loop
from tocsin_service.settings import Settings
from tocsin_service.wiring import work

WHO = {"author": "mia", "comment": "meant so"}


@dataclass
class Clock:
    """The time of day, or so much later."""

    later: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.later


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(tmp_path: Path, hook: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """A service whose delivery looks only when it is told to, or when something is due."""
    monkeypatch.setattr(loop, "LONGEST_WAIT", 3600.0)
    with Service(Settings(port=0, db=tmp_path / "tocsin.db", webhook=hook.address), clock) as service:
        yield Api(service.address, service)


def break_run(api: Any, run: str) -> None:
    """Posts a run whose loss is NaN from its first step on, and waits until that is judged."""
    api.post([{"step": step, "metrics": {"actor/pg_loss": float("nan")}} for step in range(3)], run=run)
    api.settle()


def told(hook: Any) -> tuple[str, str]:
    news = hook.next()
    return news["run"], news["reason"]


def test_what_is_silenced_is_told_when_the_silence_is_expired(api: Any, hook: Any, clock: Clock) -> None:
    silence = api.call("POST", "/v1/silences", {"matchers": {"run": "quiet*"}, "hours": 1, **WHO}).json
    break_run(api, "quiet-1")
    break_run(api, "loud-1")
    assert told(hook) == ("loud-1", "opened")
    (incident,) = api.get("/v1/runs/quiet-1/incidents").json["incidents"]
    assert (incident["state"], incident["silenced"]["id"]) == ("firing", silence["id"])  # it still shows
    api.call("DELETE", f"/v1/silences/{silence['id']}")
    clock.later = 61  # it is looked at once a minute
    silence = api.call("POST", "/v1/silences", {"matchers": {"run": "other"}, "hours": 1, **WHO})  # also wakes it
    assert told(hook) == ("quiet-1", "opened")
    assert hook.posts.empty()


def test_what_is_silenced_is_told_when_the_silence_ends_by_itself(api: Any, hook: Any, clock: Clock) -> None:
    api.post({"step": 0, "metrics": {"actor/pg_loss": 1.0}}, run="quiet-1")
    assert api.call("POST", "/v1/runs/quiet-1/mute", {"hours": 1, **WHO}).status == 200
    break_run(api, "quiet-1")
    break_run(api, "loud-1")
    assert told(hook) == ("loud-1", "opened")
    clock.later = 3601
    break_run(api, "loud-2")  # wakes the delivery
    assert {told(hook), told(hook)} == {("quiet-1", "opened"), ("loud-2", "opened")}


def test_an_acknowledgement_is_told_at_once_and_once(api: Any, hook: Any) -> None:
    break_run(api, "run")
    assert told(hook) == ("run", "opened")
    (incident,) = api.get("/v1/incidents").json["incidents"]
    for _ in range(2):
        assert api.call("POST", f"/v1/runs/run/incidents/{incident['id']}/acknowledge", WHO).status == 200
    assert told(hook) == ("run", "acknowledged")
    break_run(api, "next")
    assert told(hook) == ("next", "opened")


def test_what_is_said_to_one_process_another_tells(redis_server: Any, hook: Any) -> None:
    web = Service(Settings(port=0, store=redis_server.url))
    worker = Service(Settings(port=0, store=redis_server.url, webhook=hook.address), wire=work)
    with web, worker:
        api = Api(web.address, web)
        break_run(api, "run")
        assert told(hook) == ("run", "opened")
        (incident,) = api.get("/v1/incidents").json["incidents"]
        assert api.call("POST", f"/v1/runs/run/incidents/{incident['id']}/acknowledge", WHO).status == 200
        assert told(hook) == ("run", "acknowledged")
        assert api.get("/v1/incidents").json["incidents"][0]["acknowledged"]["author"] == "mia"
        assert [one["action"] for one in api.get("/v1/audit").json["acts"] if one["action"] != "start"] == [
            "acknowledge"
        ]
