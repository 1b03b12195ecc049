"""The demo: a recorded training run collapses in front of you, through the real client, ingest, engine and API."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Any

import tocsin
from tocsin import readers
from tocsin_service.app import Service, StartError
from tocsin_service.commands.replay import send
from tocsin_service.commands.report import incident_lines, printable
from tocsin_service.settings import Settings

__all__ = ["demo"]

RECORDING = Path(__file__).with_name("demo_run.jsonl")
RUN = "demo-grpo-lr-x100"
CONFIG = {"algorithm": "grpo", "framework": "trl", "group_size": 8, "temperature": 1.0}
LOOK_EVERY = 5  # steps between looks at the alerts
BAR = 40


def demo(*, port: int, rate: float, stay: bool) -> int:
    """Run the demo; the exit status.

    Args:
        port: where to serve; any free port if that one is taken.
        rate: steps per second.
        stay: keep serving after the summary until Ctrl-C.
    """
    folder = tempfile.mkdtemp(prefix="tocsin-demo-")
    try:
        service = _start(port, folder)
        try:
            status = _show(service, rate)
            if stay:
                _serve_on(service)
        finally:
            service.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return status


def _start(port: int, folder: str) -> Service:
    for candidate in (port, 0):
        service = Service(Settings(port=candidate, db=Path(folder) / "demo.db"))
        try:
            service.start()
        except StartError:
            if candidate == 0:
                raise
            continue
        return service
    raise AssertionError  # the loop returns or raises


def _show(service: Service, rate: float) -> int:
    vectors = list(readers.read(RECORDING))
    print("A recorded GRPO run (TRL, tiny Qwen2): its learning rate is raised 100 times at step 121.")
    print(f"It is sent to {service.address} at {rate:g} steps a second.")
    print(f"Watch it in a browser: {service.address}/dashboard/#/runs/{RUN}\n")
    run = tocsin.Run(RUN, url=service.address, config=CONFIG)
    screen = _Screen(run, len(vectors))
    delivered = send(vectors, run, rate=rate, sent=screen.sent)
    service.wait_idle(10)
    screen.look()
    screen.clear()
    print(f"\nSummary: {delivered.summary}.")
    alerts = {alert["id"]: alert for alert in run.alerts()}
    with urllib.request.urlopen(f"{service.address}/v1/runs/{RUN}/incidents", timeout=10) as response:  # noqa: S310 - our own http
        incidents = sorted(json.load(response)["incidents"], key=lambda incident: incident["opened_step"])
    for incident in incidents:
        print("\n".join(incident_lines(incident, alerts)))
    caught = any(incident["severity"] == "critical" for incident in incidents)
    if not (delivered.complete and caught):
        print("The demo did not go as it should: please report this output.", file=sys.stderr)
        return 1
    return 0


def _serve_on(service: Service) -> None:
    base = f"{service.address}/v1/runs/{RUN}"
    print(f"\nStill serving; Ctrl-C ends it.\n  {service.address}/dashboard/")
    print(f"  {base}\n  {base}/alerts\n  {base}/incidents\n  {service.address}/metrics")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


class _Screen:
    """A progress bar at the bottom and the alerts above it; plain lines where there is no terminal."""

    def __init__(self, run: tocsin.Run, total: int) -> None:
        self._run, self._total = run, total
        self._live = sys.stdout.isatty()
        self._told: set[tuple[str, str]] = set()

    def sent(self, count: int) -> None:
        if count % LOOK_EVERY == 0:
            self.look()
        if self._live:
            full = BAR * count // self._total
            print(f"\r[{'#' * full}{'.' * (BAR - full)}] step {count}/{self._total} ", end="", flush=True)
        elif count % max(1, self._total // 10) == 0:
            print(f"[{count * 100 // self._total:3d} %] step {count}/{self._total}", flush=True)

    def clear(self) -> None:
        if self._live:
            print("\r\033[K", end="")

    def look(self) -> None:
        """Tell of every alert that is new, or has become more urgent."""
        if not self._run.stats()["delivered"]:
            return  # a run begins to exist with its first vector
        for alert in sorted(self._run.alerts(), key=lambda alert: (alert["fired_step"], alert["onset_step"])):
            key = (alert["id"], alert["severity"])
            if key in self._told:
                continue
            again = any(known == alert["id"] for known, _ in self._told)
            self._told.add(key)
            self.clear()
            self._tell(alert, again=again)

    @staticmethod
    def _tell(alert: dict[str, Any], *, again: bool) -> None:
        head = f"{alert['severity'].upper()}  {alert['rule']} on {alert['metric']}"
        if again:
            print(printable(f"** now {head}"))
            return
        print(printable(f"** {head}, since step {alert['onset_step']}, said at step {alert['fired_step']}"))
        print(printable(f"   {alert['evidence']['detail']}"))
        print(printable(f"   do: {alert['remedies'][0]}"))
