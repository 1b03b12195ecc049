"""What a storm of alerts costs those who have nothing to do with it: 500 runs collapse at once, 8 others go on.

    python benchmarks/storm.py [--runs 500] [--seconds 20] [--rounds 3]

The 8 bystanders post single vectors all the time; their times from request to answer are compared, in one run, while
nothing else happens, while 500 runs send three healthy steps each, and while 500 runs send three steps in which they
collapse, evenly over the seconds. A chat (a Slack webhook) and a program (a JSON webhook) are told, at the usual pace.
Everything runs on this machine: load, service and receivers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2

from ingest import blast, bodies, exchange, request, serving, wait_judged

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.fleet import Tocsin, eventually
from tests.receiver_files import write_receivers
from tests.wire import whole_body

BYSTANDERS = 8
RATE = 10.0  # vectors a second of each
HEALTHY, BROKEN = 20, 3  # steps of the runs in the storm
PARALLEL = 8


class Inbox:
    """A receiver's place: takes everything, and counts messages and the incidents in them."""

    def __init__(self) -> None:
        self.messages = self.incidents = 0
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                inbox.take(json.loads(whole_body(self)))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):
                    super().handle()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def take(self, message: dict[str, Any]) -> None:
        summary = re.search(r"(\d+) incidents of \d+ runs", message.get("text", ""))
        self.messages += 1
        self.incidents += int(summary[1]) if summary else len(message.get("incidents", [message]))

    @contextmanager
    def open(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def steps(first: int, count: int, *, broken: bool) -> list[dict[str, Any]]:
    chance = random.Random(first)  # noqa: S311 - a benchmark's
    return [
        {
            "step": step,
            "time": 1.7e9 + step,
            "metrics": {
                "actor/kl_loss": 0.01 * chance.uniform(0.9, 1.1) * (30 if broken else 1),
                "critic/rewards/mean": 0.5 * chance.uniform(0.95, 1.05) - (0.4 if broken else 0),
                "actor/entropy": chance.uniform(0.97, 1.03),
            },
        }
        for step in range(first, first + count)
    ]


def send_evenly(url: str, names: Sequence[str], seconds: float, broken: bool, ready: Any, go: Any) -> None:
    """Each of these runs sends its next steps. A process of its own: it says when it could, and waits until it may."""
    body = steps(HEALTHY, BROKEN, broken=broken)
    parts = urlsplit(url)
    ready.set()
    go.wait()
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        begin = time.perf_counter()
        for number, name in enumerate(names):
            time.sleep(max(0.0, begin + number * seconds / len(names) - time.perf_counter()))
            answer = exchange(connection, request(name, body))
            assert answer.startswith(b"HTTP/1.1 202"), answer


class Bystanders:
    """Runs that post one vector after the other, and how long each took."""

    def __init__(self, url: str, phase: str) -> None:
        self._url, self._phase, self._each = url, phase, bodies(400)
        self.times: list[float] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._post, args=(number,)) for number in range(BYSTANDERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _post(self, number: int) -> None:
        parts = urlsplit(self._url)
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            due = time.perf_counter() + number / RATE / BYSTANDERS
            for body in self._each:
                if self._stopping.wait(max(0.0, due - time.perf_counter())):
                    return
                begin = time.perf_counter()
                answer = exchange(connection, request(f"{self._phase}-{number}", body))
                self.times.append(1000 * (time.perf_counter() - begin))
                assert answer.startswith(b"HTTP/1.1 202"), answer
                due += 1 / RATE


def measure(url: str, phase: str, names: Sequence[str], seconds: float) -> tuple[float, float]:
    """p50 and p99 in milliseconds of the bystanders, while the runs ``names`` do what the phase is about."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    sender = context.Process(target=send_evenly, args=(url, names, seconds, phase == "storm", ready, go))
    sender.start()
    assert ready.wait(60)
    with Bystanders(url, phase) as bystanders:
        go.set()
        time.sleep(seconds)
    sender.join()
    assert sender.exitcode == 0
    wait_judged(url, [f"{phase}-{number}" for number in range(BYSTANDERS)])
    cuts = statistics.quantiles(bystanders.times, n=100, method="inclusive")
    return cuts[49], cuts[98]


def one_round(runs: int, seconds: float) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """The times of every phase, and what the receivers and the API know afterwards."""
    chat, program = Inbox(), Inbox()
    names = {
        "alone": [],
        "load": [f"healthy-{number}" for number in range(runs)],
        "storm": [f"collapsing-{number}" for number in range(runs)],
    }
    history = steps(0, HEALTHY, broken=False)
    with tempfile.TemporaryDirectory() as text, chat.open(), program.open():
        folder = Path(text)
        (folder / "hook").write_text(chat.url)
        receivers = write_receivers(
            folder,
            {"name": "chat", "slack": {"webhook_file": "hook"}},
            {"name": "program", "webhook": {"address": program.url}},
        )
        service = Tocsin(("serve",), {"db": f"{folder}/t.db", "receivers": str(receivers)})
        with serving(service):
            url, others = service.url, names["load"] + names["storm"]
            for start in range(0, len(others), PARALLEL):
                blast(url, {name: [request(name, history)] for name in others[start : start + PARALLEL]})
            found = {phase: measure(url, phase, some, seconds) for phase, some in names.items()}
            return found, told(url, names["storm"], {"chat": chat, "program": program})


def told(url: str, names: Sequence[str], inboxes: dict[str, Inbox]) -> list[str]:
    with httpx2.Client(base_url=url, timeout=60) as api:

        def all_judged() -> bool:
            pending = {row["run"]: row["pending"] for row in api.get("/v1/runs?limit=10000").json()["runs"]}
            return all(pending[name] == 0 for name in names)

        def all_told() -> bool:
            return "\ntocsin_outbox_pending 0.0\n" in api.get("/metrics").text

        eventually(all_judged, 120, "everything judged")
        begin = time.perf_counter()
        eventually(all_told, 300, "everybody told")
        after = time.perf_counter() - begin
        shown = sum(bool(api.get(f"/v1/runs/{name}/incidents").json()["incidents"]) for name in names)
    return [
        f"{shown} of {len(names)} incidents in the API; the last was told {after:.0f} s after the last was judged",
        *(f"{name}: {of.messages} messages, {of.incidents} incidents" for name, of in inboxes.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    notes: list[str] = []
    for _ in range(arguments.rounds):
        times, notes = one_round(arguments.runs, arguments.seconds)
        for phase, cuts in times.items():
            found.setdefault(phase, []).append(cuts)
    print(
        f"{BYSTANDERS} bystanders with {BYSTANDERS * RATE:.0f} vectors/s, phases of {arguments.seconds:.0f} s, "
        f"median of {arguments.rounds} rounds"
    )
    print(f"{'besides them':32s}{'p50 ms':>9s}{'p99 ms':>9s}{'p50 ratio':>11s}{'p99 ratio':>11s}")
    said = {
        "alone": "nothing",
        "load": f"{arguments.runs} runs go on",
        "storm": f"{arguments.runs} runs collapse",
    }
    for phase, cuts in found.items():
        p50, p99 = (statistics.median(cut[at] for cut in cuts) for at in (0, 1))
        ratios = [
            statistics.median(cut[at] / base[at] for cut, base in zip(cuts, found["alone"], strict=True))
            for at in (0, 1)
        ]
        print(f"{said[phase]:32s}{p50:9.1f}{p99:9.1f}{ratios[0]:11.2f}{ratios[1]:11.2f}")
    print("\n".join(notes))


if __name__ == "__main__":
    main()
