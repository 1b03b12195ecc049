"""Tensors on their way: what is sent, that the trainer waits for nothing, and what gives way."""

from __future__ import annotations

import importlib.util
import json
import mmap
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import tocsin
from tocsin import _packing
from tocsin_service.tensors.header import parse_header
from tocsin_service.tensors.names import NAMES

DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1"}
DTYPES |= {"U8": "u1", "BOOL": "?"}


@dataclass
class Sent:
    """A request with tensors as a server reads it."""

    path: str
    query: dict[str, list[str]]
    tensors: dict[str, np.ndarray]
    dtypes: dict[str, str]
    metadata: dict[str, str]

    @property
    def step(self) -> int:
        return int(self.query["step"][0])


def read(request) -> Sent:
    parts = urlsplit(request.path)
    length = int.from_bytes(request.body[:8], "little")
    data = request.body[8 + length :]
    header = parse_header(request.body[8 : 8 + length], len(data), NAMES)
    tensors = {
        span.name: np.frombuffer(data[span.begin : span.end], DTYPES[span.dtype]).reshape(span.shape)
        for span in header.tensors
    }
    dtypes = {span.name: span.dtype for span in header.tensors}
    return Sent(parts.path, parse_qs(parts.query), tensors, dtypes, dict(header.metadata))


def packed(tensors) -> Sent:
    pieces, _ = _packing.pieces_of(tensors)
    parcel = _packing.pack(pieces, {})
    parcel.wait()

    return read(SimpleNamespace(path="/?step=0", body=bytes(parcel.body)))


@pytest.fixture
def server(server):
    """Answers tensors as the service does; steps are stored as ever."""
    answer = json.dumps({"accepted": 1, "repeated": 0, "metrics": {}, "findings": [], "warnings": []}).encode()
    server.decide = lambda request: server.Reply(200, body=answer) if "/tensors" in request.path else server.Reply()
    return server


def batch(step: int = 0, rows: int = 4) -> dict[str, Any]:
    lengths = np.full(rows, 3, np.int32)
    return {
        "old_log_probs": np.full(3 * rows, -1.0 - step, np.float32),
        "rollout_log_probs": np.full(3 * rows, -1.0, np.float32),
        "response_lengths": lengths,
    }


def sent(server) -> list[Sent]:
    return [read(request) for request in server.posts() if "/tensors" in request.path]


def test_numpy_arrays_arrive_as_they_are(server, connect):
    run = connect("a run", url=server.url, attempt=2)
    run.log_tensors(batch(5), 7, time=1.7e9, rollout_is="token", rollout_is_threshold=2.0, metrics=["is", "kl"])
    assert run.finish(60)
    (found,) = sent(server)
    assert found.path == "/v1/runs/a%20run/tensors"
    sequence = found.query.pop("sequence")
    assert sequence[0].endswith("-0")
    assert found.query == {
        "step": ["7"],
        "attempt": ["2"],
        "time": ["1700000000.0"],
        "rollout_is": ["token"],
        "rollout_is_threshold": ["2.0"],
        "metrics": ["is", "kl"],
    }
    assert found.dtypes == {"old_log_probs": "F32", "rollout_log_probs": "F32", "response_lengths": "I32"}
    for name, array in batch(5).items():
        np.testing.assert_array_equal(found.tensors[name], array)
    assert run.tensor_stats() == {"logged": 1, "delivered": 1, "waiting": 0, "dropped": {}}


