"""The loop back: what fires comes to the trainer, in the background, and never in its way."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.conftest import PATIENCE, Heard, Scripted

import tocsin
from tocsin.readers import read

RECORDINGS = Path(__file__).parents[1] / "data" / "runs"
Start = Callable[..., Scripted]


def incident(name: str = "i", severity: str = "critical", opened: int = 1) -> dict[str, Any]:
    return {"id": name, "severity": severity, "opened_step": opened, "onset_step": opened, "title": "It broke"}


def alert(name: str = "a", severity: str = "critical", fired: int = 1) -> dict[str, Any]:
    return {"id": name, "severity": severity, "fired_step": fired, "rule": "r"}


def await_true(condition: Callable[[], bool], server: Scripted) -> None:
    """A look's answer takes effect after the server has given it: waits until it has."""
    for _ in range(int(PATIENCE / 0.05)):
        if condition():
            return
        threading.Event().wait(0.05)
    pytest.fail(f"it never came: {server.asked}")


def test_a_real_collapse_stops_its_trainer(heard: Heard) -> None:
    run = tocsin.Run("run", url=heard.url, config={"framework": "trl", "algorithm": "grpo"})
    alerts: list[Any] = []
    run.watch(stop_on="critical", checkpoint_on="warning", on_alert=alerts.append)
    for vector in read(RECORDINGS / "collapse_lr_x100.jsonl"):
        run.log(vector.metrics, vector.step)
    assert run.finish(PATIENCE)
    heard.settle()
    run.log({"late": 1.0}, 181)  # one more delivery, one more look
    for _ in range(int(PATIENCE / 0.05)):
        if run.should_stop() and alerts:
            break
        threading.Event().wait(0.05)
    assert run.should_stop()
    assert run.should_checkpoint()
    assert not run.should_checkpoint()
    assert {alert["state"] for alert in alerts} == {"firing"}
    run.finish(PATIENCE)


