"""What runs cost in a Redis store, in bytes: per log entry, and per run whatever the length of its log.

    python benchmarks/redis_memory.py [--entries 2000] [--metrics 100]

Needs redis-server (Debian: redis-server). One run with that many metrics is sent and judged as usual, with the shipped
rules; then Redis is asked how large each key is.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import redis

from engine import rows
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.exposition import Exposition
from tocsin_service.judging.worker import Worker
from tocsin_service.store import Record
from tocsin_service.store.redis import Address, RedisStore

BATCH = 100


def vectors(entries: int, metrics: int) -> list[StepVector]:
    """Vectors with so many metrics: the usual ones, and made-up ones to fill up."""
    made = []
    for one in rows(entries):
        extra = {f"custom/metric_{n}": (one.step * 0.37 + n) % 1.7 for n in range(max(0, metrics - len(one.metrics)))}
        kept = dict(list({**one.metrics, **extra}.items())[:metrics])
        if one.step % 100 > 90:
            kept[next(iter(kept))] = math.nan  # so that there are alerts
        made.append(StepVector(one.step, kept, one.time))
    return made


def fill(store: RedisStore, sent: list[StepVector]) -> None:
    store.append("run", [Record(RunConfig("grpo", "verl"))], 0.0).result(60)
    worker = Worker(store, Exposition(store))
    worker.start()
    for start in range(0, len(sent), BATCH):
        records = [Record(one, f"{one.step:032x}") for one in sent[start : start + BATCH]]  # as long as real keys
        store.append("run", records, 1.7e9).result(60)
        worker.wake("run")
    assert worker.wait_idle(600)
    worker.stop(60)


def table(client: redis.Redis, entries: int) -> None:
    sizes = {}
    for key in client.scan_iter("tocsin:{run}:*"):
        size = client.memory_usage(key, samples=0)
        sizes[key.decode().removeprefix("tocsin:{run}:")] = size
    grows = {"log": "the entries", "keys": "idempotency keys", "marks": "marks of steps"}
    print(f"{'with the log':24s} {'bytes/entry':>12s}")
    for name, meaning in grows.items():
        print(f"{meaning:24s} {sizes.pop(name, 0) / entries:12.1f}")
    print(f"\n{'per run':24s} {'bytes':>12s}")
    for name, meaning in {"state": "engine state", "run": "facts", "times": "latest times", "config": "config"}.items():
        print(f"{meaning:24s} {sizes.pop(name, 0):12d}")
    alerts = client.hlen("tocsin:alerts")
    print(f"\n{'per alert, of ' + str(alerts):24s} {'bytes':>12s}")
    print(f"{'indexes, known events':24s} {sum(sizes.values()) / alerts:12.0f}")
    for kind in ("alerts", "incidents"):
        print(f"{kind:24s} {client.memory_usage(f'tocsin:{kind}', samples=0) / alerts:12.0f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--metrics", type=int, default=100)
    options = parser.parse_args()
    sent = vectors(options.entries, options.metrics)
    with tempfile.TemporaryDirectory(prefix="tocsin-") as folder:
        socket = Path(folder) / "redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            next(line for line in server.stdout if "ready to accept" in line)
            store = RedisStore(Address(f"unix://{socket}"))
            with redis.Redis(unix_socket_path=str(socket)) as client:
                before = client.info("memory")["used_memory"]
                fill(store, sent)
                print(f"{options.entries} entries of {options.metrics} metrics\n")
                table(client, options.entries)
                used = client.info("memory")["used_memory"] - before
                print(f"\n{'everything':24s} {used:12d}   {used / options.entries:.0f} bytes/entry")
            store.close()
        finally:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    sys.exit(main())