@pytest.mark.parametrize("kind", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?", ">f4", ">i8"])
def test_every_type_of_numpy(kind):
    array = np.arange(12).reshape(3, 4).astype(kind)
    np.testing.assert_array_equal(packed({"values": array}).tensors["values"], array)


def test_every_array_begins_at_a_multiple_of_its_item():
    tensors = {"group": np.ones(3, np.int8), "response_mask": np.ones((1, 5), bool), "values": np.ones((1, 5))}
    assert list(packed(tensors).tensors) == ["values", "group", "response_mask"]  # the service refuses others


def test_arrays_of_any_layout():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensors = {
        "values": array.T,
        "returns": array[::-2, ::3],
        "scores": np.zeros(0),
        "rewards": np.asfortranarray(array),
    }
    found = packed(tensors).tensors
    for name, one in tensors.items():
        np.testing.assert_array_equal(found[name], one)


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")

    whole = torch.linspace(-3, 0, 24).reshape(4, 6)
    tensors = {
        "old_log_probs": whole.clone().requires_grad_(),
        "rollout_log_probs": whole.t(),
        "ref_log_prob": whole.to(torch.bfloat16),
        "values": whole.half(),
        "returns": whole.double()[::2],
        "response_mask": whole > -1,
        "scores": torch.zeros(0),
        "prompt_lengths": torch.arange(4),
    }
    found = packed(tensors)
    assert found.dtypes["ref_log_prob"] == "BF16"
    bits = tensors.pop("ref_log_prob").view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(found.tensors["ref_log_prob"], bits)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found.tensors[name], tensor.detach().numpy())


def test_torch_and_numpy_in_one_batch():
    torch = pytest.importorskip("torch")

    found = packed({"old_log_probs": torch.ones(2, 2), "response_mask": np.ones((2, 2), bool)})
    assert found.tensors["response_mask"].all()
    assert found.tensors["old_log_probs"].sum() == 4


def test_torch_without_numpy(server, program):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    text = """
sys.modules["numpy"] = None
import torch
tocsin.init('r', url=url)
tocsin.log_tensors({'values': torch.arange(6).reshape(2, 3).to(torch.bfloat16)}, step=1)
assert tocsin.finish(30)
"""
    program(text, server.url, PYTHONWARNINGS="ignore")
    (found,) = sent(server)
    assert (found.dtypes["values"], found.tensors["values"].shape) == ("BF16", (2, 3))
    assert found.tensors["values"][1, 2] == 0x40A0  # 5.0


def test_nothing_is_imported_for_it(program):
    loaded = program("print(*sorted({'torch', 'numpy', 'safetensors'} & set(sys.modules)))", "").stdout
    assert loaded.split() == []


def test_the_bytes_of_host_memory_without_a_copy():
    torch = pytest.importorskip("torch")

    tensor = torch.arange(5, dtype=torch.uint8)
    view = _packing._host_memory(tensor)
    tensor[0] = 9
    assert bytes(view) == b"\x09\x01\x02\x03\x04"


def test_tensors_on_a_gpu():
    torch = pytest.importorskip("torch")

    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    tensor = torch.arange(1000.0, device="cuda").requires_grad_()
    found = packed({"values": tensor, "scores": np.ones(3), "returns": tensor.to(torch.bfloat16).cpu()})
    np.testing.assert_array_equal(found.tensors["values"], tensor.detach().cpu().numpy())
    np.testing.assert_array_equal(found.tensors["scores"], np.ones(3))


def test_later_changes_of_the_trainer_are_not_sent(server, connect):
    released = threading.Event()
    server.script.append(server.Reply(200, when=released))
    run = connect(url=server.url)
    tensors = batch(5)
    run.log_tensors(batch(0), 0)
    run.log_tensors(tensors, 1)
    tensors["old_log_probs"][:] = 77
    released.set()
    assert run.finish(60)
    assert sent(server)[1].tensors["old_log_probs"][0] == -6


def test_what_else_a_batch_holds_is_not_sent_and_said_once(server, connect, said):
    run = connect(url=server.url)
    for step in range(2):
        run.log_tensors({**batch(), "input_ids": np.zeros(9), "uid": np.array(["a"], object), "values": None}, step)
    assert run.finish(60)
    assert set(sent(server)[0].tensors) == set(batch())
    said.wait("['input_ids', 'uid']")


def test_the_names_are_those_of_the_service():
    assert set(NAMES) == _packing.NAMES


