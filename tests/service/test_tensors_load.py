"""Tensors under load and end to end: what waits, what is turned away, what it costs in memory, what fires."""

from __future__ import annotations

import gc
import http.client
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.tensor_bodies import KL, kl, pack, post, ragged, raw, series, tensors_of

pytest.importorskip("torch")

BATCH = ragged()
ROWS = len(BATCH["response_lengths"])


# Under load


@pytest.fixture
def held(api: Any) -> Iterator[threading.Event]:
    """The thread that computes is busy until the event is set."""
    release = threading.Event()
    tensors_of(api)._executor.submit(release.wait, 60)
    yield release
    release.set()


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(20) as pool:
        yield pool.submit


def wait_until(reached: Callable[[], bool]) -> None:
    """Nobody tells of it, so it is asked for; with an end, in case it never comes."""
    pause = threading.Event()
    for _ in range(6000):
        if reached():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to that")


def test_steps_and_alerts_go_on_while_tensors_are_computed(api: Any, held: threading.Event, background: Any) -> None:
    waiting = background(post, api, pack(BATCH))
    wait_until(lambda: tensors_of(api).admission.requests == 1)
    for step in range(5):
        assert api.post({"step": step, "metrics": {"actor/pg_loss": math.nan if step == 4 else 0.5}}).status == 202
    api.settle()
    assert api.get("/v1/alerts").json["alerts"]
    assert api.get("/readyz").status == 200
    assert not waiting.done()
    held.set()
    assert waiting.result(60).status == 200


def test_a_full_queue_refuses_at_once(make_api: Any, background: Any) -> None:
    api = make_api(tensor_queue=3)
    release = threading.Event()
    tensors_of(api)._executor.submit(release.wait, 60)
    waiting = [background(post, api, pack(ragged(seed=step)), step=step) for step in range(3)]
    wait_until(lambda: tensors_of(api).admission.requests == 3)
    refused = post(api, pack(BATCH), step=9)
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert "as many as may be" in refused.json["error"]
    with raw(api, "Content-Length: 1000000\r\nExpect: 100-continue\r\n") as connection:
        assert connection.recv(10_000).startswith(b"HTTP/1.1 429")  # and not 100: the body was never asked for
    release.set()
    assert [future.result(60).status for future in waiting] == [200, 200, 200]
    assert post(api, pack(BATCH), step=9).status == 200
    text = api.get("/metrics").data.decode()
    assert 'tocsin_tensor_rejected_total{reason="full"} 2.0' in text
    assert "tocsin_tensor_requests_total 4.0" in text


def test_the_bytes_under_way_are_bounded(make_api: Any, background: Any) -> None:
    body = pack(BATCH)
    api = make_api(max_tensor_bytes=len(body), tensor_queue_bytes=2 * len(body) - 1)
    release = threading.Event()
    tensors_of(api)._executor.submit(release.wait, 60)
    waiting = background(post, api, body)
    wait_until(lambda: tensors_of(api).admission.requests == 1)
    refused = post(api, body, step=2)
    assert refused.status == 429
    assert "don't fit now" in refused.json["error"]
    release.set()
    assert waiting.result(60).status == 200
    assert post(api, pack({**BATCH, "scores": np.zeros(ROWS)}), step=2).status == 413


def test_many_at_once(api: Any, background: Any) -> None:
    answers = [background(post, api, pack(ragged(seed=step)), step=step) for step in range(8)]
    for step, future in enumerate(answers):
        assert future.result(60).json["metrics"][KL] == pytest.approx(kl(ragged(seed=step)), rel=1e-4)


def test_stopping_drops_what_waits(make_api: Any, background: Any) -> None:
    api = make_api(stop_seconds=1.0)
    release = threading.Event()
    tensors_of(api)._executor.submit(release.wait, 60)
    waiting = background(post, api, pack(BATCH))
    wait_until(lambda: tensors_of(api).admission.requests == 1)
    api.service.stop()
    release.set()
    with suppress(http.client.HTTPException, OSError):  # it may not be answered at all
        assert waiting.result(60).status == 500
    assert make_api().get("/v1/runs/run").status == 404


# End to end


