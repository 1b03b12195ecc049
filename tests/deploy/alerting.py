"""Prometheus and Alertmanager as the files in deploy/ configure them, and somebody whom they tell."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.deploy.native import DEPLOY, Program, call, needs, replaced, start, until
from tests.wire import whole_body

# What a test changes in the files beside addresses: how long everybody waits.
QUICKER = {
    "prometheus.yml": {
        "scrape_interval: 15s": "scrape_interval: 1s",
        "evaluation_interval: 15s": "evaluation_interval: 500ms",
    },
    "alertmanager.yml": {
        "group_wait: 30s": "group_wait: 1s",
        "group_wait: 10s": "group_wait: 3s",
        "group_wait: 1m": "group_wait: 6s",
        "group_interval: 5m": "group_interval: 1s",
    },
    "tocsin.rules.yml": {
        " for: 1m": " for: 1s",
        " for: 2m": " for: 3s",
        "keep_firing_for: 1m": "keep_firing_for: 5s",
        "keep_firing_for: 30s": "keep_firing_for: 3s",
    },
}


def quicker(file: Path, places: dict[str, str]) -> str:
    """The text of a file of deploy/ with shorter times, and with ``places`` replaced: addresses, and whom to tell."""
    return replaced(file.read_text(), QUICKER.get(file.name, {}) | places)


def reserve_port(stack: ExitStack) -> tuple[int, socket.socket]:
    """A port that nobody else gets until the socket is closed, and at which nobody answers."""
    held = stack.enter_context(socket.socket())
    held.bind(("127.0.0.1", 0))
    return int(held.getsockname()[1]), held


@dataclass
class Person:
    """Whom Alertmanager tells: Slack's and a webhook's stand-in at once.

    Attributes:
        webhook: what came as JSON, in order.
        slack: what came for Slack, in order.
    """

    webhook: list[dict[str, Any]] = field(default_factory=list)
    slack: list[dict[str, Any]] = field(default_factory=list)
    address: str = ""

    def start(self, stack: ExitStack) -> None:
        person = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                message = json.loads(whole_body(self))
                (person.slack if self.path == "/slack" else person.webhook).append(message)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def handle(self) -> None:
                with suppress(ConnectionError):  # Alertmanager was stopped
                    super().handle()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stack.callback(server.server_close)
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        self.address = f"http://127.0.0.1:{server.server_address[1]}"

    def told(self, receiver: str, status: str, **labels: str) -> list[dict[str, Any]]:
        """Messages to a receiver about a group with (at least) these labels, in order."""
        return [
            message
            for message in list(self.webhook)
            if (message["receiver"], message["status"]) == (receiver, status)
            and labels.items() <= message["groupLabels"].items()
        ]

    def messages(self) -> list[dict[str, Any]]:
        """What Slack shows, in order."""
        return [attachment for message in list(self.slack) for attachment in message["attachments"]]

    def hears(self, receiver: str, status: str, **labels: str) -> dict[str, Any]:
        """The first such message; waits for it."""
        return until(lambda: self.told(receiver, status, **labels), f"{receiver}: {status} {labels}")[0]


@dataclass
class Alertmanager:
    """The real one. It keeps its port and its folder when it is started again, and forgets alerts meanwhile."""

    folder: Path
    port: int
    held: socket.socket
    person: Person
    program: Program | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, stack: ExitStack) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "slack-webhook").write_text(f"{self.person.address}/slack")
        config = quicker(
            DEPLOY / "alertmanager/alertmanager.yml",
            {
                "/run/secrets/": f"{self.folder}/",
                "# webhook_configs:": "webhook_configs:",
                "#   - url: http://127.0.0.1:9000": f"  - url: {self.person.address}",
                "#     send_resolved": "    send_resolved",
            },
        )
        (self.folder / "alertmanager.yml").write_text(config)
        shutil.copy(DEPLOY / "alertmanager/tocsin.tmpl", self.folder)
        self.held.close()
        command = ["prometheus-alertmanager", f"--config.file={self.folder}/alertmanager.yml"]
        command += [f"--storage.path={self.folder}/data", "--cluster.listen-address="]
        self.program = start(stack, [*command, f"--web.listen-address=127.0.0.1:{self.port}"], {})
        self.program.said("Listening on")

    def stop(self) -> None:
        assert self.program is not None
        assert self.program.end() == 0

    def alerts(self, alertname: str) -> list[dict[str, Any]]:
        """What it knows of firing alerts of this name, told or not."""
        status, body = call(self.address, "/api/v2/alerts")
        assert status == 200
        return [alert for alert in json.loads(body) if alert["labels"]["alertname"] == alertname]


@pytest.fixture
def person() -> Iterator[Person]:
    made = Person()
    with ExitStack() as stack:
        made.start(stack)
        yield made


def start_prometheus(stack: ExitStack, folder: Path, tocsin: str, alertmanager: str) -> str:
    """Prometheus, which scrapes ``tocsin`` and tells ``alertmanager`` (addresses); its own address."""
    needs("prometheus")
    folder.mkdir()
    for name in ("prometheus.yml", "tocsin.rules.yml"):
        places = (
            {}
            if name != "prometheus.yml"
            else {
                "127.0.0.1:9093": alertmanager.removeprefix("http://"),
                "127.0.0.1:8765": tocsin.removeprefix("http://"),
                '"127.0.0.1:8766", "127.0.0.1:8767"': "",
            }
        )
        (folder / name).write_text(quicker(DEPLOY / "prometheus" / name, places))
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    # What was sent while Alertmanager was away is sent again.
    command += ["--web.listen-address=127.0.0.1:0", "--rules.alert.resend-delay=1s"]
    server = start(stack, command, {})
    server.said("Server is ready to receive web requests")
    return "http://" + server.said(r"Listening on. address=(127\S+)").group(1)


def judged(tocsin: str, run: str) -> bool:
    """Whether everything that came in of the run is folded."""
    status, body = call(tocsin, f"/v1/runs/{quote(run, safe='')}")
    assert status == 200, body
    return json.loads(body)["pending"] == 0
