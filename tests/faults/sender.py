"""A trainer of the fault test, in a process of its own: sends its runs through the real client, or by bare HTTP.

Argument: the path of a :class:`fleet.Job` in JSON. Standard output: one line of JSON when everything is delivered.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import tocsin

PAUSE = threading.Event()  # never set: a wait that is no busy loop


def interleaved(runs: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The vectors of several runs in turn, as trainers side by side send them."""
    waiting = {name: iter(run["bodies"]) for name, run in runs.items()}
    while waiting:
        for name in list(waiting):
            body = next(waiting[name], None)
            if body is None:
                del waiting[name]
            else:
                yield name, body


def through_client(job: dict[str, Any]) -> dict[str, Any]:
    """Every run is a :class:`tocsin.Run` with a spool."""
    runs = {
        name: tocsin.Run(name, url=job["url"], config=run["config"], spool=job["spool"], exit_timeout=job["patience"])
        for name, run in job["runs"].items()
    }
    for name, body in interleaved(job["runs"]):
        runs[name].log(body["metrics"], body["step"], time=body["time"])
        PAUSE.wait(job["pause"])
    for run in runs.values():
        run.finish(job["patience"])
    return {name: run.stats() for name, run in runs.items()}


class Bare:
    """Sends one request after another, each until it is acknowledged."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self.repeats = 0

    def send(self, method: str, path: str, body: dict[str, Any]) -> None:
        while True:
            connection = http.client.HTTPConnection(*self._address, timeout=10)
            try:
                connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                if answer.status < 300:
                    return
                if answer.status not in {429, 503}:
                    raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
            except (OSError, http.client.HTTPException):
                pass  # killed in the middle
            finally:
                connection.close()
            self.repeats += 1
            PAUSE.wait(0.1)


def by_bare_http(job: dict[str, Any]) -> dict[str, Any]:
    bare = Bare(job["url"])
    paths = {name: f"/v1/runs/{quote(name, safe='')}" for name in job["runs"]}
    for name, run in job["runs"].items():
        bare.send("PUT", paths[name], run["config"])
    for name, body in interleaved(job["runs"]):
        bare.send("POST", f"{paths[name]}/steps", {**body, "sequence": f"own-{body['step']}"})
        PAUSE.wait(job["pause"])
    for path in paths.values():
        bare.send("PUT", path, {"finished": True})
    return {"repeats": bare.repeats}


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps((through_client if told["client"] else by_bare_http)(told)))
