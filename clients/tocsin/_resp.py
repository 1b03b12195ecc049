"""Redis's protocol (RESP2, https://redis.io/docs/latest/develop/reference/protocol-spec/): bytes to values and back."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["ErrorReply", "Parser", "Reply", "Unreadable", "encode", "first_error"]

_DEEPEST = 8
_LONGEST_LINE = 64 * 1024
_LARGEST_REPLY = 16 * 1024 * 1024


class ErrorReply(NamedTuple):
    """An error that Redis told, without the "-" before it."""

    text: str


Reply: TypeAlias = "bytes | int | ErrorReply | list[Reply] | None"
"""A status or a bulk string, an integer, nothing, an error, or a list of these."""


class Unreadable(ValueError):  # noqa: N818 what the other side sent is no error of ours
    """The bytes aren't RESP2, or a reply is larger than any that is asked for."""


class _Incomplete(Exception):  # noqa: N818 more has to arrive first
    pass


def encode(*words: bytes) -> bytes:
    """A command as it goes over the wire."""
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)])


def first_error(replies: list[Reply]) -> ErrorReply | None:
    """The first error among replies and in the lists among them."""
    for reply in replies:
        error = first_error(reply) if isinstance(reply, list) else reply
        if isinstance(error, ErrorReply):
            return error
    return None


class Parser:
    """Cuts what arrives, in pieces of any size, into replies."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Adds what has arrived."""
        self._data += data

    def replies(self) -> list[Reply]:
        """The replies that are complete by now, each given once.

        Raises:
            Unreadable: this and all that follows makes no sense.
        """
        found: list[Reply] = []
        begin = 0
        try:
            while begin < len(self._data):
                reply, begin = self._value(begin, 0)
                found.append(reply)
        except _Incomplete:
            if len(self._data) - begin > _LARGEST_REPLY:
                raise Unreadable("a reply is too large") from None
        del self._data[:begin]
        return found

    def _value(self, begin: int, depth: int) -> tuple[Reply, int]:
        """The value at ``begin``, and where the next one begins."""
        line, end = self._line(begin)
        kind, text = line[:1], line[1:]
        if kind == b"+":
            return text, end
        if kind == b"-":
            return ErrorReply(text.decode("utf-8", "replace")), end
        if kind not in {b":", b"$", b"*"}:
            raise _strange(line)
        number = _whole(text)
        if kind == b":":
            return number, end
        if not -1 <= number <= _LARGEST_REPLY:
            raise _strange(line)
        if number == -1:
            return None, end
        return self._bulk(end, number) if kind == b"$" else self._list(end, number, depth)

    def _bulk(self, begin: int, length: int) -> tuple[Reply, int]:
        end = begin + length
        if len(self._data) < end + 2:
            raise _Incomplete
        if self._data[end : end + 2] != b"\r\n":
            raise Unreadable("a string has another length than it says")
        return bytes(self._data[begin:end]), end + 2

    def _list(self, begin: int, length: int, depth: int) -> tuple[Reply, int]:
        if depth == _DEEPEST:
            raise Unreadable("a reply is nested too deeply")
        values: list[Reply] = []
        for _ in range(length):
            value, begin = self._value(begin, depth + 1)
            values.append(value)
        return values, begin

    def _line(self, begin: int) -> tuple[bytes, int]:
        end = self._data.find(b"\r\n", begin, begin + _LONGEST_LINE)
        if end < 0:
            if len(self._data) - begin >= _LONGEST_LINE or self._data[begin : begin + 1] not in b"+-:$*":
                raise _strange(bytes(self._data[begin:][:80]))
            raise _Incomplete
        return bytes(self._data[begin:end]), end + 2


def _whole(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 20:
        raise _strange(text)
    return int(text)


def _strange(data: bytes) -> Unreadable:
    return Unreadable(f"no Redis answers here, but something that says {data[:80]!r}")
