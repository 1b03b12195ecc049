"""Forks, exits and dead servers, in real processes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

import tocsin
from tocsin._process import Link
from tocsin._settings import settings


def sessions(server):
    return {vector["sequence"].rpartition("-")[0] for vector in server.vectors}


def test_what_was_logged_is_sent_when_the_interpreter_ends(server, program):
    done = program("run = tocsin.init('r', url=url)\nfor i in range(1000): tocsin.log({'x': i}, step=i)", server.url)
    assert server.steps() == list(range(1000))
    assert done.stderr == ""


def test_what_was_logged_is_sent_when_training_fails(server, program):
    program("tocsin.init('r', url=url); tocsin.log({'x': 1}, step=1); raise SystemExit(3)", server.url, ends=3)
    assert server.steps() == [1]


def test_a_dead_server_holds_the_end_up_no_longer_than_told(dead, program):
    text = "tocsin.init('r', url=url)\nfor i in range(20): tocsin.log({'x': i}, step=i)"
    done = program(text, dead, TOCSIN_EXIT_TIMEOUT="0.2", TOCSIN_DEBUG="0")
    assert "0 of 20 vectors delivered; 20 still waiting" in done.stderr


def test_everything_comes_from_the_environment_if_nothing_is_given(server, program):
    environment = {"TOCSIN_URL": server.url, "TOCSIN_RUN": "from-env", "TOCSIN_TOKEN": "t"}
    program("tocsin.log({'x': 1})", "", **environment)
    assert server.requests[0].path == "/v1/runs/from-env/steps"
    assert server.requests[0].headers["Authorization"] == "Bearer t"


def test_disabled_means_no_thread_no_request_no_complaint(server, program, tmp_path):
    text = "tocsin.log({'x': 1}); print(tocsin.finish(), threading.active_count())"
    done = program(text, "", TOCSIN_URL=server.url, TOCSIN_DISABLED="1", TOCSIN_SPOOL=str(tmp_path))
    assert done.stdout.split() == ["True", "1"]
    assert not server.requests


def test_a_forked_child_starts_with_an_empty_queue_and_a_session_of_its_own(server, program):
    released = threading.Event()
    server.script.append(server.Reply(when=released))
    threading.Thread(target=lambda: (server.wait(lambda s: len(s.posts()) >= 2), released.set())).start()
    text = """
run = tocsin.init('r', url=url)
for i in range(50): tocsin.log({'parent': 1}, step=i)
child = os.fork()
if not child:
    fresh = run.stats()
    tocsin.log({'child': 1}, step=100)
    print(json.dumps([fresh, run.finish(30), run.stats()]), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
tocsin.log({'parent': 1}, step=50)
assert tocsin.finish(30)
"""
    fresh, delivered, after = json.loads(program(text, server.url).stdout)
    assert fresh == {
        "logged": 0,
        "delivered": 0,
        "waiting": 0,
        "spooled": 0,
        "dropped": {},
        "skipped": 0,
        "recovered": 0,
    }
    assert delivered
    assert after["delivered"] == 1
    assert [v["step"] for v in server.vectors if "parent" in v["metrics"]] == list(range(51))
    assert [v["step"] for v in server.vectors if "child" in v["metrics"]] == [100]
    assert len(sessions(server)) == 2
    assert server.repeated == 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_sends_what_it_logged_before_it_ends(server, program, tmp_path, method):
    text = f"""
sys.path.insert(0, {str(tmp_path)!r})
import worker
run = tocsin.init('r', url=url)
tocsin.log({{'parent': 1}}, step=0)
child = multiprocessing.get_context({method!r}).Process(target=worker.work, args=(url,))
child.start()
child.join()
assert child.exitcode == 0
"""
    (tmp_path / "worker.py").write_text(
        "import tocsin\ndef work(url):\n    tocsin.init('r', url=url)\n    tocsin.log({'child': 1}, step=1)\n"
    )
    program(text, server.url)
    assert sorted(server.steps()) == [0, 1]
    assert len(sessions(server)) == 2


def test_a_data_loading_child_that_never_logs_costs_nothing(server, program):
    text = """
tocsin.init('r', url=url)
tocsin.log({'x': 1}, step=1)
def work(): print(threading.active_count(), flush=True)
child = multiprocessing.get_context('fork').Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
"""
    assert program(text, server.url).stdout.strip() == "1"
    assert server.steps() == [1]


def test_a_fork_that_runs_no_hooks_is_noticed():
    link = Link(settings("r", None, None, None, {}))
    mine = link.here()
    assert link.here() is mine
    mine.process = -1
    assert link.here() is not mine
    assert link.here().process == os.getpid()


def test_importing_starts_no_thread_and_loads_no_reader(program):
    text = "print(threading.active_count(), any(name.startswith('tocsin.readers') for name in sys.modules))"
    assert program(text, "").stdout.split() == ["1", "False"]


def test_the_queue_is_bounded_in_bytes_too(dead, connect):
    run = connect(url=dead, max_bytes=100_000)
    vector = {f"metric/{i}": 1.0 for i in range(100)}
    for step in range(1000):
        run.log(vector, step)
    stats = run.stats()
    assert 5 <= stats["waiting"] <= 60
    assert stats["dropped"]["queue_full"] == 1000 - stats["waiting"]


def test_the_sender_imports_nothing(server, program):
    """A fork during an import in the thread would leave the module's lock taken for ever in the child."""
    text = """
run = tocsin.Run('r', url=url, config={'algorithm': 'grpo'})
before = set(sys.modules)
run.log({f'a/long/metric/name/{i}': 1 for i in range(200)}, 1)
assert run.finish(30)
print(sorted(set(sys.modules) - before))
"""
    assert program(text, server.url).stdout.strip() == "[]"


def test_the_client_imports_nothing_beyond_the_standard_library(program):
    text = f"""
import importlib, pkgutil
before = set(sys.modules)
for module in pkgutil.walk_packages([{str(Path(tocsin.__file__).parent)!r}], 'tocsin.'):
    if not module.name.startswith('tocsin.integrations.'):  # each of these is for users of its host
        importlib.import_module(module.name)
print(*{{name.partition('.')[0] for name in set(sys.modules) - before}} - sys.stdlib_module_names)
"""
    assert program(text, "").stdout.split() == ["tocsin"]
