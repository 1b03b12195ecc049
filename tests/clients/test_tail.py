"""`tocsin tail` as a process: logs that grow, begin anew and come and go, servers that are away, and kills."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tocsin.readers import Vector
from tocsin.tail._chunk import Chunk
from tocsin.tail._delivery import Delivery
from tocsin.tail._place import Bookmark, Place
from tocsin.tail._stream import Taken

DATA = Path(__file__).parents[1] / "data"


def catches(pid, number):
    """Whether a process has set a handler for a signal (proc(5), SigCgt)."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (number - 1) & 1)


class Tail:
    """A tail of a source; killed or stopped, it can be started again."""

    def __init__(self, state, *words, **environment):
        self.words = [sys.executable, "-m", "tocsin.tail", *map(str, words), "--state", str(state), "--poll", "0.01"]
        self.environment = {**os.environ, **environment}
        self.process = None
        self.said = ""

    def start(self):
        self.process = subprocess.Popen(self.words, stderr=subprocess.PIPE, text=True, env=self.environment)
        return self

    def kill(self):
        self.process.kill()
        self.said += self.process.communicate()[1]

    def stop(self):
        """Its exit status."""
        pause = threading.Event()
        while self.process.poll() is None and not catches(self.process.pid, signal.SIGTERM):
            pause.wait(0.01)  # an interpreter that still imports dies of the signal, as any program does
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        self.said += self.process.communicate(timeout=60)[1]
        return self.process.returncode


@pytest.fixture
def follow(tmp_path, server):
    with ExitStack() as stack:

        def started(*words, url=server.url, state=tmp_path / "state" / "tail.json", **environment):
            tail = Tail(state, *words, *(["--url", url] if url else []), **environment).start()
            stack.callback(lambda: tail.process.poll() is None and tail.kill())
            return tail

        yield started


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def settle(tmp_path):
    """Waits until it is written down that everything was delivered."""
    state = tmp_path / "state" / "tail.json"
    pause = threading.Event()
    while any(place["sending"] for place in json.loads(state.read_text())["places"].values()):
        pause.wait(0.01)


def row(step, **metrics):
    return json.dumps({"step": step, "data": metrics or {"kl": step / 8}}) + "\n"


def append(path, text):
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def runs(server):
    """The runs that vectors were sent to, with the steps of each, in the order of their first arrival."""
    found = {}
    known = set()
    for request in server.posts():
        for vector in request.json:
            key = (request.path, vector["sequence"])
            if key not in known:
                known.add(key)
                found.setdefault(request.path.split("/")[3], []).append(vector["step"])
    return found


def nothing_is_doubled(server):
    """What was sent twice is the same to the last field, by which the service knows it."""
    sent = [vector for request in server.posts() for vector in request.json]
    same = {json.dumps([v["step"], v["sequence"], v["time"], v["metrics"]], sort_keys=True) for v in sent}
    assert len(same) == len({(v["step"], v["sequence"]) for v in sent}) == len(server.vectors)


def test_a_growing_log_is_followed(follow, server, logs):
    log = logs / "run.jsonl"
    tail = follow(log)
    for step in range(1, 30):
        append(log, row(step))
        server.wait(lambda s, step=step: len(s.vectors) == step)
    assert tail.stop() == 0
    assert server.steps() == list(range(1, 30))
    assert [v["metrics"]["kl"] for v in server.vectors] == [step / 8 for step in range(1, 30)]
    assert runs(server).keys() == {"run"}


def test_a_torn_line_waits_for_its_rest(follow, server, logs):
    log = logs / "run.jsonl"
    follow(log)
    append(log, row(1) + row(2)[:9])
    server.wait(lambda s: s.steps() == [1])
    append(log, row(2)[9:20])
    append(log, row(2)[20:])
    server.wait(lambda s: s.steps() == [1, 2])
    append(log, row(3).rstrip("\n"))  # a whole object needs no line end
    server.wait(lambda s: s.steps() == [1, 2, 3])
    append(log, "\n" + row(4))
    server.wait(lambda s: s.steps() == [1, 2, 3, 4])
    nothing_is_doubled(server)


