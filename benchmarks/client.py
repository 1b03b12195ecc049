"""What one ``tocsin.log`` of 100 metrics costs the trainer: its thread, beside other trackers, and its loop.

    python benchmarks/client.py [--only cpu,peers,training] [--calls 300] [--steps 300] [--rounds 5] [--pause 0.005]

cpu: CPU time of the caller's thread and of the client's own, with and without a spool and over Redis, beside
``json.dumps`` of the same metrics. Each call is made when the one before is delivered, as in a training run, where
steps are seconds apart. The trainer's thread is measured by its own CPU time; what the process needs beyond that is the
background thread's. The server only takes and answers, in a process of its own.

peers: wall time of the caller's thread, beside other trackers in the same process, in turns, with ``--pause`` seconds
between two calls. A ratio is that of one round: to the quickest of the others, for the median and for the 99th
percentile each. Those that aren't installed are left out; they want an environment of their own:

    pip install expr_tracker==0.4.1 trackio==0.43.0 wandb==0.31.0 rlwatch==0.5.1

training: a small network trained on one core, with ``tocsin.log`` in each of its steps and without, in turns, for
steps of about 1.5 and 15 ms. Where the server is a real one on the same machine, it takes its share of the cores; the
one that only takes shows the client alone, whose thread takes its share of the interpreter. "without, again"
tells how much is the machine's noise. Needs torch.

Figures are medians over the rounds; ratios are of one round. Redis needs redis-server (Debian: redis-server).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import tocsin
from client_peers import PEERS, RLWATCH, Log
from client_servers import PAUSE, redis, sink

METRICS = 100
PARTS = ("cpu", "peers", "training")
WARM_UP = 20  # calls before the first round
SETTLE = 1.0  # seconds in which a tracker finishes in the background what it was given


class Cost(NamedTuple):
    """CPU time of one vector in microseconds: of the trainer's thread, and of the client's."""

    caller: float
    background: float


def metrics() -> dict[str, float]:
    rng = random.Random(0)  # noqa: S311 - noise, not secrets
    return {f"family_{number % 10}/metric_{number}/mean": rng.gauss(0, 1) for number in range(METRICS)}


def json_us(vector: dict[str, float], calls: int) -> float:
    begin = time.thread_time()
    for _ in range(calls):
        json.dumps(vector)
    return (time.thread_time() - begin) / calls * 1e6


def log_us(vector: dict[str, float], calls: int, url: str, spool: str | None) -> Cost:
    run = tocsin.Run("benchmark", url=url, spool=spool)
    run.log(vector)  # starts the thread and connects
    caller = 0.0
    outside = time.thread_time()
    process = 0.0
    for call in range(1, calls + 2):
        while run.stats()["delivered"] < call:
            PAUSE.wait(0.001)
        if call == 1:
            outside, process = time.thread_time(), time.process_time()
        if call <= calls:
            begin = time.thread_time()
            run.log(vector)
            caller += time.thread_time() - begin
    # The waiting above is this thread's, and neither the trainer's nor the client's.
    background = (time.process_time() - process) - (time.thread_time() - outside)
    assert run.finish(30)
    return Cost(caller / calls * 1e6, background / calls * 1e6)


@contextmanager
def servers() -> Iterator[dict[str, tuple[str, str | None]]]:
    """Address and spool of every way to send."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        http = stack.enter_context(sink())
        ways: dict[str, tuple[str, str | None]] = {"HTTP": (http, None), "HTTP, spool": (http, folder)}
        if shutil.which("redis-server"):
            address = stack.enter_context(redis())
            ways |= {"Redis": (address, None), "Redis, spool": (address, folder)}
        yield ways


def report_cpu(calls: int, rounds: int) -> None:
    vector = metrics()
    with servers() as ways:
        costs: dict[str, list[Cost]] = {way: [] for way in ways}
        dumps: list[float] = []
        for _ in range(rounds):
            dumps.append(json_us(vector, calls))
            for way, (url, spool) in ways.items():
                costs[way].append(log_us(vector, calls, url, spool))
    print(f"cpu: {rounds} rounds of {calls} calls, {METRICS} metrics a call; CPU time in us a call")
    print(f"{'json.dumps':14s} {statistics.median(dumps):8.1f}")
    for way, found in costs.items():
        ratios = [cost.caller / dump for cost, dump in zip(found, dumps, strict=True)]
        print(
            f"{way:14s} {statistics.median(cost.caller for cost in found):8.1f} on the trainer's thread: "
            f"{statistics.median(ratios):.2f} times json.dumps (min {min(ratios):.2f}, max {max(ratios):.2f}); "
            f"{statistics.median(cost.background for cost in found):8.1f} in the background"
        )


@contextmanager
def logging_to(url: str, spool: str | None) -> Iterator[Log]:
    run = tocsin.Run("benchmark-peers", url=url, spool=spool)
    yield run.log
    assert run.finish(30)
    assert run.dropped == 0


def wall_us(log: Log, vector: dict[str, float], steps: range, pause: float) -> list[float]:
    """Microseconds that each call kept the caller."""
    spent = []
    for step in steps:
        PAUSE.wait(pause)
        begin = time.perf_counter_ns()
        log(vector, step)
        spent.append((time.perf_counter_ns() - begin) / 1e3)
    return spent


def p99(times: list[float]) -> float:
    return sorted(times)[math.ceil(len(times) * 0.99) - 1]


def report_peers(calls: int, rounds: int, pause: float) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways = stack.enter_context(servers())
        logs = {way: stack.enter_context(logging_to(*where)) for way, where in ways.items()}
        peers = [name for name in PEERS if find_spec(name.split()[0])]
        for name in PEERS:
            if name in peers:
                logs[name] = stack.enter_context(PEERS[name](folder / name.split()[0]))
            else:
                print(f"{name} is not installed: left out")
        vectors = dict.fromkeys(logs, metrics())
        # Seven metrics have the names that it knows, so that its detectors look at them.
        vectors["rlwatch"] = RLWATCH | dict(list(metrics().items())[len(RLWATCH) :])
        times: dict[str, list[list[float]]] = {name: [] for name in logs}
        for name, log in logs.items():
            wall_us(log, vectors[name], range(WARM_UP), pause)
        for turn in range(rounds):
            first = WARM_UP + turn * calls
            for name, log in logs.items():
                PAUSE.wait(SETTLE)
                times[name].append(wall_us(log, vectors[name], range(first, first + calls), pause))
    print(f"peers: {rounds} rounds of {calls} calls, {METRICS} metrics a call; wall time in us a call")
    if peers:
        print("= ratio to the quickest of the others (least to most)")
    of_round: dict[str, Callable[[list[float]], float]] = {"median": statistics.median, "p99": p99}
    for name, found in times.items():
        print(f"{name:14s}", end="")
        for kind, figure in of_round.items():
            values = [figure(one) for one in found]
            print(f"  {kind} {statistics.median(values):7.1f}", end="")
            if peers:
                best = [min(figure(times[peer][turn]) for peer in peers) for turn in range(rounds)]
                ratios = [value / least for value, least in zip(values, best, strict=True)]
                print(f" = {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", end="")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--steps", type=int, default=300, help="of the training loop in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.005, help="seconds between two calls beside the peers")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if "cpu" in parts:
        report_cpu(arguments.calls, arguments.rounds)
    if "peers" in parts:
        report_peers(arguments.calls, arguments.rounds, arguments.pause)
    if "training" in parts:
        from client_training import report  # noqa: PLC0415 - needs torch

        report(metrics(), arguments.steps, arguments.rounds)


if __name__ == "__main__":
    main()