def test_nobody_asks_without_a_wish(scripted: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = scripted()
    server.incidents = [incident()]
    run = tocsin.Run("run", url=server.url)
    run.log({"a": 1.0}, 1)
    assert run.finish(PATIENCE)
    assert not server.asked
    assert not any(thread.name == "tocsin-lookout" for thread in threading.enumerate())
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        for _ in range(2):
            assert not run.should_stop()
            assert not run.should_checkpoint()
    assert [record.getMessage().split(": ")[1:3] for record in caplog.records] == [
        ["nothing ever asks for it", "give stop_on= to init() or watch() (said once)"],
        ["nothing ever asks for it", "give checkpoint_on= to init() or watch() (said once)"],
    ]


def test_firing_begins_to_watch_and_tells_the_present(scripted: Start) -> None:
    server = scripted()
    run = tocsin.Run("run", url=server.url)
    assert not run.firing("warning")
    server.looks(1)
    server.incidents = [incident(severity="warning")]
    run.log({"a": 1.0}, 1)
    await_true(lambda: run.firing("warning"), server)
    assert not run.firing()
    assert not run.should_stop()
    server.incidents = []
    run.log({"a": 1.0}, 2)
    await_true(lambda: not run.firing("warning"), server)
    run.finish(PATIENCE)


def test_an_incident_of_a_former_process_does_not_stop_this_one(scripted: Start) -> None:
    server = scripted()
    server.incidents = [incident("old", opened=100)]
    run = tocsin.Run("run", url=server.url)
    run.watch(stop_on="critical")
    await_true(lambda: run._link.channel.lookout._looked > 0, server)
    run.log({"a": 1.0}, 100)  # the step at which the old one began, once more
    server.looks(3)
    assert not run.should_stop()
    server.incidents = [incident("old", opened=100), incident("new", opened=100)]
    await_true(run.should_stop, server)
    run.finish(PATIENCE)


def test_a_callback_that_raises_is_said_once(
    scripted: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    server = scripted()
    called = threading.Semaphore(0)

    def broken(_: object) -> None:
        called.release()
        raise RuntimeError("the trainer's own mistake")

    run = tocsin.Run("run", url=server.url)
    run.watch(stop_on="critical", on_alert=broken)
    server.looks(1, "alerts")
    server.incidents = [incident()]
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        for step in (1, 2):
            server.alerts = [alert(f"a{step}", fired=1), alert(f"b{step}", fired=1)]
            run.log({"a": 1.0}, step)
            for _ in server.alerts:
                assert called.acquire(timeout=PATIENCE)
    await_true(run.should_stop, server)
    assert sum("the trainer's own mistake" in record.getMessage() for record in caplog.records) == 1
    assert run.finish(PATIENCE)


def test_a_callback_that_hangs_delays_no_vector(scripted: Start) -> None:
    server = scripted()
    entered, leave = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    run = tocsin.Run("run", url=server.url)
    run.watch(on_alert=slow)
    server.looks(1, "alerts")
    server.alerts = [alert()]
    run.log({"a": 1.0}, 1)
    assert entered.wait(PATIENCE)
    run.log({"a": 2.0}, 2)
    server.wait(lambda server: len(server.posted) == 2)
    leave.set()
    assert run.finish(PATIENCE)


def test_it_goes_on_after_the_service_was_away(scripted: Start) -> None:
    server = scripted()
    run = tocsin.Run("run", url=server.url)
    run.watch(stop_on="critical")
    run.log({"a": 1.0}, 1)
    server.looks(2)
    server.stop()
    server._server.shutdown = server._server.server_close = lambda: None  # type: ignore[method-assign]
    run.log({"a": 2.0}, 2)
    again = scripted(server.port)
    again.incidents = [incident(opened=2)]
    again.wait(lambda server: bool(server.posted))
    await_true(run.should_stop, again)
    run.finish(PATIENCE)


def test_a_server_that_does_not_tell_is_said_once(scripted: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = scripted()
    server.status = 500
    run = tocsin.Run("run", url=server.url)
    run.watch(stop_on="critical")
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        run.log({"a": 1.0}, 1)
        server.looks(3)
    assert not run.should_stop()
    assert run.finish(PATIENCE)
    assert sum("doesn't say what fires" in record.getMessage() for record in caplog.records) == 1


def test_an_unknown_run_has_no_incidents(heard: Heard) -> None:
    run = tocsin.Run("run", url=heard.url)
    run.watch(stop_on="critical")
    run.log({"a": 1.0}, 1)  # the first look may come before the run exists
    assert run.finish(PATIENCE)
    assert not run.should_stop()


def test_redis_says_once_that_there_is_nobody_to_ask(caplog: pytest.LogCaptureFixture) -> None:
    run = tocsin.Run("run", url="redis://127.0.0.1:1/0")
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        run.watch(stop_on="critical")
        run.watch(checkpoint_on="warning")
    assert sum("nobody to ask" in record.getMessage() for record in caplog.records) == 1
    assert not run.should_stop()
    assert not any(thread.name == "tocsin-lookout" for thread in threading.enumerate())


def test_a_wrong_severity_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="is no severity"):
        tocsin.init("run", url="http://127.0.0.1:1", stop_on="fatal")
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        run = tocsin.init("run", url="http://127.0.0.1:1", stop_on="fatal")
    assert not run.should_stop()
    assert "is no severity" in caplog.text


def test_a_forked_child_looks_for_itself(scripted: Start) -> None:
    server = scripted()
    run = tocsin.Run("run", url=server.url)
    run.watch(stop_on="critical")
    run.log({"a": 1.0}, 1)
    server.looks(2)
    child = os.fork()
    if child == 0:  # no pytest in here
        status = 1
        try:
            run.log({"a": 2.0}, 2)
            for _ in range(600):
                if run.should_stop():
                    status = 0
                    break
                threading.Event().wait(0.05)
        finally:
            os._exit(status)
    server.wait(lambda server: len(server.posted) == 2)
    server.incidents = [incident(opened=2)]
    assert os.waitpid(child, 0)[1] == 0
    assert not run.should_stop()  # the parent has logged step 1 alone
    run.finish(PATIENCE)


def test_what_the_host_knows_of_the_run_gives_way_to_what_the_user_said(heard: Heard) -> None:
    run = tocsin.Run("run", url=heard.url, config={"framework": "verl"})
    run.describe({"framework": "trl", "group_size": 8})
    run.log({"a": 1.0}, 1)
    assert run.finish(PATIENCE)
    assert heard.config("run") == {"framework": "verl", "group_size": 8, "finished": True}


def test_what_is_described_later_comes_before_the_next_vectors(scripted: Start) -> None:
    server = scripted()
    run = tocsin.Run("run", url=server.url)
    run.log({"a": 1.0}, 1)
    server.wait(lambda server: bool(server.posted))
    run.describe({"temperature": 0.7})
    run.log({"a": 1.0}, 2)
    server.wait(lambda server: len(server.posted) == 2)
    assert server.put == [{"temperature": 0.7}]
    run.finish(PATIENCE)
