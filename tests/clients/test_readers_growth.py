"""However a log grows, and wherever a reader begins again, the vectors are those of reading it as a whole."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
import zlib
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin.readers import ReadError, read
from tocsin.readers._sniffer import Sniffer, restore
from tocsin.readers._source import Source
from tocsin.tail._file import GrowingFile
from tocsin.tail._place import Place

CASTAGNOLI = [0] * 256
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = (_value >> 1) ^ (0x82F63B78 if _value & 1 else 0)
    CASTAGNOLI[_byte] = _value


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CASTAGNOLI[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    value &= 2**64 - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def part(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step, values, time=1767225600.5, tensor=False):
    summary = b""
    for name, value in values.items():
        if tensor:  # as add_scalar(..., new_style=True) and TensorFlow 2 write
            number = part(8, b"\x08\x01" + part(2, b"") + part(5, struct.pack("<f", value)))
        else:
            number = b"\x15" + struct.pack("<f", value)
        summary += part(1, part(1, name.encode()) + number)
    return b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + part(5, summary)


def record(payload):
    size = struct.pack("<Q", len(payload))
    return size + masked(size) + payload + masked(payload)


BEGIN = record(b"\x09" + struct.pack("<d", 1767225600.0) + part(3, b"brain.Event:2"))


def events(rows, tensor=False):
    one_by_one = [record(event(step, {n: v}, tensor=tensor)) for step, values in rows for n, v in values.items()]
    return BEGIN + b"".join(one_by_one)


def wandb_file(rows):
    out = bytearray(b":W&B\xe1\xbe\x00")
    for step, values in rows:
        items = b"".join(part(1, part(2, n.encode()) + part(16, json.dumps(v).encode())) for n, v in values.items())
        data = part(2, items + part(2, b"\x08" + varint(step)))
        first = True
        while first or data:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += bytes(left)
                left = 32768
            piece, data = data[: left - 7], data[left - 7 :]
            kind = (1 if not data else 2) if first else (4 if not data else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
    return bytes(out)


def table(rows):
    names = sorted({name for _, values in rows for name in values})
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["step", "a note, in\ntwo lines", *names])
    for step, values in rows:
        writer.writerow([step, 'said "x"\n', *(values.get(name, "") for name in names)])
    return text.getvalue().encode()


def verl_console(rows):
    lines = ["INFO worker started, all is well", "\x1b[36m(TaskRunner pid=17)\x1b[0m {'a': [1,"]
    for step, values in rows:
        told = " - ".join(f"{name}:np.float64({value!r})" for name, value in values.items())
        lines += [f"\x1b[36m(TaskRunner pid=17)\x1b[0m step:{step} - {told}", "Training Progress:  1%|\r 2%| step"]
    return "\n".join(lines).encode() + b"\n"


WRITERS = {
    "ours": lambda rows: "".join(json.dumps({"step": s, "metrics": v}) + "\n" for s, v in rows).encode(),
    "verl": lambda rows: "\n".join(json.dumps({"step": s, "data": v}) for s, v in rows).encode(),
    "flat": lambda rows: "\r\n".join(json.dumps({"step": s, **v}) for s, v in rows).encode(),
    "counted": lambda rows: "".join(json.dumps(v) + "\n" for _, v in rows).encode(),
    "table": table,
    "console": verl_console,
    "roll": lambda r: "".join(f"I x] metrics_tag: {json.dumps({'step': s, 'metrics': v})}\n" for s, v in r).encode(),
    "trainer": lambda r: "".join(f"{ {'loss': v['loss'], 'epoch': 0.1} }\n" for _, v in r).encode(),
    "events": events,
    "tensors": lambda rows: events(rows, tensor=True),
    "wandb": wandb_file,
}
numbers = st.floats(width=32)
names = st.sampled_from(["actor/kl_loss", "val-core/openai/gsm8k/acc/mean@1", "a:b - c:1", "naïve", "loss"])
rows = st.lists(
    st.tuples(st.integers(0, 2**40), st.dictionaries(names, numbers, max_size=3).map(lambda d: {**d, "loss": 1.0})),
    min_size=1,
    max_size=12,
)


def told(vectors):
    """Vectors that can be compared: NaN as a text, and metric by metric, as readers may cut a step in two."""
    return [(v.step, name, repr(value), v.time) for v in vectors for name, value in v.metrics.items()]


def fed(decoder, pieces):
    for piece in pieces:
        yield from decoder.feed(piece)


def cut(content, places):
    borders = sorted({0, len(content), *(place % (len(content) + 1) for place in places)})
    return [content[a:b] for a, b in pairwise(borders)]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.dat"


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=rows, places=st.lists(st.integers(0, 10**6), max_size=6))
def test_pieces_give_what_the_whole_gives(log, form, rows, places):
    content = WRITERS[form](rows)
    log.write_bytes(content)
    whole = list(read(log))
    assert whole
    decoder = Sniffer(Source("log", skip_broken=True))
    pieces = cut(content, places)
    found = [*fed(decoder, pieces), *decoder.feed(b"", last=True)]
    assert told(found) == told(whole)
    assert [(v.line, v.mark) for v in found] == [(v.line, v.mark) for v in whole]


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=rows, places=st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_a_decoder_made_anew_goes_on_where_the_last_one_was(log, form, rows, places):
    content = WRITERS[form](rows)
    log.write_bytes(content)
    found, begin, name, state = [], 0, "", {}
    for place in sorted(place % (len(content) + 1) for place in places):
        source = Source("log", skip_broken=True)
        decoder = restore(name, state, source) if name else Sniffer(source)
        found += decoder.feed(content[begin:place])
        found += decoder.flush()
        decoder = (decoder.chosen or decoder) if isinstance(decoder, Sniffer) else decoder
        name, state = ("" if isinstance(decoder, Sniffer) else decoder.name), json.loads(json.dumps(decoder.state()))
        begin = decoder.offset
        assert begin <= place
    source = Source("log", skip_broken=True)
    found += (restore(name, state, source) if name else Sniffer(source)).feed(content[begin:], last=True)
    assert told(found) == told(read(log))


growth = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 10**6)),
        st.just(("kill", 0)),
        st.just(("lose", 0)),
        st.just(("read", 0)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("form", ["verl", "table", "console", "events", "wandb", "counted"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=rows, growth=growth)
def test_kills_at_any_moment_neither_lose_nor_double(tmp_path, form, rows, growth):
    """A receiver that knows a vector by its sequence, step and time gets each one once and in order."""
    content = WRITERS[form](rows)
    log = tmp_path / "grown.dat"
    log.write_bytes(b"")
    begun = False
    place, written, received = Place(), 0, {}
    file = GrowingFile("key", log, place)
    for kind, amount in [*growth, ("append", 0), ("read", 0), ("read", 0)]:
        if kind == "append":
            end = len(content) if amount == 0 else min(len(content), written + amount % 97)
            with log.open("ab") as writer:
                writer.write(content[written:end])
            written, begun = end, True
            continue
        if kind == "kill":
            file.close()
            file = GrowingFile("key", log, Place.from_json(json.loads(json.dumps(place.to_json()))))
            continue
        chunk = file.read()
        if chunk is None:
            place = file.place
            continue
        place = chunk.before  # written down before it is sent
        for vector, sequence in zip(chunk.vectors, chunk.sequences, strict=True):
            known = received.setdefault((sequence, vector.step, vector.time or chunk.time), vector)
            assert told([known]) == told([vector])
        if kind == "read":
            file.commit(chunk.after)
            place = chunk.after
        else:  # killed after the server had it, before that was written down
            file.close()
            file = GrowingFile("key", log, Place.from_json(json.loads(json.dumps(place.to_json()))))
    file.close()
    assert begun
    log.write_bytes(content)
    assert told(received.values()) == told(read(log))


lives = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 90)),
        st.tuples(st.just("truncate"), st.integers(0, 90)),
        st.tuples(st.just("rotate"), st.integers(0, 90)),
        st.sampled_from([("kill", 0), ("lose", 0), ("read", 0)]),
    ),
    max_size=30,
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lives=lives)
def test_a_file_that_begins_anew_at_any_moment_is_read_from_its_beginning(tmp_path, lives):
    """What is there in the end has been delivered in its order, and nothing that was never written."""
    log = tmp_path / "life.jsonl"
    log.write_bytes(b"")
    place, life, written, received = Place(), 0, 0, {}
    file = GrowingFile("key", log, place)

    def content(life):
        return "".join(json.dumps({"step": s, "data": {"x": life * 1000 + s}}) + "\n" for s in range(40)).encode()

    for kind, amount in [*lives, ("append", 1), ("read", 0), ("read", 0), ("read", 0)]:
        if kind in {"truncate", "rotate"}:
            if kind == "rotate":
                log.rename(tmp_path / "life.jsonl.1")
            life, written = life + 1, 0
            log.write_bytes(b"")
        if kind in {"append", "truncate", "rotate"}:
            with log.open("ab") as writer:
                writer.write(content(life)[written : written + amount])
            written += amount
        elif kind == "kill":
            file.close()
            file = GrowingFile("key", log, Place.from_json(json.loads(json.dumps(place.to_json()))))
        elif (chunk := file.read()) is None:
            place = file.place
        else:
            place = chunk.after if kind == "read" else chunk.before
            for vector, sequence in zip(chunk.vectors, chunk.sequences, strict=True):
                received.setdefault(sequence, vector)
            if kind == "read":
                file.commit(place)
            else:
                file.close()
                file = GrowingFile("key", log, Place.from_json(json.loads(json.dumps(place.to_json()))))
    file.close()
    found = [vector.metrics["x"] for vector in received.values()]
    whole = [life * 1000 + step for step in range(log.read_bytes().count(b"\n"))]
    assert [x for x in found if x // 1000 == life][: len(whole)] == whole
    assert all(0 <= x // 1000 <= life and x % 1000 < 40 for x in found)
    assert len(set(found)) == len(found)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([b"", BEGIN, b":W&B\xe1\xbe\x00", b'{"step": 1, "data": {"x": 1}}\n', b"step,x\n"]),
    st.lists(st.binary(max_size=60), max_size=5),
    st.data(),
)
def test_garbage_is_survived(begin, pieces, data):
    decoder = Sniffer(Source("log", skip_broken=True))
    flips = bytearray(begin + events([(1, {"a": 1.0})])[: data.draw(st.integers(0, 120))])
    with suppress(ReadError):
        for piece in [bytes(flips), *pieces]:
            assert all(vector.step >= 0 for vector in decoder.feed(piece))
        assert all(vector.step >= 0 for vector in decoder.feed(b"", last=True))


def test_a_very_long_line_is_left_out(monkeypatch, log, caplog):
    monkeypatch.setattr("tocsin.readers._lines._LONGEST", 100_000)
    line = b'{"step": 1, "data": {"x": 1}}\n'
    log.write_bytes(line + b'{"step": 2, "x": "' + b"y" * 1_000_000 + b'"}\n' + line)
    with pytest.raises(ReadError, match="is longer than"):
        list(read(log))
    assert [v.line for v in read(log, skip_broken=True)] == [1, 3]
    assert "is longer than" in caplog.text


def test_nan_and_infinities_survive_every_binary_format(log):
    values = {"a": math.nan, "b": math.inf, "c": -math.inf}
    for form in ("events", "tensors", "wandb"):
        log.write_bytes(WRITERS[form]([(3, values)]))
        assert [metric[:3] for metric in told(read(log))] == [(3, "a", "nan"), (3, "b", "inf"), (3, "c", "-inf")]
