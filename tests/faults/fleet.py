"""Tocsin's processes under fire: started, killed with -9 at random, started again on the same addresses."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Protocol, Self

from tests.wire import whole_body

DEAD = (0.0, 0.8)  # seconds that a killed process stays away
LISTENING = re.compile(r"listening on (\S+),")


class Killable(Protocol):
    """Something that can be started, killed and started again."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Tocsin:
    """``tocsin serve`` or ``tocsin worker`` with settings of its own; its port stays the same over restarts."""

    words: tuple[str, ...]
    settings: dict[str, str]
    port: int = field(default_factory=free_port)
    log: list[str] = field(default_factory=list)
    starts: int = 0
    _process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it listens."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        given = {f"TOCSIN_{name.upper()}": value for name, value in self.settings.items()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tocsin_service", *self.words, "--port", str(self.port)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment | given,
        )
        self.starts += 1
        listening = threading.Event()
        threading.Thread(target=self._read, args=(self._process.stderr, listening), daemon=True).start()
        assert listening.wait(60)
        assert self._process.poll() is None, "".join(self.log[-20:])

    def _read(self, output: IO[str], listening: threading.Event) -> None:
        with output:
            for line in output:
                self.log.append(line)
                if LISTENING.search(line):
                    listening.set()
        listening.set()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Storm:
    """Kills one of the processes after the other, from a thread of its own, in rounds in which all have their turn.

    It lasts until the end of the block, and at least one round.

    Args:
        targets: whom it kills, with how often in a round.
        calm: seconds between two kills are drawn from this range.
        seed: of the draws.
    """

    def __init__(
        self,
        targets: Sequence[tuple[Killable, int]],
        calm: tuple[float, float],
        seed: int = 0,
    ) -> None:
        self._round = [target for target, weight in targets for _ in range(weight)]
        self._calm = calm
        self._random = random.Random(seed)  # noqa: S311 - the same storm every time
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._rage, daemon=True)
        self.kills: list[Killable] = []
        self.trouble: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _rage(self) -> None:
        try:
            while True:
                for target in self._random.sample(self._round, len(self._round)):
                    over = self._over.wait(self._random.uniform(*self._calm))
                    if over and len(self.kills) >= len(self._round):
                        return
                    target.kill()
                    self.kills.append(target)
                    self._over.wait(self._random.uniform(*DEAD))
                    target.start()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.trouble = error


@dataclass
class Job:
    """What one sender is told.

    Attributes:
        client: through the real client, or by bare HTTP.
        pause: seconds between two vectors.
        patience: seconds that the end waits for what isn't delivered.
        spool: folder of the client's spool.
        runs: by id: ``config`` and ``bodies``.
    """

    url: str
    client: bool
    runs: dict[str, dict[str, Any]]
    pause: float
    patience: float
    spool: str

    def start(self, path: Path) -> subprocess.Popen[str]:
        """Starts the sender; ``path`` is where it is told what to do."""
        path.write_text(json.dumps(asdict(self)))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("sender.py")), str(path)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )


class Receiver:
    """Takes webhook messages, refuses every fifth for a moment, and remembers the ids it has acknowledged.

    Attributes:
        told: acknowledged messages by id.
        heard: called with each of them.
        refuse_every: every n-th message is refused; 0 refuses none.
    """

    def __init__(self) -> None:
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.heard: Callable[[dict[str, Any]], object] = lambda _: None
        self.refuse_every = 5
        self._lock = threading.Lock()
        self._count = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                message = json.loads(whole_body(self))
                status = receiver._take(message)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):  # the sender was killed
                    super().handle()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/incidents"

    def _take(self, message: dict[str, Any]) -> int:
        with self._lock:
            self._count += 1
            if self.refuse_every and self._count % self.refuse_every == 0:
                return 503
            self.told.setdefault(message["id"], []).append(message)
            self.heard(message)
            return 200

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def eventually(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits for something in other processes, which have no event to wait for."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} seconds: {what}"
        threading.Event().wait(0.05)
