"""scripts/audit, with a stand-in for the database of vulnerabilities."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "audit"
needs_pip_audit = pytest.mark.skipif(find_spec("pip_audit") is None, reason="pip-audit is not installed")


def audit(url: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TOCSIN_AUDIT_URL": url, "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, str(SCRIPT)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=110, check=False)


@contextmanager
def database(answer: Callable[[str], Any]) -> Iterator[str]:
    """A database that answers for each package with what ``answer`` says of it, as JSON, or with a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told = answer(asked["package"]["name"])
            self.send_response(told if isinstance(told, int) else 200)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_where_nobody_can_be_asked_it_is_skipped_with_a_reason() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        done = audit(f"http://127.0.0.1:{probe.getsockname()[1]}/")
    assert done.returncode == 0
    assert done.stdout.startswith("audit skipped: http://127.0.0.1:")
    assert "refused" in done.stdout


def test_a_database_that_is_down_is_nobody_to_ask() -> None:
    with database(lambda _: 503) as url:
        done = audit(url)
    assert (done.returncode, "HTTP 503" in done.stdout) == (0, True)


@needs_pip_audit
def test_nothing_known() -> None:
    with database(lambda _: {}) as url:
        done = audit(url)
    assert done.returncode == 0, done.stderr
    assert "0 of them vulnerable" in done.stdout


@needs_pip_audit
def test_a_known_vulnerability_fails() -> None:
    def answer(package: str) -> dict[str, Any]:
        if package != "uvicorn":
            return {}
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999"}]}]
        affected = [{"package": {"name": package, "ecosystem": "PyPI"}, "ranges": ranges}]
        return {"vulns": [{"id": "TOCSIN-1", "affected": affected, "published": "2026-01-01T00:00:00Z"}]}

    with database(answer) as url:
        done = audit(url)
    assert done.returncode == 1, done.stderr
    assert "uvicorn" in done.stdout
    assert "TOCSIN-1, fixed in 999" in done.stdout


@needs_pip_audit
def test_what_breaks_is_no_clean_bill() -> None:
    with database(lambda package: {} if package == "pip" else {"vulns": "all"}) as url:
        done = audit(url)
    assert done.returncode == 1
    assert "audit failed" in done.stderr