@pytest.mark.parametrize("second", [range(3, 5), range(3, 9), range(3, 20)], ids=["shorter", "same", "longer"])
def test_a_truncated_log_begins_anew(follow, server, logs, second):
    log = logs / "run.jsonl"
    log.write_text("".join(map(row, range(1, 7))))
    tail = follow(log)
    server.wait(lambda s: len(s.vectors) == 6)
    with log.open("r+b") as file:  # the same file, as a writer in "wb" mode has it
        file.truncate()
        file.write("".join(row(step, kl=step / 4) for step in second).encode())
    server.wait(lambda s: len(s.vectors) == 6 + len(second))
    tail.stop()
    assert server.steps() == [*range(1, 7), *second]
    assert "has begun anew" in tail.said


def test_the_same_rows_after_a_truncation_are_new_ones(follow, server, logs):
    log = logs / "run.jsonl"
    log.write_text("".join(map(row, range(1, 7))))
    follow(log)
    server.wait(lambda s: len(s.vectors) == 6)
    log.write_text("".join(map(row, range(1, 3))))
    server.wait(lambda s: s.steps() == [*range(1, 7), 1, 2])


def test_a_log_that_began_anew_while_nobody_followed_is_noticed(follow, server, logs, tmp_path):
    log = logs / "run.jsonl"
    log.write_text("".join(map(row, range(1, 7))))
    tail = follow(log)
    server.wait(lambda s: len(s.vectors) == 6)
    settle(tmp_path)
    tail.kill()
    log.write_text("".join(row(step, kl=1.5) for step in range(1, 40)))
    follow(log)
    server.wait(lambda s: len(s.vectors) == 45)
    assert server.steps()[6:] == list(range(1, 40))


def test_a_rotated_log_is_read_to_its_end(follow, server, logs):
    log = logs / "run.jsonl"
    log.write_text(row(1))
    follow(log)
    server.wait(lambda s: s.steps() == [1])
    with log.open("a") as writer:
        log.rename(logs / "run.jsonl.1")
        writer.write(row(2))
        writer.flush()
        server.wait(lambda s: s.steps() == [1, 2])
        log.write_text(row(3))
        server.wait(lambda s: s.steps() == [1, 2, 3])
    append(log, row(4))
    server.wait(lambda s: s.steps() == [1, 2, 3, 4])


def jsonl_writer(folder):
    return folder / "run.jsonl", lambda step: append(folder / "run.jsonl", row(step, a=step / 8)), lambda: None


def csv_writer(folder):
    (folder / "run.csv").write_text("step,a\n")
    return folder / "run.csv", lambda step: append(folder / "run.csv", f"{step},{step / 8}\n"), lambda: None


def events_writer(folder):
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(folder / "run"))

    def write(step):
        for name in "abcdefgh":
            writer.add_scalar(name, step / 8, step)
        writer.flush()

    return folder / "run", write, writer.close


@pytest.mark.parametrize("form", [jsonl_writer, csv_writer, events_writer])
def test_nothing_is_lost_or_doubled_when_tail_is_killed_again_and_again(follow, server, logs, form):
    source, write, close = form(logs)
    steps = range(1, 121)
    done = threading.Event()

    def writing():
        for step in steps:
            write(step)
            done.wait(0.005)
        close()
        done.set()

    thread = threading.Thread(target=writing)
    thread.start()
    kills = 0
    while not done.is_set():
        seen = len(server.requests)
        tail = follow(source)
        server.wait(lambda s, seen=seen, kills=kills: len(s.requests) > seen + kills % 3 or done.is_set())
        tail.kill()
        kills += 1
    thread.join()
    tail = follow(source)

    def told(s):
        return [(v["step"], name) for v in s.vectors for name in v["metrics"]]

    expected = {(step, name) for step in steps for name in ("abcdefgh" if form is events_writer else "a")}
    server.wait(lambda s: set(told(s)) == expected)
    assert tail.stop() == 0
    assert len(told(server)) == len(expected)
    nothing_is_doubled(server)
    assert kills > 1


