"""The dashboard: time to the first chart and to the list of runs, and a page's memory over an hour of live updates.

    .venv/bin/python benchmarks/dashboard.py times [--steps 10000] [--metrics 100] [--runs 500]
    .venv/bin/python benchmarks/dashboard.py memory [--steps 10000] [--metrics 100] [--updates 720] [--pace 5]

It needs Debian's Chromium and playwright. Times are those of one machine with everything on it: the service, the
browser and this program. Live updates are steps that come in while a run is shown, one each `--pace` seconds (0: as
quickly as the page shows them); the defaults are an hour. Memory is given from the beginning and in twelve parts: what
JavaScript holds after a garbage collection, the nodes and listeners of the document, and what the browser's renderers
occupy in all (proportional set size, as it is, before that collection).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tocsin_service.app import Service
from tocsin_service.settings import Settings

START = 1.7e9
NAMES = ("reward", "kl", "entropy", "grad_norm", "loss")
BATCH = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("times", "memory"))
    for name, default in (("steps", 10_000), ("metrics", 100), ("runs", 500), ("updates", 720)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pace", type=float, default=5, help="seconds from one live step to the next")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Service(Settings(port=0, db=Path(folder) / "tocsin.db")) as service:
        fill(service, asked)
        with sync_playwright() as driver:
            chromium = shutil.which("chromium") or "chromium"
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            {"times": times, "memory": memory}[asked.what](browser, service, asked)
            browser.close()


def times(browser: Any, service: Service, asked: argparse.Namespace) -> None:
    print(f"| {'what':52s} | seconds |\n|{'-' * 54}|---------|")
    steps = f"{asked.steps} steps x {asked.metrics} metrics"
    middle = f"/v1/runs/big/charts?first={asked.steps // 2}&last={asked.steps // 2 + 100}"
    told(f"curves of {steps}, first answer", lambda: get(service, "/v1/runs/big/charts"))
    told(f"curves of {steps}, next answer", lambda: get(service, "/v1/runs/big/charts"))
    told("zoomed to 100 of them, answer", lambda: get(service, middle))
    send(service, "big", range(asked.steps, asked.steps + 1), asked.metrics)
    told("the same after another step, answer", lambda: get(service, middle))
    told(f"{asked.runs} runs, first answer", lambda: get(service, "/v1/overview?limit=2000"))
    told(f"{asked.runs} runs, next answer", lambda: get(service, "/v1/overview?limit=2000"))
    told(f"{steps}, first chart drawn", lambda: show(browser, service, "runs/big", "canvas"))
    page = show(browser, service, "runs/big", "canvas")
    told("a zoom, from the click to its finer points", lambda: zoom(page))
    told(f"{asked.runs} runs, list drawn", lambda: show(browser, service, "", "[data-run]"))


def fill(service: Service, asked: argparse.Namespace) -> None:
    for first in range(0, asked.steps, BATCH):
        send(service, "big", range(first, min(first + BATCH, asked.steps)), asked.metrics)
    for run in range(asked.runs - 1 if asked.what == "times" else 0):
        send(service, f"run-{run}", range(60), 30)
    assert service.wait_idle(600)


def send(service: Service, run: str, steps: range, metrics: int) -> None:
    names = [*NAMES, *(f"own/{number}" for number in range(metrics - len(NAMES)))]
    rows = []
    for step in steps:
        values = {name: 1 + math.sin(step * (place + 1) / 50) / 10 for place, name in enumerate(names)}
        rows.append(json.dumps({"step": step, "time": START + step, "metrics": values}))
    request = urllib.request.Request(f"{service.address}/v1/runs/{run}/steps", "\n".join(rows).encode())  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310 - our own http


def get(service: Service, path: str) -> None:
    with urllib.request.urlopen(service.address + path) as answer:  # noqa: S310 - our own http
        answer.read()


def show(browser: Any, service: Service, view: str, wanted: str) -> Any:
    page = browser.new_page()
    page.goto(f"{service.address}/dashboard/#/{view}")
    page.wait_for_selector(wanted)
    return page


def zoom(page: Any) -> None:
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_selector('.plot[data-finer*="–"]')


def told(what: str, act: Callable[[], object]) -> None:
    begun = time.perf_counter()
    act()
    print(f"| {what:52s} | {time.perf_counter() - begun:7.2f} |", flush=True)


def memory(browser: Any, service: Service, asked: argparse.Namespace) -> None:
    """Sends steps one after the other to a run that is shown, none before the page has shown the one before it."""
    page = show(browser, service, "runs/big", "#status.live")
    held = Held(browser, page)
    shown = []
    print(f"| live steps | minutes | {' | '.join(Held.COLUMNS)} |\n|{'-' * 12}|{'-' * 9}|{held.rule()}|")
    begun = time.perf_counter()
    for update in range(asked.updates + 1):
        if update % max(1, asked.updates // 12) == 0:
            print(f"| {update:10d} | {(time.perf_counter() - begun) / 60:7.1f} | {held.row()} |", flush=True)
        if update == asked.updates:
            break
        step = asked.steps + update
        page.wait_for_timeout(max(0.0, begun + update * asked.pace - time.perf_counter()) * 1000)
        sent = time.perf_counter()
        send(service, "big", range(step, step + 1), asked.metrics)
        found = page.wait_for_selector(f'[data-metric="critic/score/mean"] [data-last="{step}"]')
        found.dispose()  # or it would hold what the page has thrown away
        shown.append(time.perf_counter() - sent)
    shown.sort()
    print(f"\na live step, from sent to shown: median {shown[len(shown) // 2]:.2f} s, slowest {shown[-1]:.2f} s")


class Held:
    """What one page of a browser holds."""

    COLUMNS = ("heap, MB", "nodes", "listeners", "renderer, MB")

    def __init__(self, browser: Any, page: Any) -> None:
        self._page = page.context.new_cdp_session(page)
        self._browser = browser.new_browser_cdp_session()

    def rule(self) -> str:
        return "|".join("-" * (len(column) + 2) for column in self.COLUMNS)

    def row(self) -> str:
        occupied = self._occupied()
        self._page.send("HeapProfiler.collectGarbage")
        heap = self._page.send("Runtime.getHeapUsage")["usedSize"] / 1e6
        counted = self._page.send("Memory.getDOMCounters")
        cells = (f"{heap:.1f}", counted["nodes"], counted["jsEventListeners"], f"{occupied:.0f}")
        return " | ".join(f"{cell:>{len(column)}}" for cell, column in zip(cells, self.COLUMNS, strict=True))

    def _occupied(self) -> float:
        renderers = [
            process["id"]
            for process in self._browser.send("SystemInfo.getProcessInfo")["processInfo"]
            if process["type"] == "renderer"
        ]
        return sum(proportional(process) for process in renderers)


def proportional(process: int) -> float:
    """The proportional set size of a process, in MB."""
    found = re.search(r"^Pss:\s+(\d+) kB$", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1e3


if __name__ == "__main__":
    main()