def test_names_of_domains_stand_beside_the_tensors(server, connect):
    run = connect(url=server.url)
    run.log_tensors({**batch(), "domain": np.zeros(4, np.int64)}, 1, domains=("math", "code"))
    assert run.finish(60)
    (found,) = sent(server)
    assert json.loads(found.metadata["domains"]) == ["math", "code"]
    assert "domains" not in found.query


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({"values": [1.0, 2.0]}, "takes torch tensors and numpy arrays"),
        ({"values": np.array(["a"])}, "of type str"),
        ({"values": np.array([1j])}, "complex128"),
        ({"values": np.array([object()])}, "object"),
        ({"values": np.zeros(2, "m8[s]")}, "timedelta64"),
        ({}, "none of the tensors"),
        ({"other": np.zeros(3)}, "none of the tensors.*old_log_probs"),
    ],
)
def test_mistakes_are_told_and_counted(server, connect, monkeypatch, tensors, problem):
    run = connect(url=server.url)
    with pytest.raises(ValueError, match=problem):
        run.log_tensors(tensors, 1)
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    run.log_tensors(tensors, 1)
    assert run.tensor_stats()["dropped"] == {"invalid": 2}
    assert not run.finish(60)
    assert not server.requests


def test_sparse_and_sharded_tensors_are_mistakes(connect, dead):
    torch = pytest.importorskip("torch")

    class Sharded(torch.Tensor):
        placements = ()

        def to_local(self):
            raise AssertionError("reading it would be a collective operation")

    run = connect(url=dead)
    with pytest.raises(ValueError, match="sharded"):
        run.log_tensors({"values": torch.zeros(2).as_subclass(Sharded)}, 1)
    with pytest.raises(ValueError, match="sparse"):
        run.log_tensors({"values": torch.zeros(2).to_sparse()}, 1)


def test_steps_that_are_none(server, connect, said):
    run = connect(url=server.url)
    for step in ("x", -1, None, 1.5):
        run.log_tensors(batch(), step)
        assert not run.finish(60)
    assert run.tensor_stats()["dropped"] == {"invalid": 4}
    said.wait("whole number")


def test_the_trainer_never_waits_and_the_oldest_gives_way(server, connect, said):
    released = threading.Event()
    server.script.append(server.Reply(200, when=released))
    run = connect(url=server.url)
    run.log_tensors(batch(0), 0)
    server.wait(lambda server: server.posts())  # it is being sent, and stays so
    for step in range(1, 6):
        run.log_tensors(batch(step), step)
    assert run.tensor_stats() == {"logged": 6, "delivered": 0, "waiting": 3, "dropped": {"full": 3}}
    said.wait("oldest that waits gives way")
    released.set()
    assert not run.finish(60)  # not all of it
    assert [one.step for one in sent(server)] == [0, 4, 5]


def test_the_memory_is_bounded_too(server, connect):
    released = threading.Event()
    server.script.append(server.Reply(200, when=released))
    run = connect(url=server.url, max_tensor_bytes=24_000)
    run.log_tensors(batch(0, rows=400), 0)
    server.wait(lambda server: server.posts())
    for step in range(1, 4):
        run.log_tensors(batch(step, rows=200), step)
    run.log_tensors(batch(4, rows=4000), 4)
    assert run.tensor_stats()["dropped"] == {"full": 2, "too_large": 1}
    released.set()
    run.finish(60)
    assert [one.step for one in sent(server)] == [0, 3]


def test_what_was_delivered_is_let_go(server, connect):
    run = connect(url=server.url)
    run.log_tensors({"values": np.zeros(2**24, np.uint8)}, 1)
    run.log_tensors(batch(), 2)
    server.wait(lambda server: len(server.posts()) == 2)
    assert run.finish(60)
    server.requests.clear()
    assert 2**24 + mmap.PAGESIZE not in map_sizes()


def map_sizes() -> list[int]:
    spans = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    return [int(end, 16) - int(begin, 16) for begin, end in spans]


def test_a_busy_server_is_asked_again_when_it_wishes(server, connect, said):
    server.script.append(server.Reply(429, {"Retry-After": "0"}, b'{"error": "full"}'))
    run = connect(url=server.url)
    run.log_tensors(batch(), 3)
    said.wait("can't send tensors now (throttled)")
    server.wait(lambda server: len(server.posts()) == 2)
    assert run.finish(60)
    first, second = sent(server)
    assert first.query == second.query
    np.testing.assert_array_equal(first.tensors["old_log_probs"], second.tensors["old_log_probs"])
    assert run.tensor_stats() == {"logged": 1, "delivered": 1, "waiting": 0, "dropped": {}}


