"""A flood of hostile requests at a real process: its memory comes to an end."""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

MIB = 2**20
RUNS = 40
NAMES = 3_400  # of runs, in a round
AHEAD = 25  # requests sent without waiting for answers
GROWTH = 48 * MIB  # generous: what one round takes in is several times as much
STEP = b'{"step": %d, "metrics": {"loss": 1}}'
GZIP = {"content-encoding": "gzip"}


def request(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    lines = {"Host": "localhost", **(headers or {}), "Content-Length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


class Flood:
    """One round after the other of everything that could leave something behind."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.where = (parts.hostname or "", parts.port or 0)
        self.statuses: Counter[int] = Counter()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.where, timeout=60)

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.burst([request(method, path, body, headers or {})])

    def burst(self, requests: list[bytes]) -> None:
        """Sends them all over one connection, some at a time without waiting for answers."""
        for start in range(0, len(requests), AHEAD):
            *ahead, last = requests[start : start + AHEAD]
            with self.connect() as connection:
                with suppress(ConnectionError):  # an answer may come before the end
                    connection.sendall(b"".join(ahead) + last.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                heard = b""
                with suppress(ConnectionError):
                    while piece := connection.recv(2**16):
                        heard += piece
            self.statuses.update(int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", heard))

    def round(self, number: int) -> None:
        self._names(number)
        self._bodies()
        self._heads(number)
        self._connections()

    def _names(self, number: int) -> None:
        runs = [quote(f"made-up-{number}-{count}-" + "é" * 100) for count in range(NAMES)]
        self.burst([request("POST", f"/v1/runs/{run}/steps", STEP % 1) for run in runs])
        for count in range(30):
            names = {f"round-{number}/metric-{count}-{one}": 1.0 for one in range(100)}
            silence = {"author": "a", "comment": "b" * 1000, "hours": 1, "id": f"{number}-{count % 10}"}
            silence["matchers"] = {"run": "x" * 256}
            self.burst(
                [
                    request("POST", "/v1/runs/known/steps", json.dumps({"step": count, "metrics": names}).encode()),
                    request("GET", f"/v1/runs/{number}-{count}/alerts"),
                    request("GET", f"/{number}/{count}/{'x' * 1000}"),
                    request("GET", "/v1/runs", headers={"Authorization": f"Bearer {number}-{count}"}),
                    request("POST", "/v1/silences", json.dumps(silence).encode()),
                ]
            )

    def _bodies(self) -> None:
        for body in (
            gzip.compress(b" " * 60 * MIB, 1),
            gzip.compress(b"[" + b"[]," * (20 * MIB // 3), 1),
            gzip.compress(b"") * 100_000,
            gzip.compress(b'{"step": 1, "metrics": {"a": ' + b"9" * MIB + b"}}"),
        ):
            self.send("POST", "/v1/runs/known/steps", body, GZIP)
        for body in (b"[" * MIB, b'{"step": "' + b"x" * 7 * MIB + b'"}', b"\xff" * MIB, b" " * 9 * MIB):
            self.send("POST", "/v1/runs/known/steps", body)

    def _heads(self, number: int) -> None:
        for count in range(25):
            self.send("GET", f"/v1/alerts?{number}-{count}=" + "x" * 20_000)
            self.send("GET", "/v1/runs", headers={f"x-{number}-{count}": "x" * 20_000})

    def _connections(self) -> None:
        with ExitStack() as stack:
            for _ in range(50):
                connection = stack.enter_context(self.connect())
                with suppress(ConnectionError):
                    connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"x" * MIB)
            for _ in range(50):
                connection = stack.enter_context(self.connect())
                with suppress(ConnectionError):
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)


def resident(pid: int) -> int:
    """Bytes of memory that a process has now."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@pytest.mark.timeout(600)  # ten seconds of work, on a machine that may have much else to do
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc to look into")
def test_memory_is_bounded(start_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What glibc keeps of memory that was freed depends on which thread took which body: here it keeps little of it.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    config = tmp_path / "tocsin.toml"
    config.write_text(f"max_runs = {RUNS}\nmax_run_rate = 0\nmax_token_rate = 0\n")
    process = start_process("serve", "--config", str(config), "--db", str(tmp_path / "t.db"))
    flood = Flood(process.api.address)
    flood.send("POST", "/v1/runs/known/steps", STEP % 1)
    flood.round(0)
    before = resident(process.popen.pid)
    flood.round(1)
    flood.round(2)
    grown = resident(process.popen.pid) - before
    assert grown < GROWTH, f"{grown / MIB:.0f} MiB more than {before / MIB:.0f} MiB"
    assert not [status for status in flood.statuses if status >= 500], flood.statuses
    assert flood.statuses[429] >= 3 * NAMES - RUNS  # of 10,200 names only so many became runs
    assert len(process.api.get("/v1/runs").json["runs"]) == RUNS
    assert process.api.get("/readyz").status == 200
    assert "Traceback" not in "".join(process.log)
    assert len("".join(process.log)) < 100_000  # nor does it fill the disk with complaints
