"""Redis's protocol: every reply survives being cut into pieces, and nothing that arrives breaks more than itself."""

from __future__ import annotations

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tocsin._resp import ErrorReply, Parser, Unreadable, encode, first_error

lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
replies = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40) | lines.map(ErrorReply),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def wire(reply):
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, ErrorReply):
        return b"-" + reply.text.encode() + b"\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n" % len(reply) + b"".join(map(wire, reply))


def depth(reply):
    return 1 + max(map(depth, reply), default=0) if isinstance(reply, list) else 0


@given(st.lists(replies.filter(lambda reply: depth(reply) <= 8), max_size=6), st.data())
def test_replies_survive_being_cut_anywhere(sent, data):
    stream = b"".join(map(wire, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parser = Parser()
    received = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        parser.feed(stream[begin:end])
        received += parser.replies()
    assert received == sent


@given(st.binary(max_size=60) | st.lists(st.sampled_from([b"*", b"$", b"1", b"-", b":", b"+", b"\r\n"])).map(b"".join))
def test_any_bytes_are_replies_or_refused(data):
    parser = Parser()
    parser.feed(data)
    try:
        parser.replies()
    except Unreadable as error:
        assert len(str(error)) < 500  # noqa: PT017 most examples are fine


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_commands_are_written_as_redis_py_writes_them(words):
    assert encode(b"XADD", *words) == b"".join(redis.connection.Connection().pack_command(b"XADD", *words))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "something that says b'HTTP/1.1 400 Bad Request'"),
        (b"SSH-2.0-Open", "something that says b'SSH-2.0-Open'"),
        (b"$abc\r\n", "something that says b'abc'"),
        (b"$-2\r\n", "something that says"),
        (b":\r\n", "something that says"),
        (b"$99999999999999\r\n", "something that says"),
        (b"$3\r\nabcdef\r\n", "another length"),
        (b"*1\r\n" * 20 + b":1\r\n", "too deeply"),
        (b"+" + b"x" * 100_000, "something that says"),
    ],
)
def test_what_is_no_redis_is_named(data, problem):
    parser = Parser()
    parser.feed(data)
    with pytest.raises(Unreadable, match=problem.replace("(", ".").replace("/", ".")):
        parser.replies()


def test_the_first_error_is_found_in_lists_too():
    assert first_error([b"OK", [1, [ErrorReply("a b"), ErrorReply("c")]], ErrorReply("d")]) == ErrorReply("a b")
    assert first_error([b"-OK", [], None, 0]) is None
