"""Files of real trackers, recorded and fresh; and which of a folder's files are logs."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clients.test_readers_growth import BEGIN, event, part, record, varint, wandb_file

from tocsin.readers import ReadError, find, name_of, read

TRACKERS = Path(__file__).parents[1] / "data" / "trackers"


def expected(step):
    special = {5: math.nan, 6: math.inf}.get(step, step / 8)
    return {"actor/kl_loss": step / 128, "actor/grad_norm": special, "critic/score/mean": 0.5}


def is_same(found, wanted):
    return found.keys() == wanted.keys() and all(
        found[name] == value or (math.isnan(value) and math.isnan(found[name])) for name, value in wanted.items()
    )


def check_recorded(vectors, extra=lambda _: {}):
    assert [v.step for v in vectors] == list(range(1, 13))
    for vector in vectors:
        found = {name: value for name, value in vector.metrics.items() if not name.startswith("val-core")}
        assert is_same(found, {**expected(vector.step), **extra(vector.step)}), vector


def test_a_recorded_run_of_tensorboard_is_read():
    vectors = list(read(TRACKERS / "tensorboard"))
    check_recorded(vectors)
    assert [v.time for v in vectors] == [1767225600.0 + step for step in range(1, 13)]


def test_a_recorded_offline_run_of_wandb_is_read():
    vectors = list(read(TRACKERS / "wandb" / "run-recorded.wandb"))
    check_recorded(vectors, lambda step: {"nested/depth": float(step)})
    assert len(vectors[-1].metrics) == 604  # a record over several blocks
    assert all(v.time > 1.7e9 for v in vectors)


def test_a_fresh_offline_run_of_wandb_is_read(tmp_path):
    if importlib.util.find_spec("wandb") is None:
        pytest.skip("wandb is not installed here: run scripts/e2e")
    script = """
import math, sys, wandb
run = wandb.init(project="p", mode="offline", dir=sys.argv[1], settings=wandb.Settings(console="off"))
for step in range(1, 30):
    kl = math.nan if step == 7 else step / 8
    run.log({"train/kl": kl, "sub": {"a": step}, "text": "x", "list": [1, 2]}, step=step)
run.log({"val/acc": 0.5, "text": "y" * 100_000}, step=30)
run.finish()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True, timeout=100)
    [log] = find(tmp_path)
    assert log.name.startswith("wandb:offline-run-")
    vectors = list(read(log))
    assert [v.step for v in vectors] == list(range(1, 31))
    assert math.isnan(vectors[6].metrics["train/kl"])
    assert vectors[7].metrics == {"train/kl": 1.0, "sub/a": 8.0}
    assert vectors[-1].metrics == {"val/acc": 0.5}


@pytest.mark.parametrize("new_style", [False, True])
def test_what_the_writer_of_torch_writes_is_read(tmp_path, new_style):
    tensorboard = pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
    assert tensorboard
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

    with SummaryWriter(str(tmp_path)) as writer:
        for step in (1, 2):
            writer.add_scalar("actor/kl_loss", math.nan if step == 2 else 0.25, step, new_style=new_style)
            writer.add_scalar("x@1", step, step, new_style=new_style, double_precision=new_style)
            writer.add_text("note", "step:3 - kl:1", step)
    first, second = read(tmp_path)
    assert (first.step, first.metrics) == (1, {"actor/kl_loss": 0.25, "x@1": 1.0})
    assert math.isnan(second.metrics["actor/kl_loss"])