@pytest.fixture(scope="module")
def process(shared_api: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, int]]:
    """The API of a service in a process of its own, which has loaded torch, and its number."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
    db = tmp_path_factory.mktemp("process") / "t.db"
    command = [sys.executable, "-m", "tocsin_service", "serve", "--port", "0", "--db", str(db)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert started.stderr is not None
    try:
        heard = (re.search(r"listening on (\S+),", line) for line in started.stderr)
        api = type(shared_api)(next(found.group(1) for found in heard if found))
        assert post(api, pack(ragged(rows=64, width=1024)), step=0).status == 200
        yield api, started.pid
    finally:
        started.kill()
        started.wait(30)
        started.stderr.close()


def memory(process: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1)) * 1024


def test_a_large_batch_takes_little_more_memory_than_its_body(process: tuple[Any, int]) -> None:
    api, number = process
    batch = ragged(rows=512, width=8192)
    body = pack(batch)
    before = memory(number, "VmRSS")
    Path(f"/proc/{number}/clear_refs").write_text("5")  # from now on the peak is counted
    answer = post(api, body)
    assert answer.json["metrics"][KL] == pytest.approx(kl(batch), rel=1e-4)
    assert memory(number, "VmHWM") - before < 1.5 * len(body)
    assert series(api, KL)["steps"] == [0, 1]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is only freed by the garbage collector stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_refused_bodies_leave_no_memory_behind(api: Any, no_collection: None) -> None:  # noqa: ARG001
    batch = ragged(rows=128, width=8192)
    bad = pack({**batch, "response_lengths": batch["response_lengths"] + 1})
    for _ in range(2):
        post(api, bad)
    before = memory(os.getpid(), "VmRSS")
    for _ in range(8):
        assert post(api, bad).status == 422
    assert memory(os.getpid(), "VmRSS") - before < 4 * len(bad)


def test_a_drift_of_the_engines_fires(api: Any) -> None:
    for step in range(60):
        gap = 0.01 if step < 40 else 0.01 * 1.3 ** (step - 39)
        answer = post(api, pack(ragged(rows=32, width=128, gap=gap, seed=step)), step=step, time=1.7e9 + 60 * step)
        assert answer.status == 200
    api.settle()
    alerts = api.get("/v1/runs/run/alerts").json["alerts"]
    fired = {alert["rule"]: alert["fired_step"] for alert in alerts if alert["family"] == "mismatch"}
    assert {"mismatch_kl_rising", "mismatch_kl_gross", "probs_diff_high"} <= fired.keys()
    assert min(fired.values()) >= 40
    assert fired["mismatch_kl_rising"] <= 55


def test_a_drift_in_batches_of_full_size(api: Any) -> None:
    """512 responses of up to 8,192 tokens a step: the metrics are in the series, and the drift is told at once."""
    batch = ragged(rows=512, width=8192, seed=1)
    noise = batch["rollout_log_probs"] - batch["old_log_probs"]
    for step in range(24):
        gap = 0.005 if step < 18 else 0.5
        bodies = {
            **batch,
            "rollout_log_probs": batch["old_log_probs"] + noise * np.float32(gap / 0.02 * (1 + 0.01 * (step % 5))),
        }
        answer = post(api, pack(bodies), step=step, time=1.7e9 + 60 * step)
        assert answer.status == 200
    api.settle()
    (series,) = api.get("/v1/runs/run/series?metric=rollout_corr/k3_kl").json["series"]
    assert series["steps"] == list(range(24))
    assert series["values"][-1] == pytest.approx(0.125, rel=0.2) == answer.json["metrics"]["rollout_corr/k3_kl"]
    alerts = api.get("/v1/runs/run/alerts").json["alerts"]
    fired = {alert["rule"]: alert["fired_step"] for alert in alerts if alert["family"] == "mismatch"}
    assert "mismatch_kl_gross" in fired
    assert 18 <= min(fired.values()) <= 20


def test_torch_is_loaded_for_tensors_alone_and_may_be_missing(tmp_path: Path) -> None:
    text = """
import http.client, importlib.util, sys
from pathlib import Path
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
from tocsin_service.app import Service
from tocsin_service.settings import Settings
with Service(Settings(port=0, db=Path(sys.argv[1]))) as service:
    connection = http.client.HTTPConnection(service.address.removeprefix("http://"))
    connection.request("POST", "/v1/runs/run/tensors?step=1", b"x" * 1000)
    answer = connection.getresponse()
    print("torch" in sys.modules, answer.status, answer.read().decode())
    connection.close()
"""
    command = [sys.executable, "-W", "ignore", "-c", text, str(tmp_path / "t.db")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("False 501")
    assert "tocsin[torch]" in said