def test_every_log_of_a_folder_is_a_run(follow, server, logs):
    (logs / "a" / "b").mkdir(parents=True)
    (logs / "a" / "b" / "metrics.jsonl").write_text(row(1))
    (logs / "c.csv").write_text("step,kl\n5,1\n")
    (logs / "samples.jsonl").write_text('{"step": 1, "prompt": "1 + 1", "score": 1.0}\n')
    (logs / "notes.csv").write_text("name,size\nx,1\n")
    (logs / "d\x1b[31m.jsonl").write_text(row(7))
    tail = follow(logs)
    server.wait(lambda s: len(s.vectors) == 3)
    (logs / "later").mkdir()
    (logs / "later" / "run.jsonl").write_text(row(8))
    server.wait(lambda s: len(s.vectors) == 4)
    tail.stop()
    found = runs(server)
    assert found["a%3Ab"] == [1]
    assert found["c"] == [5]
    assert found["later%3Arun"] == [8]
    [hostile] = found.keys() - {"a%3Ab", "c", "later%3Arun"}
    assert hostile.startswith("d_%5B31m-")


def test_one_run_may_have_several_logs(follow, server, logs):
    for name in ("trainer", "orchestrator"):
        (logs / name).mkdir()
        (logs / name / "metrics.jsonl").write_text(json.dumps({"step": 1, f"{name}/x": 1.0}) + "\n")
    follow(logs, "--run", "both")
    server.wait(lambda s: len(s.vectors) == 2)
    assert runs(server) == {"both": [1, 1]}
    assert {name for v in server.vectors for name in v["metrics"]} == {"trainer/x", "orchestrator/x"}


def test_a_server_that_is_away_holds_nothing_up_for_good(follow, server, logs, start):
    log = logs / "run.jsonl"
    log.write_text(row(1))
    tail = follow(log)
    server.wait(lambda s: s.steps() == [1])
    server.stop()
    append(log, row(2))
    append(log, row(3))
    again = start(restarted=server)
    again.wait(lambda s: s.steps() == [1, 2, 3])
    assert tail.stop() == 0


def test_sigterm_ends_it_at_once_though_nothing_can_be_delivered(follow, logs, dead):
    log = logs / "run.jsonl"
    log.write_text(row(1))
    tail = follow(log, url=dead)
    assert any("can't send" in line for line in iter(tail.process.stderr.readline, "") if "can't send" in line)
    assert tail.stop() == 0


def test_a_refused_token_costs_nothing(follow, server, logs):
    log = logs / "run.jsonl"
    log.write_text(row(1) + row(2))
    server.decide = lambda _: server.Reply(401)
    tail = follow(log)
    assert any("dropping vectors (unauthorised)" in line for line in iter(tail.process.stderr.readline, ""))
    tail.stop()
    server.decide = lambda _: server.Reply()
    follow(log)
    server.wait(lambda s: s.steps() == [1, 2])


def test_a_delivery_tells_what_became_of_it(server):
    vector = Vector(1, {"kl": 0.5}, mark="0-1")
    chunk = Chunk([vector], ["tail-1"], 1.7e9, Place(), Place(), "verl")
    pause = threading.Event()
    for status, outcome in ((401, Taken.FAILED), (422, Taken.DONE), (202, Taken.DONE)):
        server.decide = lambda _, status=status: server.Reply(status)
        delivery = Delivery("run", {"algorithm": "grpo"}, Bookmark(None), {"url": server.url})
        delivery.send(chunk)
        while (taken := delivery.taken()) is Taken.WAITING:
            pause.wait(0.01)
        assert taken is outcome
        assert delivery.ready is (outcome is Taken.DONE)
        assert delivery.lost == (status == 422)
        delivery.close()


def test_a_redis_takes_it_as_well(follow, logs, redis_server):
    log = logs / "run.jsonl"
    steps = []
    pause = threading.Event()
    for part in range(4):
        tail = follow(log, url=redis_server.url)
        for step in range(part * 10, part * 10 + 10):
            append(log, row(step))
            steps.append(step)
        while len(redis_server.steps()) < len(steps) - 3 * (part < 3):
            pause.wait(0.01)
        tail.kill()
    assert redis_server.steps() == steps
    assert redis_server.vectors()[5]["metrics"] == {"kl": 5 / 8}


