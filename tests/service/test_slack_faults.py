"""Slack with every kind of trouble, and the service killed in the middle: each incident is told, in order, once.

The service is a process of its own. Slack is a stand-in: it answers 429 and 500, keeps a message without saying so,
hangs, and is away.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.slack_stand_in import (
    BROKEN,
    BROKEN_AFTER,
    CHANNEL,
    CUT_AFTER,
    HANGS_AFTER,
    TOKEN,
    TOO_MANY,
    SlackStandIn,
    slack,
)

RUNS = [f"run-{number}" for number in range(3)]
RECEIVER = """
receivers:
  - name: team
    slack: {{{slack}}}
    pace: {{burst: 1000, seconds: 1}}
"""


@pytest.fixture
def server() -> Iterator[SlackStandIn]:
    with slack() as server:
        yield server


class Service:
    """The service as a process, which can be killed and started again; its runs collapse in three stages."""

    def __init__(self, start: Callable[..., Any], folder: Path, receiver: str, recorded: Any) -> None:
        (folder / "receivers.yml").write_text(RECEIVER.format(slack=receiver))
        (folder / "tocsin.toml").write_text(f'receivers = "{folder}/receivers.yml"\nstop_seconds = 3\n')
        self._start, self._words = start, ("serve", "--db", f"{folder}/tocsin.db", "--config", f"{folder}/tocsin.toml")
        (run,) = [one for one in recorded if one.name == "collapse_lr_x100"]
        self._bodies = [body for body in run.bodies if body["step"] <= 124]
        self.process = start(*self._words)

    def restart(self) -> None:
        """Kills it with -9, and starts it on the same store."""
        self.process.kill()
        self.process = self._start(*self._words)

    def opens(self) -> None:
        """Each run has an incident of severity warning."""
        self._post([body for body in self._bodies if body["step"] <= 123])

    def gets_worse(self) -> None:
        """Each of them turns out to be a collapse, which is critical."""
        self._post([body for body in self._bodies if body["step"] == 124])

    def ends(self) -> None:
        """Somebody says of each run that this is the new normal."""
        for run in RUNS:
            assert self.process.api.call("POST", f"/v1/runs/{run}/rebaseline", {}).status == 202

    def _post(self, bodies: list[dict[str, Any]]) -> None:
        for run in RUNS:
            assert self.process.api.post(bodies, run=run).status == 202

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.process.api.get("/metrics").data.decode(), re.MULTILINE)
        return 0.0 if found is None else float(found[1])

    def wait(self, condition: Callable[[], bool]) -> None:
        ends = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < ends, "".join(self.process.log)
            threading.Event().wait(0.02)

    def settle(self) -> None:
        """Waits until everybody was told of everything."""
        self.wait(lambda: self.metric("tocsin_outbox_pending") == 0)

    def retries(self) -> float:
        """Attempts that failed since the start."""
        return self.metric('tocsin_delivery_total{receiver="team",result="retry"}')


def stories(server: SlackStandIn) -> dict[str, list[dict[str, Any]]]:
    """The messages of each run."""
    return {run: [one for one in server.told() if f"run {run}," in one["text"]] for run in RUNS}


def test_as_an_app(start_process: Callable[..., Any], tmp_path: Path, server: SlackStandIn, recorded: Any) -> None:
    (tmp_path / "token").write_text(TOKEN)
    receiver = f"token_file: {tmp_path}/token, channel: {CHANNEL}, api: '{server.api}'"
    service = Service(start_process, tmp_path, receiver, recorded)

    # Every trouble at once; then the service is killed while it waits for an answer to what Slack has already.
    server.faults["chat.postMessage"].extend([TOO_MANY, BROKEN_AFTER, CUT_AFTER, HANGS_AFTER])
    service.opens()
    assert server.hanging.acquire(timeout=90)
    service.restart()
    server.let_go()
    server.wait(3)
    service.settle()
    assert [len(messages) for messages in stories(server).values()] == [1] * 3

    # Slack is away; back again it has trouble with everything, and once lets the service wait in vain.
    server.stop()
    before = service.retries()
    service.gets_worse()
    service.wait(lambda: service.retries() > before)
    server.faults["chat.postMessage"].extend([BROKEN, HANGS_AFTER])
    server.faults["chat.update"].extend([TOO_MANY, BROKEN])
    server.faults["conversations.replies"].extend([TOO_MANY, BROKEN])
    server.start()
    server.wait(6)
    service.settle()

    # The service is killed again.
    server.faults["chat.postMessage"].extend([CUT_AFTER, HANGS_AFTER])
    service.ends()
    assert server.hanging.acquire(timeout=90)  # of the time-out before
    assert server.hanging.acquire(timeout=90)
    service.restart()
    server.let_go()
    server.wait(9)
    service.settle()
    assert service.process.end() == 0

    told = server.told()
    ids = [message["metadata"]["event_payload"]["id"] for message in told]
    assert len(ids) == len(set(ids)) == 9
    for run, (first, *replies) in stories(server).items():
        assert [message["text"].split()[0] for message in (first, *replies)] == ["✅", "🔺", "✅"], run
        assert "thread_ts" not in first
        assert [(one["thread_ts"], one["reply_broadcast"]) for one in replies] == [(first["ts"], True)] * 2
        assert "worse" in replies[0]["text"]
        assert "resolved" in replies[1]["text"]


def test_by_a_webhook(start_process: Callable[..., Any], tmp_path: Path, server: SlackStandIn, recorded: Any) -> None:
    """A webhook can't be asked what it has, so here it is clear of every failure that the message hasn't arrived."""
    (tmp_path / "webhook").write_text(server.webhook)
    service = Service(start_process, tmp_path, f"webhook_file: {tmp_path}/webhook", recorded)

    server.faults["webhook"].extend([TOO_MANY, BROKEN])
    service.opens()
    server.wait(3)
    service.settle()

    server.stop()
    before = service.retries()
    service.gets_worse()
    service.wait(lambda: service.retries() > before)
    service.restart()
    server.faults["webhook"].extend([BROKEN, TOO_MANY])
    server.start()
    server.wait(6)
    service.settle()

    server.faults["webhook"].extend([BROKEN] * 2)
    service.ends()
    server.wait(9)
    service.settle()
    assert service.process.end() == 0

    assert len(server.told()) == 9
    for run, messages in stories(server).items():
        assert [message["text"].split()[0] for message in messages] == ["🔔", "🔺", "✅"], run
