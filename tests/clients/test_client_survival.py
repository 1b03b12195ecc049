"""What a trainer goes through while it logs: nothing is raised, memory stays bounded, what is lost is counted."""

from __future__ import annotations

import importlib.util
import json
import logging
import threading

import pytest


def test_a_million_calls_in_a_tight_loop_stay_within_bounds(dead, program):
    text = """
import resource
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run = tocsin.init('r', url=url, max_vectors=2000)
vector = {'actor/kl_loss': 0.1}
for step in range(10_000): tocsin.log(vector, step=step)
before = peak()
for step in range(1_000_000): tocsin.log(vector, step=step)
print(json.dumps([run.stats(), peak() - before]))
"""
    done = program(text, dead, TOCSIN_EXIT_TIMEOUT="0", TOCSIN_DEBUG="0")
    stats, grown = json.loads(done.stdout)
    assert stats["logged"] == 1_010_000
    assert stats["waiting"] == 2000
    assert stats["dropped"] == {"queue_full": 1_008_000}
    assert grown < 16 * 1024  # KiB
    assert done.stderr.count("the queue is full") == 1
    assert "1008000 queue_full, 2000 still waiting" in done.stderr


def test_a_slow_server_never_holds_the_trainer_up(server, connect):
    answered = threading.Event()
    server.script.append(server.Reply(when=answered))
    run = connect(url=server.url, max_vectors=100)
    run.log({"x": 1}, 0)
    server.wait(lambda s: s.posts())
    for step in range(1, 1000):
        run.log({"x": 1}, step)  # would never return if it waited for the server
    assert run.stats()["dropped"] == {"queue_full": 900}
    answered.set()
    assert not run.finish(30)
    assert server.steps() == list(range(100))


def test_logging_handlers_that_raise_disturb_neither_trainer_nor_thread(server, connect, monkeypatch):
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    raised = threading.Event()

    class Broken(logging.Handler):
        def emit(self, record):
            raised.set()
            raise RuntimeError(record)

    handler = Broken()
    logging.getLogger("tocsin").addHandler(handler)
    try:
        run = connect("a/b", url=server.url, unknown=1)
        run.log("no mapping", 1)
        server.script.append(server.Reply(503, {"Retry-After": "0"}))
        run.log({"x": object(), "y": 1}, 1)
        run.log({"x": 1}, "no step")
        assert not run.finish(30)
        assert server.steps() == [1]
        assert run.stats()["dropped"] == {"invalid": 2}
        assert raised.is_set()
    finally:
        logging.getLogger("tocsin").removeHandler(handler)


@pytest.mark.parametrize("spool", [False, True])
def test_an_interpreter_that_ends_in_the_middle_of_everything(server, program, connect, tmp_path, spool):
    """Threads that still log, a server that is away: the end comes in time, and the spool knows what was logged."""
    options = {"spool": str(tmp_path)} if spool else {}
    text = f"""
run = tocsin.init('run', url='http://127.0.0.1:1', exit_timeout=0.1, max_vectors=500, **{options!r})
for i in range(100): tocsin.log({{'x': i}}, step=i)
def work():
    while True: tocsin.log({{'late': 1}}, step=1000)
for _ in range(4): threading.Thread(target=work, daemon=True).start()
"""
    program(text, "", TOCSIN_DEBUG="0")
    if spool:
        run = connect(url=server.url, spool=tmp_path)
        run.log({"x": 1}, 2000)
        assert run.finish(60)
        assert [step for step in server.steps() if step < 1000] == list(range(100))
        assert server.steps()[-1] == 2000


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_workers_of_a_data_loader_log_and_harm_nobody(server, program, tmp_path):
    text = f"""
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        tocsin.log({{'worker': index}}, step=index)
        return torch.tensor(float(index))
run = tocsin.init('r', url=url, spool={str(tmp_path)!r})
for epoch in range(2):
    for step, batch in enumerate(DataLoader(Data(), batch_size=8, num_workers=2)):
        tocsin.log({{'parent': batch.mean()}}, step=8 * epoch + step)
assert run.finish(30)
"""
    program(text, server.url)
    parents = [v for v in server.vectors if "parent" in v["metrics"]]
    assert [v["step"] for v in parents] == list(range(16))
    assert parents[0]["metrics"]["parent"] == 3.5
    workers = [v["step"] for v in server.vectors if "worker" in v["metrics"]]
    assert sorted(workers) == sorted([*range(64), *range(64)])
    assert not list(tmp_path.iterdir())
