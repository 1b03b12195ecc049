"""What one ``tocsin.log`` of 100 metrics costs the trainer's thread and the client's own, with and without a spool and
over Redis, beside ``json.dumps`` of the same metrics on the same thread.

    python benchmarks/client.py [--calls 300] [--rounds 5]

Each call is made when the one before is delivered, as in a training run, where steps are seconds apart. The trainer's
thread is measured by its own CPU time; what the process needs beyond that is the background thread's. The server only
takes and answers, in a process of its own. Figures are medians over the rounds; ratios are of one round.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import tocsin

METRICS = 100

SINK = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(202)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    do_PUT = do_POST
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Cost(NamedTuple):
    """CPU time of one vector in microseconds: of the trainer's thread, and of the client's."""

    caller: float
    background: float


@contextmanager
def sink() -> Iterator[str]:
    """The address of an HTTP server that takes everything."""
    with subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


@contextmanager
def redis() -> Iterator[str]:
    """The address of a redis-server that persists nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        next(line for line in server.stdout if "Ready to accept connections" in line)
        yield f"redis://127.0.0.1:{port}"
        server.kill()


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
    pause = threading.Event()  # never set: a wait that is no busy loop
    run.log(vector)  # starts the thread and connects
    caller = 0.0
    outside = time.thread_time()
    process = 0.0
    for call in range(1, calls + 2):
        while run.stats()["delivered"] < call:
            pause.wait(0.001)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    vector = metrics()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        http = stack.enter_context(sink())
        ways: dict[str, tuple[str, str | None]] = {"HTTP": (http, None), "HTTP, spool": (http, folder)}
        if shutil.which("redis-server"):
            address = stack.enter_context(redis())
            ways |= {"Redis": (address, None), "Redis, spool": (address, folder)}
        costs: dict[str, list[Cost]] = {way: [] for way in ways}
        dumps: list[float] = []
        for _ in range(arguments.rounds):
            dumps.append(json_us(vector, arguments.calls))
            for way, (url, spool) in ways.items():
                costs[way].append(log_us(vector, arguments.calls, url, spool))
    print(f"{arguments.rounds} rounds of {arguments.calls} calls, {METRICS} metrics a call; CPU time in us a call")
    print(f"{'json.dumps':14s} {statistics.median(dumps):8.1f}")
    for way, found in costs.items():
        ratios = [cost.caller / dump for cost, dump in zip(found, dumps, strict=True)]
        print(
            f"{way:14s} {statistics.median(cost.caller for cost in found):8.1f} on the trainer's thread: "
            f"{statistics.median(ratios):.2f} times json.dumps (min {min(ratios):.2f}, max {max(ratios):.2f}); "
            f"{statistics.median(cost.background for cost in found):8.1f} in the background"
        )


if __name__ == "__main__":
    main()
