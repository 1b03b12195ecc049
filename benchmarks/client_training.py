"""A tiny real training loop, with and without ``tocsin.log`` of 100 metrics in every step."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import tocsin
from client_peers import Log
from client_servers import PAUSE, serving, sink

SIZES = ((64, 256), (512, 512))  # rows and width: steps of about 1.5 and 15 ms on one core
INPUTS, CLASSES = 128, 10
BARE = "without"


def trainer(rows: int, width: int) -> Callable[[], float]:
    """One step of a small network on fixed noise; its loss."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the other cores are for the server
    layers = [nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)]
    network = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(network.parameters())
    inputs, labels = torch.randn(rows, INPUTS), torch.randint(CLASSES, (rows,))

    def step() -> float:
        loss = nn.functional.cross_entropy(network(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def step_ms(step: Callable[[], float], log: Log, metrics: dict[str, float], first: int, steps: int) -> float:
    """Milliseconds of one step, mean over all."""
    begin = time.perf_counter()
    for number in range(first, first + steps):
        log({**metrics, "actor/loss": step()}, number)
    return (time.perf_counter() - begin) / steps * 1e3


def settle(run: tocsin.Run, *, judged: bool) -> None:
    """Waits until nothing of the run is under way, so that the next loop has the machine for itself."""
    while run.stats()["waiting"]:
        PAUSE.wait(0.01)
    while judged and pending(run):
        PAUSE.wait(0.05)


def pending(run: tocsin.Run) -> int:
    """How many of its vectors the server has not judged yet."""
    with urllib.request.urlopen(f"{run.url}/v1/runs") as answer:  # noqa: S310 - our own server
        return sum(row["pending"] for row in json.load(answer)["runs"] if row["run"] == run.id)


def measure(step: Callable[[], float], metrics: dict[str, float], steps: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds a step by way, one for each round."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as url, sink() as taker:
        runs = {
            "HTTP, only taken": tocsin.Run("training", url=taker),
            "HTTP": tocsin.Run("training", url=url),
            "HTTP, spool": tocsin.Run("training-spool", url=url, spool=f"{folder}/spool"),
        }
        logs: dict[str, Log] = {BARE: lambda *_: None, "without, again": lambda *_: None}
        logs |= {way: run.log for way, run in runs.items()}
        found: dict[str, list[float]] = {way: [] for way in logs}
        for turn in range(rounds + 1):
            for way in list(logs)[:: -1 if turn % 2 else 1]:
                spent = step_ms(step, logs[way], metrics, turn * steps, steps)
                if turn:  # the first round warms up
                    found[way].append(spent)
                if way in runs:
                    settle(runs[way], judged=runs[way].url == url)
        for run in runs.values():
            assert run.finish(30)
            assert run.dropped == 0
    return found


def report(vector: dict[str, float], steps: int, rounds: int) -> None:
    metrics = dict(list(vector.items())[1:])  # the loss is the hundredth
    print(f"training: {rounds} rounds of {steps} steps, {len(vector)} metrics a step; tocsin serve on this machine")
    for rows, width in SIZES:
        found = measure(trainer(rows, width), metrics, steps, rounds)
        bare = found.pop(BARE)
        print(f"{BARE:16s} {statistics.median(bare):8.3f} ms a step")
        for way, times in found.items():
            slower = [(with_it / without - 1) * 100 for with_it, without in zip(times, bare, strict=True)]
            added = [(with_it - without) * 1e3 for with_it, without in zip(times, bare, strict=True)]
            print(
                f"{way:16s} {statistics.median(times):8.3f} ms a step: {statistics.median(slower):+.1f} % "
                f"(min {min(slower):+.1f}, max {max(slower):+.1f}), {statistics.median(added):+.0f} us a step"
            )
