"""The header of a safetensors body, and the body's way into memory: what is taken, and that the rest is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_service.tensors.admission import Admission, Full
from tocsin_service.tensors.errors import FileError, HeaderError
from tocsin_service.tensors.header import DTYPES, LONGEST_HEADER, parse_header, read_length
from tocsin_service.tensors.intake import Body, Intake, TensorFile
from tocsin_service.tensors.names import NAMES


def tensor(dtype: str = "F32", shape: Any = (2, 3), begin: Any = 0, end: Any = 24) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def head(tensors: Any) -> bytes:
    text = tensors if isinstance(tensors, bytes) else json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


def take(body: bytes, *cuts: int, length: int | None = None) -> Body:
    """Feeds the body in pieces, cut at the given places."""
    intake = Intake(len(body) if length is None else length, NAMES)
    for begin, end in pairwise([0, *sorted(cuts), len(body)]):
        intake.feed(body[begin:end])
    return intake.finish()


GOOD = {
    "old_log_probs": tensor(),
    "response_mask": tensor("BOOL", (2, 3), 24, 30),
    "__metadata__": {"format": "pt", "domains": '["math"]'},
}
DATA = bytes(range(30))


def test_a_good_body() -> None:
    body = take(head(GOOD) + DATA)
    assert [span.name for span in body.header.tensors] == ["old_log_probs", "response_mask"]
    assert body.header.metadata["domains"] == '["math"]'
    assert [bytes(body.view(span)) for span in body.header.tensors] == [DATA[:24], DATA[24:]]


@given(st.lists(st.integers(0, len(head(GOOD) + DATA)), max_size=8))
def test_any_pieces_make_the_same_body(cuts: list[int]) -> None:
    body = take(head(GOOD) + DATA, *cuts)
    assert bytes(body.memory) == DATA


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    size = DTYPES[dtype]
    (span,) = parse_header(json.dumps({"values": tensor(dtype, (3,), 0, 3 * size)}).encode(), 3 * size, NAMES).tensors
    assert (span.dtype, span.shape) == (dtype, (3,))


def test_spaces_behind_the_header_and_tensors_without_items() -> None:
    tensors = {"scores": tensor(shape=(0,), end=0), "values": tensor(), "rewards": tensor(shape=(5, 0), begin=24)}
    header = parse_header(json.dumps(tensors).encode() + b"   ", 24, NAMES)
    assert {span.name for span in header.tensors} == set(tensors)


HOSTILE: dict[str, tuple[Any, str]] = {
    "no tensor": ({}, "no tensor"),
    "only metadata": ({"__metadata__": {}}, "no tensor"),
    "metadata that is a list": ({**GOOD, "__metadata__": []}, "__metadata__"),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, "__metadata__"),
    "a list": (b"[1, 2]", "no JSON object"),
    "a number": (b"12", "no JSON object"),
    "broken JSON": (b'{"values": ', "not valid JSON"),
    "no UTF-8": (b'{"\xff": 1}', "UTF-8"),
    "text behind it": (b"{} x", "not valid JSON"),
    "nested deeply": (b'{"a":' * 20_000 + b"}", "nested"),
    "a key twice": (b'{"values": {}, "values": {}}', "twice"),
    "an inner key twice": (b'{"values": {"dtype": "F32", "dtype": "F64"}}', "twice"),
    "unknown name": ({"input_ids": tensor()}, "no tensor 'input_ids'.*old_log_probs"),
    "name with controls": ({"values\0\n": tensor()}, r"values\\x00\\n"),
    "name like a path": ({"../../values": tensor()}, "no tensor"),
    "endless name": ({"x" * 1000: tensor()}, r"xxx\.\.\."),
    "empty name": ({"": tensor()}, "no tensor"),
    "a tensor that is a list": ({"values": [1]}, "exactly the fields"),
    "a field too few": ({"values": {"dtype": "F32", "shape": [1]}}, "exactly the fields"),
    "a field too many": ({"values": {**tensor(), "strides": [1]}}, "exactly the fields"),
    "8-bit float": ({"values": tensor("F8_E4M3", (24,))}, "dtype 'F8_E4M3'.*F32"),
    "complex": ({"values": tensor("C64", (3,))}, "dtype 'C64'"),
    "unsigned": ({"values": tensor("U64", (3,))}, "dtype 'U64'"),
    "a dtype that is a list": ({"values": tensor(["F32"])}, "dtype"),  # type: ignore[arg-type]
    "lower case dtype": ({"values": tensor("f32")}, "dtype 'f32'"),
    "negative extent": ({"values": tensor(shape=(-2, -3))}, "extents"),
    "fractional extent": ({"values": tensor(shape=(2.0, 3))}, "extents"),
    "true as an extent": ({"values": tensor(shape=(True, 6))}, "extents"),
    "a shape that is a number": ({"values": {**tensor(), "shape": 6}}, "extents"),
    "three dimensions": ({"values": tensor(shape=(1, 2, 3))}, "at most 2 extents"),
    "an extent beyond every memory": ({"values": tensor(shape=(2**60, 0), end=0)}, "extents"),
    "NaN as an extent": (b'{"values": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 24]}}', "extents"),
    "more digits than a number has": (b'{"values": {"dtype": "F32", "shape": [' + b"9" * 5000 + b"]}}", "exactly"),
    "span shorter than the shape": ({"values": tensor(end=20)}, "has 24 bytes, but its offsets span 20"),
    "span longer than the shape": ({"values": tensor(end=30)}, "has 24 bytes, but its offsets span 30"),
    "no tensor of two extents that multiply beyond 64 bits": ({"values": tensor(shape=(2**40, 2**40))}, "has 48357"),
    "negative offset": ({"values": tensor(begin=-24, end=0)}, "two whole numbers"),
    "offsets that go back": ({"values": tensor(begin=24, end=0)}, "begin <= end"),
    "one offset": ({"values": {**tensor(), "data_offsets": [24]}}, "two whole numbers"),
    "three offsets": ({"values": {**tensor(), "data_offsets": [0, 0, 24]}}, "two whole numbers"),
    "offsets that are null": ({"values": {**tensor(), "data_offsets": None}}, "two whole numbers"),
    "overlap": ({"values": tensor(), "scores": tensor(shape=(1,), begin=20)}, "overlaps"),
    "the same span twice": ({"values": tensor(), "scores": tensor()}, "overlaps"),
    "a hole at the beginning": ({"values": tensor(begin=4, end=28)}, "bytes 0 to 4 .* no tensor"),
    "a hole between": ({"values": tensor(), "scores": tensor(shape=(1,), begin=28, end=32)}, "bytes 24 to 28"),
    "less than the body": ({"values": tensor(shape=(5,), end=20)}, "10 bytes behind its last tensor"),
    "more than the body": ({"values": tensor(shape=(10,), end=40)}, "need 40 bytes, but the body has only 30"),
    "out of line": (
        {"response_mask": tensor("BOOL", (2,), 0, 2), "values": tensor(shape=(7,), begin=2, end=30)},
        "no multiple of its item's 4 bytes",
    ),
}


@pytest.mark.parametrize(("tensors", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_headers(tensors: Any, problem: str) -> None:
    with pytest.raises(HeaderError, match=problem) as caught:
        take(head(tensors) + DATA)
    assert len(str(caught.value)) < 600
    assert str(caught.value).isascii()


@pytest.mark.parametrize("body", [b"", b"abc", b"\0" * 8, (2**63).to_bytes(8, "little") + b"{}", b"\x03" + b"\0" * 7])
def test_lengths_that_can_not_be(body: bytes) -> None:
    for longer in (body, body + b"{}"):
        with pytest.raises(HeaderError):
            take(longer)


def test_a_header_may_not_be_huge() -> None:
    with pytest.raises(HeaderError, match="more than the"):
        read_length((LONGEST_HEADER + 1).to_bytes(8, "little"), 2**40)


def test_no_memory_is_taken_before_the_header_is_known_to_be_good() -> None:
    size = 2**47  # nobody has that: taking it would fail in another way
    text = json.dumps({"values": tensor("F64", (2**40, 2**4), 0, size)}).encode()
    intake = Intake(2 * size, NAMES)
    with pytest.raises(HeaderError, match="behind its last tensor"):
        intake.feed(len(text).to_bytes(8, "little") + text)


def test_no_memory_at_all() -> None:
    size = 2**47  # beyond the address space
    text = json.dumps({"values": tensor("F64", (2**40, 2**4), 0, size)}).encode()
    intake = Intake(8 + len(text) + size, NAMES)
    with pytest.raises(MemoryError, match="bytes can't be had"):
        intake.feed(len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize("missing", [1, 30, 31, 200])
def test_a_body_that_ends_early(missing: int) -> None:
    body = head(GOOD) + DATA
    with pytest.raises(HeaderError, match="ended after"):
        take(body[:-missing], length=len(body))


def test_a_body_that_is_longer_than_declared() -> None:
    body = head(GOOD) + DATA
    with pytest.raises(HeaderError, match="more bytes came"):
        take(body + b"x", length=len(body))


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for body in (noise, head(noise), head(b"{" + noise) + DATA):
        with pytest.raises(HeaderError):
            take(body)


@given(st.data())
def test_headers_with_one_byte_changed_are_refused_or_harmless(data: st.DataObject) -> None:
    text = bytearray(json.dumps(GOOD).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        body = take(head(bytes(text)) + DATA)
    except HeaderError:
        return
    assert sum(span.end - span.begin for span in body.header.tensors) == len(DATA)


# Files


@pytest.fixture
def put(tmp_path: Path) -> Callable[[bytes], Path]:
    def written(content: bytes) -> Path:
        path = tmp_path / "step.safetensors"
        path.write_bytes(content)
        return path

    return written


def read_file(folder: Path, name: str = "step.safetensors") -> Body:
    file = TensorFile(folder, name)
    try:
        return file.read(NAMES)
    finally:
        file.close()


def test_a_file_is_copied(put: Any, tmp_path: Path) -> None:
    path = put(head(GOOD) + DATA)
    body = read_file(tmp_path)
    os.truncate(path, 0)  # a mapped file would end the process here
    assert bytes(body.memory) == DATA


@pytest.mark.parametrize("name", ["", ".", "..", "../step.safetensors", "/etc/passwd", "a/b", "a\0", "no", "x" * 300])
def test_names_that_are_no_file(put: Any, tmp_path: Path, name: str) -> None:
    put(head(GOOD) + DATA)
    with pytest.raises(FileError, match="file"):
        read_file(tmp_path, name)


def test_symbolic_links_are_refused(put: Any, tmp_path: Path) -> None:
    put(head(GOOD) + DATA).rename(tmp_path / "target")
    (tmp_path / "step.safetensors").symlink_to("target")
    with pytest.raises(FileError, match="is a symbolic link"):
        read_file(tmp_path)


def test_pipes_and_directories_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileError, match="no regular file"):
            read_file(tmp_path, name)


def test_a_file_that_is_cut_between_its_opening_and_its_reading(put: Any, tmp_path: Path) -> None:
    path = put(head(GOOD) + DATA)
    file = TensorFile(tmp_path, path.name)
    os.truncate(path, file.size - 5)
    with pytest.raises(FileError, match="was it cut meanwhile"):
        file.read(NAMES)
    file.close()


@pytest.mark.parametrize("content", [b"", b"short", head(b"{}"), (2**40).to_bytes(8, "little") + b"{}", b"x" * 100])
def test_files_that_are_no_safetensors(put: Any, tmp_path: Path, content: bytes) -> None:
    put(content)
    with pytest.raises(HeaderError):
        read_file(tmp_path)


def test_no_descriptor_is_left_open(put: Any, tmp_path: Path) -> None:
    put(head(GOOD) + DATA)
    (tmp_path / "folder").mkdir()
    before = open_descriptors()
    for name in ("step.safetensors", "folder", "none", ".."):
        with suppress(FileError):
            read_file(tmp_path, name)
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Places


def test_places_are_counted_by_requests_and_bytes() -> None:
    admission = Admission(2, 100)
    with admission.place(60):
        with pytest.raises(Full, match="50 more"), admission.place(50):
            pass
        with admission.place(40), pytest.raises(Full, match="2 requests"), admission.place(0):
            pass
        assert (admission.requests, admission.bytes) == (1, 60)
    assert (admission.requests, admission.bytes) == (0, 0)


def test_a_place_is_given_back_after_an_error() -> None:
    admission = Admission(1, 100)
    for _ in range(3):
        with pytest.raises(OSError, match="gone"), admission.place(100):
            raise OSError("gone")