def test_what_the_server_refuses_for_good_is_counted_and_passed(follow, server, logs):
    log = logs / "run.jsonl"
    log.write_text(row(1) + row(2) + row(3))
    refused = b'"step":2'
    server.decide = lambda request: server.Reply(422 if refused in request.body else 202)
    tail = follow(log, "--once")
    assert tail.wait() == 1
    assert server.steps() == [1, 3]
    assert "2 vectors delivered, 1 refused" in tail.said


def test_once_sends_what_is_there_and_says_that_the_run_has_ended(follow, server, logs):
    log = logs / "run.jsonl"
    log.write_text("".join(map(row, range(5000))))
    assert follow(log, "--once", "--algorithm", "grpo").wait() == 0
    assert server.steps() == list(range(5000))
    puts = [request.json for request in server.requests if request.method == "PUT"]
    assert puts == [{"framework": "verl", "algorithm": "grpo"}, {"finished": True}]
    append(log, row(5000))
    assert follow(log, "--once", "--algorithm", "grpo").wait() == 0
    assert server.steps() == list(range(5001))
    puts = [request.json for request in server.requests if request.method == "PUT"]
    assert puts[2:] == [{"finished": True}]


def test_it_ends_with_the_trainer(follow, server, logs):
    log = logs / "run.jsonl"
    log.write_text(row(1))
    trainer = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    tail = follow(log, "--pid", trainer.pid)
    server.wait(lambda s: s.steps() == [1])
    append(log, row(2))
    trainer.communicate(b"\n")
    assert tail.wait() == 0
    assert server.steps() == [1, 2]
    assert server.requests[-1].json == {"finished": True}


def test_garbage_in_a_log_costs_only_itself(follow, server, logs):
    log = logs / "run.jsonl"
    append(
        log, row(1).encode() + b"\xff\xfe\x00garbage\n{\n[1]\n" + row(2).encode() + b'{"step": -3, "data": {"kl": 1}}\n'
    )
    append(log, row(3))
    tail = follow(log)
    server.wait(lambda s: s.steps() == [1, 2, 3])
    tail.stop()
    assert tail.said.count("left out") == 4


def test_a_state_belongs_to_one_tail(follow, server, logs, tmp_path):
    log = logs / "run.jsonl"
    log.write_text(row(1))
    first = follow(log)
    server.wait(lambda s: s.steps() == [1])
    second = follow(log)
    assert second.wait() == 2
    assert "another tail uses" in second.said
    assert first.stop() == 0
    state = tmp_path / "state" / "tail.json"
    state.write_text(state.read_text()[:-40])
    third = follow(log)
    append(log, row(2))
    server.wait(lambda s: s.steps()[-1] == 2)
    third.stop()
    assert "everything is read from its beginning" in third.said


def test_without_a_place_for_the_state_it_works_until_it_is_restarted(follow, server, logs, tmp_path):
    log = logs / "run.jsonl"
    log.write_text(row(1))
    (tmp_path / "file").touch()
    tail = follow(log, XDG_STATE_HOME=str(tmp_path / "home"), state=tmp_path / "file" / "state.json")
    assert tail.wait() == 2
    words = [word for word in tail.words if word not in {"--state", str(tmp_path / "file" / "state.json")}]
    for home in (tmp_path / "file", tmp_path / "home"):
        tail.words, tail.environment["XDG_STATE_HOME"] = words, str(home)
        seen = len(server.posts())
        tail.start()
        server.wait(lambda s, seen=seen: len(s.posts()) > seen)
        assert tail.stop() == 0
    assert len(list((tmp_path / "home" / "tocsin").glob("tail-*.json"))) == 1


def state_of(rows, step):
    return json.dumps({"global_step": step, "log_history": rows}, indent=2)


