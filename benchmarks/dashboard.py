"""The dashboard: time to the first chart and to the list of runs, and the page's memory over live updates.

    .venv/bin/python benchmarks/dashboard.py [--steps 10000] [--metrics 100] [--runs 500] [--updates 300]

It needs Debian's Chromium and playwright. Times are those of one machine with everything on it: the service, the
browser and this program. Live updates are steps that come in while a run is shown; the heap is the page's JavaScript's.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import threading
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
    for name, default in (("steps", 10_000), ("metrics", 100), ("runs", 500), ("updates", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Service(Settings(port=0, db=Path(folder) / "tocsin.db")) as service:
        fill(service, asked)
        print(f"| {'what':48s} | seconds |\n|{'-' * 50}|---------|")
        steps = f"{asked.steps} steps x {asked.metrics} metrics"
        told(f"curves of {steps}, answer", lambda: get(service, "/v1/runs/big/charts"))
        told(f"{asked.runs} runs, first answer", lambda: get(service, "/v1/overview?limit=2000"))
        told(f"{asked.runs} runs, next answer", lambda: get(service, "/v1/overview?limit=2000"))
        with sync_playwright() as driver:
            chromium = shutil.which("chromium") or "chromium"
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            told(f"{steps}, first chart drawn", lambda: show(browser, service, "runs/big", "canvas"))
            told(f"{asked.runs} runs, list drawn", lambda: show(browser, service, "", "[data-run]"))
            live(browser, service, asked)
            browser.close()


def fill(service: Service, asked: argparse.Namespace) -> None:
    for first in range(0, asked.steps, BATCH):
        send(service, "big", range(first, min(first + BATCH, asked.steps)), asked.metrics)
    for run in range(asked.runs - 1):
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


def show(browser: Any, service: Service, view: str, wanted: str) -> None:
    page = browser.new_page()
    page.goto(f"{service.address}/dashboard/#/{view}")
    page.wait_for_selector(wanted)


def told(what: str, act: Callable[[], object]) -> None:
    begun = time.perf_counter()
    act()
    print(f"| {what:48s} | {time.perf_counter() - begun:7.2f} |", flush=True)


def live(browser: Any, service: Service, asked: argparse.Namespace) -> None:
    """Sends steps one after the other to a run that is shown, each as soon as the page has shown the one before."""
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    page.goto(f"{service.address}/dashboard/#/runs/big")
    page.wait_for_selector("#status.live")
    heaps = [heap(session)]
    begun = time.perf_counter()
    for update in range(asked.updates):
        step = asked.steps + update
        send(service, "big", range(step, step + 1), asked.metrics)
        page.wait_for_selector(f'[data-metric="critic/score/mean"] [data-last="{step}"]')
        threading.Event().wait(0.01)
        if (update + 1) % max(1, asked.updates // 3) == 0:
            heaps.append(heap(session))
    seconds = (time.perf_counter() - begun) / asked.updates
    print(f"| {'a live step, from sent to shown':48s} | {seconds:7.2f} |")
    print(f"\nheap of the page, MB, over {asked.updates} live steps:", *(f"{one:.1f}" for one in heaps))


def heap(session: Any) -> float:
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


if __name__ == "__main__":
    main()