def test_the_newest_wins_while_the_server_is_away(connect, dead):
    run = connect(url=dead)
    for step in range(5):
        run.log_tensors(batch(step), step)
    assert not run.finish(0)
    stats = run.tensor_stats()
    assert stats["waiting"] + stats["dropped"]["full"] == 5
    assert stats["waiting"] <= 3


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (501, "unsupported", "extra [torch]"),
        (422, "refused", "nothing like that"),
        (413, "too_large", "ragged layout"),
        (401, "unauthorised", "nothing like that"),
        (404, "not_found", "nothing like that"),
        (415, "status_415", "nothing like that"),
    ],
)
def test_what_the_server_refuses_is_dropped_and_said(server, connect, said, status, reason, text):
    server.decide = lambda _: server.Reply(status, body=b'{"error": "nothing like that"}')
    run = connect(url=server.url)
    run.log_tensors(batch(), 1)
    assert not run.finish(60)
    assert run.tensor_stats()["dropped"] == {reason: 1}
    said.wait(text)


def test_warnings_of_the_server_are_said(server, connect, said):
    server.script.append(server.Reply(200, body=b'{"warnings": ["old_log_probs is BF16"]}'))
    server.script.append(server.Reply(200, body=b"[]"))
    run = connect(url=server.url)
    run.log_tensors(batch(), 1)
    run.log_tensors(batch(), 2)
    assert run.finish(60)
    said.wait("old_log_probs is BF16")


def test_a_redis_takes_no_tensors(connect, said):
    run = connect(url="redis://127.0.0.1:1/0")
    run.log_tensors(batch(), 1)
    assert run.tensor_stats()["dropped"] == {"no_service": 1}
    said.wait("the service's address")


def test_both_ways_together(server, connect):
    run = connect(url=server.url)
    for step in range(2):
        run.log({"x": step}, step=step)
        run.log_tensors(batch(step), step)
    assert run.finish(60)
    assert server.steps() == [0, 1]
    assert [one.step for one in sent(server)] == [0, 1]


def test_what_was_logged_is_sent_when_the_interpreter_ends(server, program):
    text = """
import numpy
tocsin.init('r', url=url)
tocsin.log_tensors({'values': numpy.arange(5.0)}, step=4)
"""
    assert program(text, server.url).stderr == ""
    assert [one.step for one in sent(server)] == [4]


def test_disabled_and_faulty_runs_do_nothing(server, program):
    text = """
import numpy
tocsin.log_tensors({'values': numpy.arange(5.0)}, step=4); print(threading.active_count(), tocsin.finish())"""
    done = program(text, "", TOCSIN_URL=server.url, TOCSIN_DISABLED="1")
    assert done.stdout.split() == ["1", "True"]
    assert not server.requests


def test_a_forked_child_sends_its_own(server, program):
    released = threading.Event()
    server.script.append(server.Reply(200, when=released))
    threading.Thread(target=lambda: (server.wait(lambda s: len(s.posts()) >= 2), released.set())).start()
    text = """
import numpy
run = tocsin.init('r', url=url)
for i in range(2): tocsin.log_tensors({'values': numpy.full(1000, float(i))}, step=i)
child = os.fork()
if not child:
    fresh = run.tensor_stats()
    tocsin.log_tensors({'values': numpy.full(1000, 100.0)}, step=100)
    print(json.dumps([fresh["waiting"], run.finish(30), run.tensor_stats()["delivered"]]), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert tocsin.finish(30)
"""
    assert json.loads(program(text, server.url).stdout) == [0, True, 1]
    assert sorted(one.step for one in sent(server)) == [0, 1, 100]
    assert len({one.query["sequence"][0].rpartition("-")[0] for one in sent(server)}) == 2
    assert all(one.tensors["values"][0] == one.step for one in sent(server))


def test_the_module_s_function(server, monkeypatch):
    monkeypatch.setenv("TOCSIN_URL", server.url)
    run = tocsin.init("run", url=server.url)
    tocsin.log_tensors(batch(), 9)
    assert run.finish(60)
    assert sent(server)[0].step == 9