def test_a_history_of_checkpoints_is_one_log(follow, server, logs):
    rows = [{"step": step, "loss": step / 8, "epoch": 0.1} for step in range(10, 60, 10)]
    for count in (1, 2, 3):
        folder = logs / f"checkpoint-{count * 10}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(state_of(rows[:count], count * 10)[:-20])  # being written
        (folder / "trainer_state.json").write_text(state_of(rows[:count], count * 10))
    follow(logs)
    server.wait(lambda s: s.steps() == [10, 20, 30])
    (logs / "checkpoint-50").mkdir()
    (logs / "checkpoint-50" / "trainer_state.json").write_text(state_of(rows, 50))
    server.wait(lambda s: s.steps() == [10, 20, 30, 40, 50])
    # A resume from checkpoint 30 keeps the history up to there.
    shutil.rmtree(logs / "checkpoint-50")
    (logs / "checkpoint-40").mkdir()
    resumed = [*rows[:3], {"step": 40, "loss": math.nan, "epoch": 0.1}]
    (logs / "checkpoint-40" / "trainer_state.json").write_text(state_of(resumed, 40))
    server.wait(lambda s: s.steps() == [10, 20, 30, 40, 50, 40])
    assert server.repeated == 0
    assert runs(server) == {"logs": [10, 20, 30, 40, 50, 40]}


def write_events(folder, steps, flush=True):
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(folder))
    for step in steps:
        writer.add_scalar("train/kl", math.nan if step == 3 else step / 8, step)
        writer.add_scalar("train/reward", 0.5, step)
        writer.add_text("sample", "step: 1", step)
        if flush:
            writer.flush()
    writer.close()


def test_tensorboard_is_followed_over_a_resume(follow, server, logs):
    write_events(logs / "exp", range(1, 6))
    follow(logs, "--framework", "trl")
    by_step = lambda s: {v["step"] for v in s.vectors if "train/reward" in v["metrics"]}  # noqa: E731
    server.wait(lambda s: by_step(s) == set(range(1, 6)))
    write_events(logs / "exp", range(4, 9))  # a resumed run writes another file beside the first
    server.wait(lambda s: by_step(s) == set(range(1, 9)) and sum(len(v["metrics"]) for v in s.vectors) == 20)
    assert runs(server).keys() == {"exp"}
    [nan] = [v["metrics"]["train/kl"] for v in server.vectors if v["step"] == 3 and "train/kl" in v["metrics"]]
    assert nan is None or math.isnan(nan)
    assert all(abs(v["time"] - logs.stat().st_mtime) < 600 for v in server.vectors)


VERL_WRITER = """
import importlib.util, os, sys
from pathlib import Path
utils = Path(importlib.util.find_spec("verl").origin).parent / "utils"
def load(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
import numpy as np
logger = load("tracking", utils / "tracking.py").FileLogger("project", "experiment")
print("ready", flush=True)
for line in sys.stdin:
    step = int(line)
    data = {"actor/grad_norm": float("nan") if step == 4 else 0.5, "perf/mfu": np.int64(3)}
    logger.log({**data, "actor/kl_loss": np.float32(step / 8)}, step)
    print(step, flush=True)
"""


@pytest.fixture
def verl_trainer(logs):
    if importlib.util.find_spec("verl") is None or importlib.util.find_spec("orjson") is None:
        pytest.skip("verl is not installed here: run scripts/e2e")
    with ExitStack() as stack:

        def train(steps):
            environment = {**os.environ, "VERL_FILE_LOGGER_ROOT": str(logs)}
            trainer = subprocess.Popen(
                [sys.executable, "-c", VERL_WRITER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                bufsize=1,
            )
            stack.callback(lambda: (trainer.kill(), trainer.communicate()))
            while trainer.stdout.readline().strip() != "ready":
                pass
            for step in steps:
                trainer.stdin.write(f"{step}\n")
                assert int(trainer.stdout.readline()) == step
            return trainer

        yield train


def test_a_real_verl_file_logger_is_followed_over_a_restart(follow, server, logs, verl_trainer):
    tail = follow(logs)
    verl_trainer(range(1, 9)).kill()
    server.wait(lambda s: len(s.vectors) == 8)
    tail.kill()
    verl_trainer(range(5, 30))  # from the checkpoint of step 4: the logger truncates its file
    follow(logs)
    server.wait(lambda s: len(s.vectors) == 33)
    assert runs(server) == {"project%3Aexperiment": [*range(1, 9), *range(5, 30)]}
    assert server.vectors[3]["metrics"]["actor/grad_norm"] != 0.5  # null in the file: not finite
    assert server.vectors[7]["metrics"] == {"actor/grad_norm": 0.5, "actor/kl_loss": 1.0, "perf/mfu": 3.0}
    assert {"framework": "verl"} in [request.json for request in server.requests if request.method == "PUT"]
