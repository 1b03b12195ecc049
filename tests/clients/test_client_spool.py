"""With a spool nothing is lost while the server is away, nor when the trainer dies meanwhile, and the order holds."""

from __future__ import annotations

import os
import shutil
import signal
import threading

import pytest

import tocsin


def wait_until(spooled, run):
    while run.stats()["spooled"] < spooled:
        threading.Event().wait(0.002)


def lines(directory):
    """How many vectors lie in the spool."""
    return sum(file.read_bytes().count(b"\n") for file in directory.glob("*/0*"))


def test_a_server_that_is_back_gets_everything_in_order_and_the_files_go(start, connect, said, tmp_path):
    server = start()
    # What is on disk isn't bound by the queue's limits.
    run = connect(url=server.url, spool=tmp_path, max_vectors=100)
    for step in range(20):
        run.log({"x": step}, step)
    server.wait(lambda s: len(s.vectors) == 20)
    server.stop()
    for step in range(20, 3000):
        run.log({"x": step}, step)
        if step % 50 == 0:
            wait_until(step - 20, run)
    said.wait("unreachable")
    wait_until(2980, run)
    assert run.stats()["waiting"] == 2980
    assert lines(tmp_path) >= 2980
    again = start(restarted=server)
    for step in range(3000, 3010):
        run.log({"x": step}, step)
    assert run.finish(60)
    assert again.steps() == list(range(3010))
    assert run.stats()["delivered"] == 3010
    assert not list(tmp_path.iterdir())


def test_a_healthy_server_leaves_no_files(server, connect, tmp_path):
    run = connect(url=server.url, spool=tmp_path)
    for round_ in range(2):
        for step in range(100):
            run.log({"x": 1}, round_ * 100 + step)
        assert run.finish(30)
        assert not list(tmp_path.iterdir())
    assert server.steps() == list(range(200))


def test_a_process_that_just_ends_leaves_no_files(server, program, tmp_path):
    text = f"""
run = tocsin.init('run', url=url, spool={str(tmp_path)!r})
tocsin.log({{'x': 1}}, step=1)
while not run.stats()['delivered']: threading.Event().wait(0.002)
"""
    program(text, server.url)
    assert server.steps() == [1]
    assert not list(tmp_path.iterdir())


def test_no_spool_no_files(dead, connect, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = connect(url=dead)
    run.log({"x": 1}, 1)
    assert not run.finish(0)
    assert not list(tmp_path.iterdir())


def test_the_environment_names_the_spool(dead, connect, tmp_path, monkeypatch):
    monkeypatch.setenv("TOCSIN_SPOOL", str(tmp_path / "a" / "b"))
    monkeypatch.setenv("TOCSIN_SPOOL_BYTES", "100000")
    run = connect(url=dead)
    run.log({"x": 1}, 1)
    wait_until(1, run)
    assert lines(tmp_path / "a" / "b") == 1


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "pass"])
def test_the_next_process_sends_first_what_a_dead_one_has_left(server, dead, program, connect, tmp_path, end):
    text = f"""
run = tocsin.init('run', url=url, spool={str(tmp_path)!r})
for i in range(500): tocsin.log({{'x': i}}, step=i)
spooled(run, 500)
{end}
"""
    killed = -signal.SIGKILL if "kill" in end else 0
    done = program(text, dead, ends=killed, TOCSIN_EXIT_TIMEOUT="0.1")
    if end == "pass":
        assert "500 still waiting, 500 of them in the spool, for the next process of this run" in done.stderr
    run = connect(url=server.url, spool=tmp_path)
    run.log({"x": 1}, 500)
    assert run.finish(30)
    assert server.steps() == list(range(501))
    assert (run.stats()["delivered"], run.stats()["recovered"]) == (1, 500)
    assert not list(tmp_path.iterdir())


def test_a_process_that_logs_nothing_sends_what_is_left_when_it_finishes(server, dead, program, connect, tmp_path):
    text = f"""
run = tocsin.init('run', url=url, spool={str(tmp_path)!r})
for i in range(2000): tocsin.log({{'x': i}}, step=i)
spooled(run, 2000)
os._exit(0)
"""
    program(text, dead)
    in_vain = connect(url=dead, spool=tmp_path)
    in_vain.finish(30)
    assert in_vain.stats()["recovered"] == 0
    assert lines(tmp_path) == 2000
    run = connect(url=server.url, spool=tmp_path)
    assert run.finish(30)
    assert run.stats()["recovered"] == 2000
    assert server.steps() == list(range(2000))
    assert not list(tmp_path.iterdir())


