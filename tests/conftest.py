"""Recorded training runs for every test that asks for a ``recording`` or a ``collapse``, and a real Redis server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import hypothesis
import pytest

from tocsin import readers
from tocsin_detectors.entries import RunConfig, StepVector

# Everywhere else each run of the property tests looks at new examples; CI looks at the same ones, and stays quiet about
# what a change has nothing to do with.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

RUNS = Path(__file__).parent / "data" / "runs"


@dataclass(frozen=True)
class Recording:
    """A run of a real trainer, healthy or sabotaged at a known step (see tests/data/runs/README.md)."""

    name: str
    path: Path
    label: str
    onset: int | None
    told: dict[str, Any]

    @property
    def config(self) -> RunConfig:
        return RunConfig(**self.told)

    @property
    def vectors(self) -> list[StepVector]:
        return [StepVector(vector.step, vector.metrics, vector.time) for vector in readers.read(self.path)]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The vectors as a trainer posts them."""
        return [{"step": vector.step, "metrics": dict(vector.metrics), "time": vector.time} for vector in self.vectors]


@cache
def recordings() -> tuple[Recording, ...]:
    index = json.loads((RUNS / "index.json").read_text())
    return tuple(
        Recording(row["name"], (RUNS / row["file"]).resolve(), row["label"], row["onset_step"], row["config"])
        for row in index
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``recording``: each recorded run; ``healthy`` and ``collapse``: those with that label."""
    for name in ("recording", "healthy", "collapse"):
        if name in metafunc.fixturenames:
            wanted = [run for run in recordings() if name in ("recording", run.label)]
            metafunc.parametrize(name, wanted, ids=[run.name for run in wanted])


@pytest.fixture
def recorded() -> tuple[Recording, ...]:
    """All recorded runs at once."""
    return recordings()


READY = "eady to accept connections"


@dataclass
class RedisServer:
    """A redis-server in a folder of its own. It keeps its port and its folder when it is started again.

    Attributes:
        folder: short, so that a socket's path fits; what the server persists lies here too.
        options: of the command line, e.g. ``"--appendonly", "yes"``; by default nothing is persisted.
        log: what the server has written.
    """

    folder: Path
    options: tuple[str, ...] = ()
    port: int = 0
    log: list[str] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def socket_url(self) -> str:
        return f"unix://{self.folder}/redis.sock"

    def start(self) -> None:
        """Returns when connections are accepted (and what was persisted has been loaded)."""
        for _ in range(10):  # another process may take the port that was free a moment ago
            self.port = self.port or _free_port()
            if self._start():
                return
            self.port = 0
        pytest.fail("redis-server doesn't start:\n" + "".join(self.log))

    def _start(self) -> bool:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--dir", str(self.folder), "--unixsocket", str(self.folder / "redis.sock"), *self.options]
        ready = threading.Event()
        self.log.clear()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, ready), daemon=True)
        self._reader.start()
        assert ready.wait(30)
        if any(READY in line for line in self.log):
            return True
        self.kill()
        return False

    def _read(self, output: IO[str], ready: threading.Event) -> None:
        with output:
            for line in output:
                self.log.append(line)
                if READY in line:
                    ready.set()
        ready.set()

    def kill(self) -> None:
        """Ends it at once, as a crash does. May be called twice."""
        if self._process is not None and self._reader is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process = None

    def cli(self, *words: str) -> str:
        """What ``redis-cli`` prints for a command."""
        command = ["redis-cli", "-s", str(self.folder / "redis.sock"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _new_redis(stack: ExitStack, *options: str) -> RedisServer:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tocsin-")))
    server = RedisServer(folder, options)
    stack.callback(server.kill)
    server.start()
    return server


@pytest.fixture(scope="session")
def _shared_redis() -> Iterator[RedisServer]:
    with ExitStack() as stack:
        yield _new_redis(stack)


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """An empty Redis, which a test must not stop or configure."""
    _shared_redis.cli("FLUSHALL")
    return _shared_redis


@pytest.fixture
def make_redis() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers of the test's own, with options of the command line."""
    with ExitStack() as stack:
        yield lambda *options: _new_redis(stack, *options)
