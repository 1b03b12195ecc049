"""Servers for the client's benchmark, each a process of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE = threading.Event()  # never set: a wait that is no busy loop

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


@contextmanager
def sink() -> Iterator[str]:
    """The address of an HTTP server that takes everything."""
    with subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
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
        try:
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.kill()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a ``tocsin serve`` of its own."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "tocsin_service", "serve", "--port", "0", "--db", str(folder / "tocsin.db")]
    with log.open("w") as output, subprocess.Popen(command, stderr=output) as server:
        try:
            while not (listening := re.search(r"listening on (\S+),", log.read_text())):
                assert server.poll() is None, log.read_text()
                PAUSE.wait(0.05)
            yield listening[1]
        finally:
            server.kill()