def test_a_server_that_hangs_at_the_end_loses_nothing(server, program, connect, tmp_path):
    """The thread waits for the server's answer, so whoever ends the process spools what it couldn't take."""
    released, asked = threading.Event(), threading.Event()
    server.script.append(server.Reply(when=released))
    server.decide = lambda request: server.Reply(when=asked if request.path == "/asked" else None)
    waiting = threading.Thread(target=lambda: (server.wait(lambda s: s.posts()), asked.set()))
    waiting.start()
    text = f"""
import urllib.request
run = tocsin.init('run', url=url, spool={str(tmp_path)!r}, exit_timeout=0.1)
tocsin.log({{'x': 0}}, step=0)
urllib.request.urlopen(url + '/asked').close()
for i in range(1, 50): tocsin.log({{'x': i}}, step=i)
"""
    done = program(text, server.url)
    assert "0 of 50 vectors delivered; 50 still waiting, 50 of them in the spool" in done.stderr
    assert lines(tmp_path) == 50
    waiting.join()
    released.set()
    run = connect(url=server.url, spool=tmp_path)
    run.log({"x": 1}, 50)
    assert run.finish(30)
    assert server.steps() == list(range(51))


def test_a_living_process_keeps_what_is_its_own(server, dead, connect, tmp_path):
    waiting = connect(url=dead, spool=tmp_path)
    waiting.log({"x": 1}, 1)
    wait_until(1, waiting)
    other = connect(url=server.url, spool=tmp_path)
    other.log({"x": 1}, 2)
    assert other.finish(30)
    assert server.steps() == [2]
    assert lines(tmp_path) == 1


def test_other_runs_in_the_directory_are_left_alone(server, dead, program, connect, tmp_path):
    text = f"""
run = tocsin.init('other', url=url, spool={str(tmp_path)!r})
tocsin.log({{'x': 1}}, step=1)
spooled(run, 1)
os._exit(0)
"""
    program(text, dead)
    run = connect(url=server.url, spool=tmp_path)
    run.log({"x": 1}, 2)
    assert run.finish(30)
    assert server.steps() == [2]
    assert lines(tmp_path) == 1


def test_two_processes_never_send_the_same_leftovers(server, dead, program, tmp_path):
    leave = f"""
for begin in range(0, 100, 10):
    if not os.fork():
        run = tocsin.init('run', url=url, spool={str(tmp_path)!r})
        for i in range(begin, begin + 10): tocsin.log({{'x': i}}, step=i)
        spooled(run, 10)
        os._exit(0)
    os.wait()
"""
    program(leave, dead)
    both = f"""
def work(step):
    run = tocsin.Run('run', url=url, spool={str(tmp_path)!r})
    run.log({{'x': 1}}, step)
    os._exit(0 if run.finish(30) else 1)
children = []
for step in (1000, 1001):
    child = os.fork()
    if not child: work(step)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""
    program(both, server.url)
    assert [step for step in server.steps() if step < 1000] == list(range(100))
    assert sorted(server.steps())[100:] == [1000, 1001]
    assert server.repeated == 0
    assert not list(tmp_path.iterdir())


def test_a_forked_child_touches_nothing_of_its_parents(server, dead, program, connect, tmp_path):
    """A child that lives longer than its parent, as a data loader's may, holds nothing of it back either."""
    text = f"""
run = tocsin.init('run', url=url, spool={str(tmp_path)!r})
for i in range(10): tocsin.log({{'x': i}}, step=i)
spooled(run, 10)
read, write = os.pipe()
if not os.fork():
    os.close(write)
    tocsin.init('child', url={server.url!r}, spool={str(tmp_path)!r})
    tocsin.log({{'x': 1}}, step=100)
    assert tocsin.finish(30)
    quiet = os.fork()
    if quiet: print(quiet, flush=True)
    else: sys.stdout = None; os.close(1); os.close(2); os.read(0, 1)
    os._exit(0)
os.close(read)
os.wait()
spooled(run, 10)
os._exit(0)
"""
    done = program(text, dead)
    quiet = int(done.stdout)
    try:
        run = connect(url=server.url, spool=tmp_path)
        run.log({"x": 1}, 10)
        assert run.finish(30)
        assert server.steps() == [100, *range(11)]
        os.kill(quiet, 0)  # it has lived until now
    finally:
        os.kill(quiet, signal.SIGKILL)


def test_what_no_retry_can_change_waits_on_disk_for_somebody_to_correct_it(server, connect, said, tmp_path):
    server.decide = lambda _: server.Reply(401)
    run = connect(url=server.url, spool=tmp_path)
    run.log({"x": 1}, 1)
    said.wait("unauthorised")
    run.log({"x": 1}, 2)
    wait_until(2, run)
    server.decide = lambda _: server.Reply()
    assert run.finish(30)
    assert server.steps() == [1, 2]


def test_a_refused_vector_is_dropped_from_the_spool_too(server, connect, tmp_path):
    server.decide = lambda asked: server.Reply(422 if any(v["step"] == 5 for v in asked.json) else 202)
    run = connect(url=server.url, spool=tmp_path)
    for step in range(10):
        run.log({"x": 1}, step)
    assert not run.finish(30)
    assert server.steps() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert run.stats()["dropped"] == {"refused": 1}
    assert not list(tmp_path.iterdir())


