"""Durable, judged step vectors per second over every way in, beside a bare route and the bare engine, in one run.

    python benchmarks/ingest.py [--vectors 3000] [--rounds 3] [--only rate,workers,latency,memory]

Needs redis-server (Debian: redis-server). Vectors have 100 metrics. "stored" is the time until the last answer;
"judged" the time until the last vector is folded and committed. Everything runs on this machine: load, servers, Redis.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import httpx2
import redis

from engine import rows

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.fleet import Receiver, Tocsin, eventually, free_port
from tests.receiver_files import unpaced

from tocsin_detectors.engine import Engine

RUNS = 8
BATCH = 100
BARE = """
import sys, uvicorn
from fastapi import FastAPI, Request, Response
app = FastAPI()
@app.post("/v1/runs/{run}/steps", status_code=202)
async def take(run: str, request: Request) -> Response:
    await request.body()
    return Response(status_code=202)
print("ready", flush=True)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""


def bodies(count: int) -> list[dict[str, Any]]:
    return [{"step": one.step, "metrics": dict(one.metrics), "time": one.time} for one in rows(count)]


def request(run: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/runs/{run}/steps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def exchange(connection: socket.socket, sent: bytes) -> bytes:
    """The answer to a request, whole."""
    connection.sendall(sent)
    answer = connection.recv(65536)
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    missing = int(length.split(b":")[1]) - len(body)
    while missing > 0:
        missing -= len(connection.recv(missing))
    return answer


def blast(url: str, requests: dict[str, list[bytes]]) -> float:
    """Sends each run's requests over a connection of its own, one after the other; the seconds it took."""
    parts = urlsplit(url)
    trouble: list[bytes] = []

    def send(mine: list[bytes]) -> None:
        with socket.create_connection((parts.hostname, parts.port)) as connection:
            for one in mine:
                answer = exchange(connection, one)
                if not answer.startswith(b"HTTP/1.1 202"):
                    trouble.append(answer)

    threads = [threading.Thread(target=send, args=(mine,)) for mine in requests.values()]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble, trouble[0]
    return time.perf_counter() - begin


def wait_judged(url: str, names: list[str]) -> None:
    """Until nothing of these runs waits to be folded."""
    with httpx2.Client(base_url=url, timeout=60) as api:

        def judged() -> bool:
            pending = {row["run"]: row["pending"] for row in api.get("/v1/runs").json()["runs"]}
            return all(pending.get(name) == 0 for name in names)

        eventually(judged, 600, "everything folded")


@contextmanager
def bare_route() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port)], stdout=subprocess.PIPE, text=True)
    try:
        with httpx2.Client() as client:
            eventually(lambda: reachable(client, f"http://127.0.0.1:{port}/"), 30, "the bare route")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def reachable(client: httpx2.Client, url: str) -> bool:
    try:
        client.get(url)
    except httpx2.HTTPError:
        return False
    return True


@contextmanager
def serving(*processes: Tocsin) -> Iterator[None]:
    with ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
            process.start()
        yield


