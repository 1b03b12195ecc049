"""The spool's files: what was written is read, whatever was torn, changed, or left by a process that died."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin._box import Box, adopt_all
from tocsin._records import encode_record, record_size, scan

vectors = st.builds(lambda step, size: json.dumps({"step": step, "x": "y" * size}).encode(), st.integers(), st.just(9))


def read(box, most=10**9):
    """The records, up to ``most``; they leave the box."""
    found = []
    while len(found) < most and (window := box.head()):
        part = [record.vector for record in window][: most - len(found)]
        box.pop(len(part))
        found += part
    return found


@given(st.lists(vectors), st.integers(0, 10**6))
def test_records_are_read_as_they_were_written(written, begin):
    data = b"".join(map(encode_record, written))
    assert len(data) == sum(map(record_size, written))
    found = scan(data, begin)
    assert [record.vector for record in found.records] == written
    assert found.end == begin + len(data)
    assert found.damaged == 0


@given(st.lists(vectors, min_size=1), st.data())
def test_a_torn_end_costs_what_is_torn(written, data):
    stream = b"".join(map(encode_record, written))
    found = scan(stream[: data.draw(st.integers(0, len(stream)))], 0)
    assert [record.vector for record in found.records] == written[: len(found.records)]
    assert found.damaged == 0


@given(st.lists(vectors, min_size=1, unique=True), st.data())
def test_a_changed_byte_is_noticed(written, data):
    stream = bytearray(b"".join(map(encode_record, written)))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= data.draw(st.integers(1, 255))
    found = scan(bytes(stream), 0)
    kept = [record.vector for record in found.records]
    assert len(kept) < len(written)
    assert kept == [vector for vector in written if vector in kept]


def test_a_file_can_be_read_without_us():
    stream = encode_record(b'{"step":1}') + encode_record(b'{"step":2}')
    assert b"".join(line[9:] for line in stream.splitlines(keepends=True)) == b'{"step":1}\n{"step":2}\n'


@pytest.fixture
def box(tmp_path):
    made = Box.create(tmp_path, "run", "s", 1000)
    yield made
    made.abandon()


def test_a_box_that_is_empty_leaves_nothing(tmp_path, box):
    box.append([b"a", b"b"])
    assert read(box) == [b"a", b"b"]
    box.append([b"c"])
    assert read(box) == [b"c"]
    assert box.size == 0
    box.close()
    assert not list(tmp_path.iterdir())


def test_a_living_owner_keeps_its_box(tmp_path, box):
    box.append([b"a"])
    assert adopt_all(tmp_path, "run") == []
    box.close()
    [adopted] = adopt_all(tmp_path, "run")
    assert adopt_all(tmp_path, "run") == []
    assert read(adopted) == [b"a"]
    adopted.close()
    assert not list(tmp_path.iterdir())


def test_the_oldest_box_comes_first_and_other_runs_are_left_alone(tmp_path):
    for run, session in [("run", "z"), ("run", "a"), ("run2", "b"), ("Run", "c"), ("r/un", "d")]:
        box = Box.create(tmp_path, run, session, 1000)
        box.append([session.encode()])
        box.close()
    assert list(map(read, adopt_all(tmp_path, "run"))) == [[b"z"], [b"a"]]
    assert list(map(read, adopt_all(tmp_path, "r/un"))) == [[b"d"]]
    assert adopt_all(tmp_path / "missing", "run") == []


@pytest.mark.parametrize("run", ["x", "ü" * 128, "." * 128, "a b%c:d*e?", "𝄞" * 128])
def test_every_run_id_makes_a_name(tmp_path, run):
    box = Box.create(tmp_path, run, "0123456789abcdef", 1000)
    assert (box.path / "owner").read_text() == run
    assert box.path.name.isascii()
    box.append([b"a"])
    box.close()
    [adopted] = adopt_all(tmp_path, run)
    assert adopted.path == box.path
    adopted.abandon()


def test_segments_are_deleted_as_they_are_delivered(box):
    for n in range(100):
        box.append([b"%0100d" % n])
    files = len(list(box.path.iterdir()))
    assert files > 8
    assert read(box, 50) == [b"%0100d" % n for n in range(50)]
    assert len(list(box.path.iterdir())) < files / 2 + 2
    assert box.count == 50


def test_a_record_larger_than_a_segment_and_a_piece_is_read(box):
    large = [b"a" * 3_000_000, b"b", b"c" * 2_000_000]
    for vector in large:
        box.append([vector])
    assert read(box) == large


def left_over(path, damage):
    """A box of three records as a dead process leaves it, its file changed by ``damage``; adopted."""
    box = Box.create(path, "run", "s", 1000)
    box.append([b"one", b"two", b"three"])
    box.close()
    file = box.path / "00000001"
    file.write_bytes(damage(file.read_bytes()))
    return Box.adopt(box.path)


@pytest.mark.parametrize(
    ("damage", "kept", "damaged"),
    [
        (lambda data: data[:-1], [b"one", b"two"], 1),
        (lambda data: data[:-14], [b"one", b"two"], 1),
        (lambda data: data[:20], [b"one"], 1),
        (lambda _: b"", [], 0),
        (lambda data: data[:5], [], 1),
        (lambda data: data.replace(b"one", b"oNe"), [b"two", b"three"], 1),
        (lambda data: data.replace(b"two", b"tWo"), [b"one", b"three"], 1),
        (lambda data: data.replace(b"three", b"thRee"), [b"one", b"two"], 1),
        (lambda _: b"\0" * 5000, [], 1),
        (lambda data: b"\n\n" + data, [b"one", b"two", b"three"], 2),
        (lambda data: data + b"\0" * 5000, [b"one", b"two", b"three"], 1),
    ],
)
def test_damage_costs_the_damaged_records_and_is_counted_once(tmp_path, damage, kept, damaged):
    box = left_over(tmp_path, damage)
    assert read(box) == kept
    assert read(box) == []
    assert box.damaged == damaged
    box.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("gone", ["owner", "00000001", ""])
def test_what_somebody_deletes_meanwhile_is_no_trouble_but_for_itself(tmp_path, gone):
    box = Box.create(tmp_path, "run", "s", 1000)
    box.append([b"one"])
    box.close()
    for file in [box.path / gone] if gone else list(box.path.iterdir()):
        file.unlink()
    if not gone:
        box.path.rmdir()
    adopted = Box.adopt(box.path)
    assert (adopted is None) == (gone != "00000001")
    if adopted:
        assert read(adopted) == []
        adopted.close()


operations = st.lists(
    st.tuples(st.just("log"), st.integers(1, 30))
    | st.tuples(st.just("deliver"), st.integers(1, 40))
    | st.just(("die", 0))
)


@given(operations, st.integers(100, 2000))
def test_over_any_number_of_lives_nothing_is_lost_and_the_order_holds(operations, segment_bytes):
    """What was delivered just before a death may come again, as a whole piece: the server knows it by its sequence."""
    logged = itertools.count()
    delivered = []
    with TemporaryDirectory() as directory:
        spool = Path(directory)
        boxes = []
        for operation, most in [*operations, ("die", 0), ("deliver", 10**6)]:
            if operation == "log":
                if not boxes or boxes[-1].recovered:
                    boxes.append(Box.create(spool, "run", f"{len(boxes):04d}", segment_bytes))
                boxes[-1].append([b"%d" % next(logged) for _ in range(most)])
            elif operation == "deliver":
                wanted = len(delivered) + most
                for box in boxes:
                    delivered += read(box, wanted - len(delivered))
            else:
                for box in boxes:
                    box.abandon()
                boxes = adopt_all(spool, "run")
        for box in boxes:
            box.close()
        assert not list(spool.iterdir())
    firsts = list(dict.fromkeys(int(vector) for vector in delivered))
    assert firsts == list(range(next(logged)))