def test_a_full_spool_leaves_the_rest_in_memory_and_drops_the_newest(dead, connect, caplog, said, tmp_path):
    run = connect(url=dead, spool=tmp_path, spool_bytes=10_000, max_vectors=50)
    for step in range(80):
        run.log({"x": 1}, step)
        wait_until(step + 1, run)
    for step in range(80, 120):
        run.log({"x": 1}, step)
    said.wait("is full")
    for step in range(120, 1000):
        run.log({"x": 1}, step)
    assert not run.finish(0)
    stats = run.stats()
    assert stats["waiting"] == stats["spooled"] + 50
    assert stats["dropped"] == {"queue_full": 1000 - stats["waiting"]}
    assert 80 < stats["spooled"] < 120
    assert sum(file.stat().st_size for file in tmp_path.glob("*/0*")) <= 10_000
    assert sum("is full (spool_bytes=10000)" in message for message in caplog.messages) == 1
    assert sum("queue_full" in message for message in caplog.messages if "said once" in message) == 1


def test_room_that_comes_back_is_used_again(server, connect, said, tmp_path):
    server.decide = lambda _: server.Reply(503, {"Retry-After": "0"})
    run = connect(url=server.url, spool=tmp_path, spool_bytes=10_000)
    for step in range(200):
        run.log({"x": 1}, step)
    said.wait("is full")
    server.decide = lambda _: server.Reply()
    assert run.finish(60)
    for step in range(200, 210):
        run.log({"x": 1}, step)
    assert run.finish(60)
    assert server.steps() == list(range(210))
    assert not list(tmp_path.iterdir())


def test_a_spool_that_cannot_be_written_is_said_once_and_memory_serves(server, connect, caplog, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    run = connect(url=server.url, spool=blocked / "spool")
    for step in range(100):
        run.log({"x": 1}, step)
    assert run.finish(30)
    assert server.steps() == list(range(100))
    assert len([message for message in caplog.messages if "can't be" in message]) == 1


def test_a_spool_that_can_be_written_again_takes_what_waits_in_memory(dead, connect, said, tmp_path, monkeypatch):
    monkeypatch.setattr("tocsin._outbox._DISK_PATIENCE", 0.0)
    blocked = tmp_path / "file"
    blocked.write_text("")
    run = connect(url=dead, spool=blocked)
    for step in range(100):
        run.log({"x": 1}, step)
    said.wait("can't be")
    blocked.unlink()
    run.log({"x": 1}, 100)
    wait_until(101, run)
    assert lines(blocked) == 101


def test_a_full_disk_is_survived(server, program, tmp_path):
    text = f"""
import resource
run = tocsin.init('run', url=url, spool={str(tmp_path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
for i in range(500): tocsin.log({{'x': i}}, step=i)
"""
    server.script.append(server.Reply(503, {"Retry-After": "0"}))
    done = program(text, server.url)
    assert "File too large" in done.stderr
    assert done.stderr.count("can't be written") == 1
    assert server.steps() == list(range(500))
    assert not list(tmp_path.iterdir())


def test_a_spool_that_is_deleted_meanwhile_loses_nothing_of_a_living_process(server, connect, tmp_path):
    server.decide = lambda _: server.Reply(503, {"Retry-After": "0"})
    run = connect(url=server.url, spool=tmp_path / "spool")
    for step in range(100):
        run.log({"x": 1}, step)
    wait_until(100, run)
    shutil.rmtree(tmp_path / "spool")
    for step in range(100, 200):
        run.log({"x": 1}, step)
    server.decide = lambda _: server.Reply()
    assert run.finish(30)
    assert server.steps() == list(range(200))


def test_a_torn_vector_is_counted_and_the_others_are_sent(server, dead, program, connect, caplog, tmp_path):
    text = f"""
run = tocsin.init('run', url=url, spool={str(tmp_path)!r})
for i in range(10): tocsin.log({{'x': i}}, step=i)
spooled(run, 10)
os._exit(0)
"""
    program(text, dead)
    [file] = tmp_path.glob("*/0*")
    file.write_bytes(file.read_bytes()[:-3])
    run = connect(url=server.url, spool=tmp_path)
    run.log({"x": 1}, 10)
    assert not run.finish(30)
    assert server.steps() == [*range(9), 10]
    assert run.stats()["dropped"] == {"damaged": 1}
    assert sum("torn" in message for message in caplog.messages) == 1


def test_a_redis_that_is_back_gets_everything_in_order(redis_server, connect, said, tmp_path):
    spool = tmp_path / "spool"
    run = connect(url=redis_server.url, spool=spool)
    run.log({"x": 1}, 0)
    while not run.stats()["delivered"]:
        threading.Event().wait(0.002)
    redis_server.kill()
    for step in range(1, 1000):
        run.log({"x": 1}, step)
    said.wait("unreachable")
    wait_until(999, run)
    redis_server.start()
    assert run.finish(60)
    assert redis_server.steps() == list(range(1000))
    assert not list(spool.iterdir())


def test_the_module_takes_the_spool_as_an_option(dead, tmp_path):
    run = tocsin.init("run", url=dead, spool=str(tmp_path))
    tocsin.log({"x": 1})
    wait_until(1, run)
    assert lines(tmp_path) == 1
    assert not tocsin.finish(0)