@contextmanager
def redis_server() -> Iterator[str]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen([*command, "--appendonly", "yes"], stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            with redis.Redis.from_url(url) as client:
                eventually(lambda: pings(client), 30, "redis-server")
            yield url
        finally:
            process.kill()
            process.wait()


def pings(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


class Load:
    """The same vectors in every form."""

    def __init__(self, vectors: int) -> None:
        self.names = [f"run-{number}" for number in range(RUNS)]
        each = bodies(vectors // RUNS // BATCH * BATCH or BATCH)
        self.vectors = dict.fromkeys(self.names, each)
        self.count = RUNS * len(each)
        self.singles = {name: [request(name, body) for body in each] for name in self.names}
        self.batches = {
            name: [request(name, each[start : start + BATCH]) for start in range(0, len(each), BATCH)]
            for name in self.names
        }
        self.texts = [json.dumps(body) for body in each]


def engine_alone(load: Load) -> float:
    """Vectors per second of the engine in a bare loop."""
    vectors = rows(load.count // RUNS)
    begin = time.perf_counter()
    for name in load.names:
        engine = Engine(name)
        for vector in vectors:
            engine.feed(vector)
    return load.count / (time.perf_counter() - begin)


def over_http(load: Load, requests: dict[str, list[bytes]]) -> tuple[float, float]:
    """Vectors per second stored and judged by a fresh embedded service."""
    with tempfile.TemporaryDirectory() as folder:
        service = Tocsin(("serve",), {"db": f"{folder}/tocsin.db"})
        with serving(service):
            begin = time.perf_counter()
            stored = blast(service.url, requests)
            wait_judged(service.url, load.names)
            return load.count / stored, load.count / (time.perf_counter() - begin)


def over_redis(load: Load, workers: int) -> tuple[float, float]:
    """Vectors per second stored by plain XADD in pipelines of 100, and judged by ``workers`` fresh workers."""
    with redis_server() as url:
        web, *rest = [Tocsin((word,), {"store": url}) for word in ("serve", *("worker",) * workers)]
        with serving(web, *rest), redis.Redis.from_url(url) as client:
            begin = time.perf_counter()
            for start in range(0, len(load.texts), BATCH):
                for name in load.names:
                    pipeline = client.pipeline(transaction=False)
                    for text in load.texts[start : start + BATCH]:
                        pipeline.xadd(f"tocsin:{{{name}}}:log", {"vector": text})
                    nudge(pipeline, name)
                    pipeline.execute()
            stored = time.perf_counter() - begin
            wait_judged(web.url, load.names)
            return load.count / stored, load.count / (time.perf_counter() - begin)


def nudge(client: Any, run: str) -> None:
    client.xadd(f"tocsin:nudges:{crc32(run.encode()) % 16}", {"run": run})


def rate(arguments: argparse.Namespace) -> None:
    load = Load(arguments.vectors)
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for _ in range(arguments.rounds):
        note("engine alone", engine_alone(load))
        with bare_route() as url:
            note("bare route, single", load.count / blast(url, load.singles))
            note("bare route, batches", load.count / blast(url, load.batches))
        for name, requests in (("HTTP single", load.singles), ("HTTP batches", load.batches)):
            stored, judged = over_http(load, requests)
            note(f"{name}, stored", stored)
            note(f"{name}, judged", judged)
        stored, judged = over_redis(load, 1)
        note("Redis, stored", stored)
        note("Redis, judged", judged)
    base = found["engine alone"]
    bare = {"HTTP single": found["bare route, single"], "HTTP batches": found["bare route, batches"]}
    print(f"{load.count} vectors of 100 metrics, {RUNS} runs, batches of {BATCH}, median of {arguments.rounds} rounds")
    print(f"{'':24s}{'vectors/s':>12s}{'of bare route':>16s}{'of engine alone':>18s}")
    for name, values in found.items():
        route = bare.get(name.split(",")[0])
        of_route = f"{median_ratio(values, route):.2f}" if route else ""
        print(f"{name:24s}{statistics.median(values):12.0f}{of_route:>16s}{median_ratio(values, base):18.2f}")


def median_ratio(values: list[float], base: list[float]) -> float:
    return statistics.median(value / one for value, one in zip(values, base, strict=True))


def workers(arguments: argparse.Namespace) -> None:
    load = Load(arguments.vectors)
    ratios = []
    for _ in range(arguments.rounds):
        one, two = over_redis(load, 1)[1], over_redis(load, 2)[1]
        ratios.append((two / one, one, two))
    ratio, one, two = sorted(ratios)[len(ratios) // 2]
    print(f"workers on Redis: 1 judges {one:.0f} vectors/s, 2 judge {two:.0f}: {ratio:.2f} times as many")


def latency(arguments: argparse.Namespace) -> None:
    """POST-to-receiver times of the first bad vector of a run, while 100 vectors a second come in."""
    with Receiver() as receiver, tempfile.TemporaryDirectory() as folder:
        receivers = str(unpaced(Path(folder), "webhook", receiver.url))
        service = Tocsin(("serve",), {"db": f"{folder}/t.db", "receivers": receivers})
        with serving(service):
            sent, heard = steady(service.url, receiver, arguments.seconds)
        show_latency("embedded", sent, heard)
    with Receiver() as receiver, redis_server() as url, tempfile.TemporaryDirectory() as folder:
        settings = {"store": url, "receivers": str(unpaced(Path(folder), "webhook", receiver.url))}
        web, worker = (Tocsin((word,), settings) for word in ("serve", "worker"))
        with serving(web, worker):
            sent, heard = steady(web.url, receiver, arguments.seconds)
        show_latency("Redis", sent, heard)


def steady(url: str, receiver: Receiver, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Every tenth vector breaks a run of its own, which had twenty healthy ones before."""
    each = bodies(400)
    sent: dict[str, float] = {}
    heard: dict[str, float] = {}
    receiver.refuse_every = 0
    receiver.heard = lambda message: heard.setdefault(message["run"], time.perf_counter())
    names = [f"breaks-{number}" for number in range(round(seconds * 10))]
    blast(url, {name: [request(name, each[:20])] for name in names})
    wait_judged(url, names)
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        begin = time.perf_counter()
        for number in range(round(seconds * 100)):
            time.sleep(max(0.0, begin + number / 100 - time.perf_counter()))
            body = each[20 + number // 10 % 300]
            name = f"steady-{number % 10}"
            if number % 10 == 0:
                name = names[number // 10]
                body = {**body, "step": 21, "metrics": {**body["metrics"], "actor/grad_norm": float("nan")}}
                sent[name] = time.perf_counter()
            answer = exchange(connection, request(name, {**body, "sequence": str(number)}))
            assert answer.startswith(b"HTTP/1.1 202"), answer
    eventually(lambda: len(heard) >= len(sent), 30, "every alert heard of")
    return sent, heard


def show_latency(name: str, sent: dict[str, float], heard: dict[str, float]) -> None:
    times = sorted(1000 * (heard[run] - begin) for run, begin in sent.items())
    quantiles = statistics.quantiles(times, n=100, method="inclusive")
    print(
        f"{name}: {len(times)} alerts at 100 vectors/s, from POST to receiver: "
        f"p50 {quantiles[49]:.1f} ms, p99 {quantiles[98]:.1f} ms, most {times[-1]:.1f} ms"
    )


def memory(_: argparse.Namespace) -> None:
    """Resident memory and disk of the embedded service, and Redis' memory, for 1,000 runs of 30 vectors."""
    each = bodies(30)
    names = [f"run-{number}" for number in range(1000)]
    with tempfile.TemporaryDirectory() as folder:
        service = Tocsin(("serve",), {"db": f"{folder}/t.db"})
        with serving(service):
            before = resident_kib(service)
            send_all(service.url, names, each)
            grown = resident_kib(service) - before
            disk = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1024
        print(f"embedded: {before / 1024:.0f} MiB empty, {grown / 1000:.1f} KiB a run more, {disk / 1000:.1f} KiB disk")
    with redis_server() as url, redis.Redis.from_url(url) as client:
        web, worker = Tocsin(("serve",), {"store": url}), Tocsin(("worker",), {"store": url})
        with serving(web, worker):
            before, used = resident_kib(worker), client.info("memory")["used_memory"]
            send_all(web.url, names, each)
            grown = resident_kib(worker) - before
            used = (client.info("memory")["used_memory"] - used) / 1024
        print(f"Redis: worker {before / 1024:.0f} MiB empty, {grown / 1000:.1f} KiB a run; Redis {used / 1000:.1f} KiB")


def send_all(url: str, names: list[str], each: list[dict[str, Any]]) -> None:
    for start in range(0, len(names), RUNS):
        blast(url, {name: [request(name, each)] for name in names[start : start + RUNS]})
    wait_judged(url, names)


def resident_kib(process: Tocsin) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "rate": rate,
    "workers": workers,
    "latency": latency,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=3200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of steady load, for the latency")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    arguments = parser.parse_args()
    for name in arguments.only.split(","):
        PARTS[name](arguments)


if __name__ == "__main__":
    main()
