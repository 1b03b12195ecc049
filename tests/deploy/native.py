"""What deploy/ describes for containers and machines is run here: programs, and files with other addresses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
LISTENING = r"listening on (http\S+),"  # what Tocsin logs
PATIENCE = 90.0  # seconds: the machine may be slow and loaded

T = TypeVar("T")


def needs(program: str) -> str:
    """Path of a program; skips the test where it isn't installed."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} isn't installed")
    return path


def read_yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text())


def replaced(text: str, places: Mapping[str, str]) -> str:
    """The text with every key of ``places`` replaced; each must be there, so that no place goes stale."""
    for place, new in places.items():
        assert place in text, f"{place!r} isn't in:\n{text}"
        text = text.replace(place, new)
    return text


def until(look: Callable[[], T | None], what: str) -> T:
    """Waits until ``look`` finds something."""
    ends, pause = time.monotonic() + PATIENCE, threading.Event()
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > ends:
            break
        pause.wait(0.05)
    pytest.fail(f"waited in vain for {what}")


@dataclass
class Program:
    """A program in a process of its own, and what it has written so far."""

    popen: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as output:
            for line in output:
                with self._news:
                    self.lines.append(line)
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def said(self, pattern: str) -> re.Match[str]:
        """The first match of ``pattern`` in what the program writes; waits for it."""
        with self._news:
            self._news.wait_for(lambda: self._ended or self._find(pattern) is not None, PATIENCE)
            found = self._find(pattern)
        assert found is not None, f"it never said {pattern!r}:\n" + "".join(self.lines)
        return found

    def _find(self, pattern: str) -> re.Match[str] | None:
        return next((found for line in self.lines if (found := re.search(pattern, line))), None)

    def end(self) -> int:
        """Ends it as a supervisor does; its exit status."""
        self.popen.terminate()
        status = self.popen.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._reader.join(PATIENCE)


def start(stack: ExitStack, command: Sequence[str | Path], environment: Mapping[str, str], **more: Any) -> Program:
    """Starts a program that sees PATH and the environment given, no other; killed by the stack at the latest."""
    popen = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PATH": os.environ["PATH"], **environment},
        **more,
    )
    program = Program(popen)
    stack.callback(program.kill)
    return program


def call(address: str, path: str, token: str = "", body: Any = None) -> tuple[int, bytes]:
    """Status and body of one request; ``body`` is sent as it is if bytes, else as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, data, headers), timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def receiver(stack: ExitStack) -> str:
    """Address of a stand-in for Slack that is content with everything."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stack.callback(server.server_close)
    stack.callback(thread.join)
    stack.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_address[1]}/services/T0/B0/secret"