def tensor(dtype, number, data, shape=None):
    sizes = b"" if shape is None else b"".join(part(2, b"\x08" + varint(size)) for size in shape)
    return b"\x08" + varint(dtype) + part(2, sizes) + (number if isinstance(number, bytes) else part(number, data))


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (tensor(1, 5, b"\0\0\0\x3f"), 0.5),
        (tensor(2, 6, b"\0\0\0\0\0\0\xe0\x3f"), 0.5),
        (tensor(1, 4, b"\0\0\0\x3f"), 0.5),
        (tensor(2, 4, b"\0\0\0\0\0\0\xe0\x3f"), 0.5),
        (tensor(3, 7, varint(7)), 7.0),
        (tensor(9, 10, varint(-7)), -7.0),
        (tensor(9, b"\x50" + varint(-7), b""), -7.0),
        (tensor(9, 4, b"\xff" * 8), -1.0),
        (tensor(10, 11, b"\x01"), 1.0),
        (tensor(19, 13, varint(0x3800)), 0.5),
        (tensor(14, 13, varint(0x3F00)), 0.5),
        (tensor(14, 4, b"\0\x3f"), 0.5),
        (tensor(1, 5, b"\0\0\0\x3f", shape=[1, 1]), 0.5),
        (tensor(1, 5, b"\0\0\0\x3f" * 2, shape=[2]), None),
        (tensor(1, 5, b"\0\0\0\x3f", shape=[3]), None),
        (tensor(7, 8, b"a text"), None),
    ],
)
def test_scalars_in_tensors_of_every_type(tmp_path, message, value):
    summary = part(1, part(1, b"x") + part(8, message))
    payload = b"\x09" + bytes(8) + b"\x10\x03" + part(5, summary)
    log = tmp_path / "events.out.tfevents.1.x"
    log.write_bytes(BEGIN + record(payload) + record(event(4, {"y": 1.0})))
    vectors = list(read(log))
    assert [v.metrics for v in vectors] == ([{"y": 1.0}] if value is None else [{"x": value}, {"y": 1.0}])


def test_damaged_events_cost_only_themselves(tmp_path, caplog):
    log = tmp_path / "events"
    broken = bytearray(record(event(2, {"x": 1.0})))
    broken[-6] ^= 1
    bad = record(event(-1, {"x": 1.0})) + record(b"\xff\xff")
    log.write_bytes(BEGIN + record(event(1, {"x": 1.0})) + broken + bad + record(event(3, {"x": 1.0, "\x1b": 2.0})))
    with pytest.raises(ReadError, match="its checksum is wrong"):
        list(read(log))
    reading = read(log, skip_broken=True)
    assert [(v.step, v.metrics) for v in reading] == [(1, {"x": 1.0}), (3, {"x": 1.0})]
    assert (len(caplog.messages), reading.skipped) == (3, 1)
    log.write_bytes(log.read_bytes() + b"\x01" * 40 + record(event(4, {"x": 1.0})))
    assert [v.step for v in read(log, skip_broken=True)] == [1, 3]
    assert "where the next event begins can't be told" in caplog.text


@pytest.mark.parametrize("left", range(9))
def test_a_block_of_wandb_that_has_no_room_is_filled(tmp_path, left):
    size = len(wandb_file([(0, {"kl": 0.0, "pad": ""})]))
    pad = 32768 - left - size - 4  # lengths beyond 16,383 take two more bytes: of the value, the item, the record
    log = tmp_path / "run.wandb"
    log.write_bytes(wandb_file([(0, {"kl": 0.0, "pad": "x" * pad})]))
    pad += 32768 - left - log.stat().st_size
    log.write_bytes(wandb_file([(0, {"kl": 0.0, "pad": "x" * pad}), (1, {"kl": 1.0}), (2, {"kl": 2.0})]))
    assert [v.step for v in read(log)] == [0, 1, 2]


def test_a_damaged_block_of_wandb_costs_only_what_lies_in_it(tmp_path, caplog):
    rows = [(step, {"kl": float(step), "pad": "x" * 500}) for step in range(400)]
    content = bytearray(wandb_file(rows))
    content[40_000:40_020] = b"\xff" * 20
    log = tmp_path / "run.wandb"
    log.write_bytes(content)
    with pytest.raises(ReadError, match="damaged"):
        list(read(log))
    steps = [v.step for v in read(log, skip_broken=True)]
    assert steps == sorted(steps)
    assert 330 < len(steps) < 400
    assert steps[-1] == 399
    assert "damaged" in caplog.text


