"""What a batch's tensors cost the service: time and peak memory of a request, and what ingest notices of it.

    python benchmarks/tensor_endpoint.py [--rows 512] [--width 8192] [--repeats 5]

The service runs in a process of its own, on this machine, with its defaults. Log-probs of 512 responses, lengths
uniform up to 8,192 tokens, so that half of the padded slots hold none. Peak memory is that of the service's process
above what it had before the request (``VmHWM``, reset before each), after a small batch has loaded what it needs.
Trainer: how long ``Run.log_tensors`` keeps it, which copies the tensors, and when they are computed and stored.
Ingest: the time of one step vector after the other, without and with tensors being computed beside it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tocsin

MIB = 2**20


@dataclass(frozen=True)
class Server:
    """A service in a process of its own."""

    address: str
    process: int

    def post(self, path: str, body: bytes, connection: http.client.HTTPConnection | None = None) -> dict[str, Any]:
        """The answer to one request, which has to be taken."""
        used = connection or http.client.HTTPConnection(self.address, timeout=600)
        used.request("POST", path, body)
        response = used.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        assert response.status < 300, answer
        if connection is None:
            used.close()
        return answer

    def memory(self, name: str) -> int:
        """A figure of /proc in bytes: VmRSS, VmHWM."""
        text = Path(f"/proc/{self.process}/status").read_text(encoding="ascii")
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        assert found
        return int(found.group(1)) * 1024

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process}/clear_refs").write_text("5", encoding="ascii")


@contextmanager
def serve() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tocsin_service", "serve", "--port", "0", "--db", f"{folder}/t.db"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        try:
            heard = (re.search(r"listening on http://([^\s,]+)", line) for line in process.stderr)
            yield Server(next(found.group(1) for found in heard if found), process.pid)
        finally:
            process.terminate()
            process.wait()
            process.stderr.close()


def pack(tensors: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors body."""
    dtypes = {"float32": "F32", "int32": "I32", "bool": "BOOL", "float16": "F16"}
    header, begin = {}, 0
    for name, tensor in tensors.items():
        end = begin + tensor.nbytes
        header[name] = {"dtype": dtypes[tensor.dtype.name], "shape": tensor.shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *(tensor.tobytes() for tensor in tensors.values())])


def batches(rows: int, width: int, gap: float = 0.01, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """The same batch, ragged and padded. ``gap``: standard deviation of the difference between the two engines."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, width, rows, endpoint=True).astype(np.int32)
    mask = np.arange(width) < lengths[:, None]
    old = -random.exponential(0.5, int(lengths.sum())).astype(np.float32)
    rollout = old + gap * random.standard_normal(old.size, dtype=np.float32)
    padded = {}
    for name, flat in (("old_log_probs", old), ("rollout_log_probs", rollout)):
        padded[name] = np.zeros((rows, width), np.float32)
        padded[name][mask] = flat
    return {
        "ragged": {"old_log_probs": old, "rollout_log_probs": rollout, "response_lengths": lengths},
        "padded": {**padded, "response_mask": mask},
    }


ALL = "rollout_is=token&rollout_rs=token_k1,seq_mean_k3,seq_max_k2&rollout_rs_threshold=2.0"


def requests(server: Server, sent: Mapping[str, bytes], repeats: int) -> None:
    print("| layout | options | MiB | request, s | tokens/s | peak above idle, MiB | of the body |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    step = 0
    for layout, body in sent.items():
        for label, options in (("defaults", ""), ("token weights, 3 rejections", f"&{ALL}")):
            times, peaks = [], []
            for _ in range(repeats):
                step += 1
                before = server.memory("VmRSS")
                server.reset_peak()
                begin = time.perf_counter()
                server.post(f"/v1/runs/bench/tensors?step={step}{options}", body)
                times.append(time.perf_counter() - begin)
                peaks.append(server.memory("VmHWM") - before)
            seconds, peak = statistics.median(times), max(peaks)
            tokens = len(sent["ragged"]) / 8
            print(
                f"| {layout} | {label} | {len(body) / MIB:.1f} | {seconds:.3f} | {tokens / seconds / 1e6:.1f} M "
                f"| {peak / MIB:.1f} | {peak / len(body):.2f} |"
            )


def trainer(server: Server, tensors: Mapping[str, Mapping[str, np.ndarray]], repeats: int) -> None:
    print("\n| layout | log_tensors, ms | until it is stored, s |\n| --- | ---: | ---: |")
    for layout, batch in tensors.items():
        calls, totals = [], []
        for step in range(repeats):
            with tocsin.Run(f"trainer-{layout}", url=f"http://{server.address}") as run:
                begin = time.perf_counter()
                run.log_tensors(batch, step)
                calls.append(time.perf_counter() - begin)
                assert run.finish(600), run.tensor_stats()
                totals.append(time.perf_counter() - begin)
        print(f"| {layout} | {1e3 * statistics.median(calls):.1f} | {statistics.median(totals):.3f} |")


def ingest(server: Server, body: bytes, seconds: float) -> None:
    """Latency of single vectors, alone and beside tensors that come one after the other."""
    print("\n| beside | vectors | median, ms | p99, ms | longest, ms |\n| --- | ---: | ---: | ---: | ---: |")
    server.post(f"/v1/runs/load/tensors?step=0&{ALL}", body)  # a run's first vector sets its rules up
    alone = latencies(server, "alone", seconds)
    stop = threading.Event()

    def load() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            server.post(f"/v1/runs/load/tensors?step={step}&{ALL}", body)

    thread = threading.Thread(target=load)
    thread.start()
    beside = latencies(server, "beside", seconds)
    stop.set()
    thread.join()
    for label, found in (("nothing", alone), ("tensors", beside)):
        found.sort()
        middle, late = statistics.median(found), found[int(0.99 * len(found))]
        print(f"| {label} | {len(found)} | {1e3 * middle:.2f} | {1e3 * late:.2f} | {1e3 * found[-1]:.1f} |")
    print(f"\nmedian ratio {statistics.median(beside) / statistics.median(alone):.2f}")


def latencies(server: Server, run: str, seconds: float) -> list[float]:
    connection = http.client.HTTPConnection(server.address, timeout=60)
    found: list[float] = []
    end = time.perf_counter() + seconds
    step = 0
    while (begin := time.perf_counter()) < end:
        step += 1
        server.post(f"/v1/runs/{run}/steps", json.dumps({"step": step, "metrics": {"x": step}}).encode(), connection)
        found.append(time.perf_counter() - begin)
        time.sleep(0.005)  # a trainer's pace, not a flood's
    connection.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each half of the ingest measurement")
    arguments = parser.parse_args()
    tensors = batches(arguments.rows, arguments.width)
    sent = {layout: pack(batch) for layout, batch in tensors.items()}
    with serve() as server:
        begin = time.perf_counter()
        server.post(f"/v1/runs/warm/tensors?step=0&{ALL}", pack(batches(64, 1024)["ragged"]))
        print(f"first request of the process, which loads torch: {time.perf_counter() - begin:.1f} s\n")
        requests(server, sent, arguments.repeats)
        trainer(server, tensors, arguments.repeats)
        ingest(server, sent["ragged"], arguments.seconds)


if __name__ == "__main__":
    main()
