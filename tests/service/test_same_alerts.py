"""The promise of the fold: the same vectors give the same alerts, by the same ids, whatever way they took."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.judged import check_same


@pytest.fixture
def api_at(shared_api: Any) -> Any:
    """Makes an API at any address."""
    return type(shared_api)


def configure(api: Any, recording: Any) -> None:
    assert api.call("PUT", f"/v1/runs/{recording.name}", recording.told).status == 200


def test_one_by_one(api: Any, recording: Any) -> None:
    configure(api, recording)
    for body in recording.bodies:
        assert api.post(body, run=recording.name).json == {"accepted": 1, "repeated": 0}
    api.settle()
    check_same(api, recording)


def test_in_batches_and_everything_twice(api: Any, collapse: Any) -> None:
    configure(api, collapse)
    bodies = collapse.bodies
    for start in range(0, len(bodies), 17):
        batch = bodies[start : start + 17]
        assert api.post(batch, run=collapse.name).json == {"accepted": len(batch), "repeated": 0}
        # What a sender that never saw the answer sends again, with some older ones for good measure.
        again = bodies[max(0, start - 5) : start + 17]
        assert api.post(again, run=collapse.name).json == {"accepted": 0, "repeated": len(again)}
    api.settle()
    check_same(api, collapse)


@contextmanager
def service_process(db: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tocsin serve` as a process of its own, and its address."""
    command = [sys.executable, "-m", "tocsin_service", "serve", "--port", "0", "--db", str(db)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listening on (\S+),", line):
                yield process, found.group(1)
                return
        raise AssertionError("the service ended before it listened")
    finally:
        process.kill()
        process.wait(30)
        process.stderr.close()


def in_turn(parts: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The vectors of several runs, as trainers side by side send them."""
    for row in range(max(map(len, parts.values()))):
        yield from ((run, bodies[row]) for run, bodies in parts.items() if row < len(bodies))


@pytest.mark.timeout(300)  # for all collapses together
def test_killed_in_the_middle_and_restarted(make_api: Any, api_at: Any, tmp_path: Path, recorded: Any) -> None:
    """Killed with -9 before, at and after the collapse: what was acknowledged is there once, with what it means."""
    collapses = [one for one in recorded if one.label == "collapse"]
    stages: list[dict[str, list[dict[str, Any]]]] = [{} for _ in range(4)]  # what is sent between two kills, by run
    for one in collapses:
        bodies = one.bodies
        onset = next(row for row, body in enumerate(bodies) if body["step"] >= one.onset)
        ends = [0, onset // 2, onset + 2, onset + 6, len(bodies)]
        for stage, (start, end) in zip(stages, pairwise(ends), strict=True):
            stage[one.name] = bodies[start:end]
    db = tmp_path / "tocsin.db"
    for number, stage in enumerate(stages):
        with service_process(db) as (process, address):
            api = api_at(address)
            for one in collapses if number == 0 else ():
                configure(api, one)
            for run, body in in_turn(stage):
                assert api.post(body, run=run).status == 202
            process.send_signal(signal.SIGKILL)
    last = make_api(db=db)
    last.settle()
    for one in collapses:
        assert last.get(f"/v1/runs/{one.name}").json["vectors"] == sum(len(stage[one.name]) for stage in stages)
        check_same(last, one)