def test_a_folder_is_searched_for_logs(tmp_path):
    def write(name, text="", data=b""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data or text.encode())

    line = '{"step": 1, "data": {"kl": 1.0}}\n'
    write("verl/project/experiment.jsonl", line)
    write("prime/trainer/metrics.jsonl", '{"step": 1, "time": 1.0, "loss/mean": 0.5}\n')
    write("swift/v0-2026/logging.jsonl", '{"loss": 0.5, "global_step/max_steps": "1/10"}\n')
    write("swift/v0-2026/checkpoint-10/trainer_state.json", json.dumps({"log_history": [{"step": 1, "loss": 1.0}]}))
    write("trl/out/checkpoint-9/trainer_state.json", json.dumps({"log_history": [{"step": 9, "loss": 1.0}]}))
    write("trl/out/checkpoint-10/trainer_state.json", json.dumps({"log_history": [{"step": 10, "loss": 1.0}]}))
    write("tb/run/events.out.tfevents.200.b", data=BEGIN + record(event(2, {"x": 1.0})))
    write("tb/run/events.out.tfevents.1000.a", data=BEGIN + record(event(3, {"x": 1.0})))
    write("wandb/offline-run-1/run-1.wandb", data=wandb_file([(1, {"kl": 1.0})]))
    write("table.csv", "step,kl\n1,2\n")
    for name, text in {
        "rollouts/1.jsonl": '{"input": "1 + 1", "output": "2", "score": 1.0, "step": 1}\n',
        "traces.jsonl": '{"step": 1, "story": "' + "once " * 100 + '"}\n',
        "growing.jsonl": '{"step": 1, "da',
        "list.jsonl": "[1]\n",
        "prices.csv": "item,price\nx,1\n",
        ".hidden/metrics.jsonl": line,
        "console.log": "step:1 - kl:1\n",
        "config.json": "{}",
    }.items():
        write(name, text)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "verl/project/experiment.jsonl")
    logs = {log.name: log for log in find(tmp_path)}
    assert logs.keys() == {
        "verl:project:experiment",
        "prime:trainer",
        "swift:v0-2026",
        "trl:out",
        "tb:run",
        "wandb:offline-run-1",
        "table",
    }
    assert [v.step for v in read(logs["tb:run"])] == [2, 3]
    assert [v.step for v in read(logs["trl:out"])] == [10]
    with pytest.raises(ReadError, match="holds the logs of 7 runs"):
        read(tmp_path)
    shutil.rmtree(tmp_path / "tb")
    assert "tb:run" not in {log.name for log in find(tmp_path)}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("logs/my-run.jsonl.gz", "my-run"),
        ("out/exp 7/metrics.jsonl", "exp 7"),
        ("out/exp/checkpoint-5/trainer_state.json", "checkpoint-5"),
        ("tb/run/events.out.tfevents.1.x", "run"),
        ("wandb/offline-run-1/run-1.wandb", "offline-run-1"),
    ],
)
def test_a_file_names_its_run(tmp_path, path, name):
    assert name_of(tmp_path / path) == name


def test_no_two_logs_of_a_folder_have_one_name(tmp_path):
    names = ["a:b.jsonl", "a/b.jsonl", "a\x07.jsonl", "a\x08.jsonl", "x" * 200 + ".jsonl", "x" * 201 + ".jsonl"]
    (tmp_path / "a").mkdir()
    for name in names:
        (tmp_path / name).write_text('{"step": 1, "kl": 1.0}\n')
    found = [log.name for log in find(tmp_path)]
    assert len(set(found)) == len(found) == len(names)
    assert all(len(name) <= 128 and name.isprintable() and "/" not in name for name in found)
