"""Request bodies: read with limits, decompressed with limits, parsed without trust."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from tocsin_service.api.errors import ApiError, shorten
from tocsin_service.receiving import json_texts

__all__ = ["SMALL", "Limits", "Lines", "Sent", "parse", "parse_lines", "read", "receive", "unpack"]

# A body that is too large is read on up to here: many clients hear an answer only after they have sent everything.
DRAINED = 2**26
PIECE = 2**14  # bytes decompressed at once
MOST_MEMBERS = 10_000  # of a gzip body; one would do
MOST_VALUES = 2**21  # in a body: parsed, each of them takes far more memory than its two or three bytes
READ_SECONDS = 60.0  # for the whole body: a client that sends slower is holding a connection for nothing
NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
Lines = list[tuple[int, Any]]  # line number from 1, value


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes: of the body as sent, and after decompression."""

    sent: int
    decoded: int


SMALL = Limits(2**18, 2**20)  # for bodies that are a few fields


@dataclass(frozen=True, slots=True)
class Sent:
    """A body as it came in."""

    data: bytes
    gzipped: bool


async def receive(request: Request, limit: int, what: str = "vectors") -> Sent:
    """The body of ``request`` as it was sent, at most ``limit`` bytes; ``what`` is in it, for the texts.

    Raises:
        ApiError: 400 incomplete, 408 too slow, 413 too large, 415 an encoding other than gzip.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "", "gzip", "x-gzip"}:
        raise ApiError(415, f"Content-Encoding {shorten(encoding)} is not known; send gzip or none", "encoding")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and len(declared) < 20 and int(declared) > max(limit, DRAINED):
        _too_large(limit, "", what)
    try:
        async with asyncio.timeout(READ_SECONDS):
            data = await _collect(request.stream(), limit, what)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {READ_SECONDS:.0f} seconds", "slow") from None
    except ClientDisconnect:
        raise ApiError(400, "the connection ended before the body did", "disconnect") from None
    return Sent(data, gzipped=encoding in {"gzip", "x-gzip"})


def unpack(sent: Sent, limit: int, what: str = "vectors") -> bytes:
    """The body after decompression, at most ``limit`` bytes; ``what`` is in it, for the texts.

    Raises:
        ApiError: 400 broken gzip, 413 too large.
    """
    return _gunzip(sent.data, limit, what) if sent.gzipped else sent.data


async def read(request: Request, limits: Limits) -> bytes:
    """:func:`receive` and :func:`unpack` in one, for small bodies."""
    return unpack(await receive(request, limits.sent), limits.decoded)


async def _collect(stream: AsyncIterator[bytes], limit: int, what: str) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > max(limit, DRAINED):
            break
    if size > limit:
        _too_large(limit, "", what)
    return b"".join(chunks)


def _too_large(limit: int, when: str, what: str) -> NoReturn:
    raise ApiError(413, f"the body is larger than {limit} bytes{when}; send fewer {what} at a time", "too_large")


def _gunzip(data: bytes, limit: int, what: str) -> bytes:
    """Decompresses one or more gzip members, and never more than ``limit`` bytes."""
    pieces: list[bytes] = []
    size = at = members = 0
    # Piece by piece: what is behind the end of a member is copied, and there may be many members.
    view, member = memoryview(data), _new_member()
    try:
        while at < len(data):
            if member.eof:
                member, members = _new_member(), members + 1
                if members >= MOST_MEMBERS:
                    _broken_gzip(f"it has more than {MOST_MEMBERS} members")
            fed = view[at : at + PIECE]
            pieces.append(member.decompress(fed, limit + 1 - size))
            size += len(pieces[-1])
            if size > limit:
                _too_large(limit, " after decompression", what)
            at += len(fed) - len(member.unused_data)
    except zlib.error as error:
        _broken_gzip(str(error))
    if data and not member.eof:
        _broken_gzip("it ends too early")
    return b"".join(pieces)


def _new_member() -> Any:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _broken_gzip(problem: str) -> NoReturn:
    raise ApiError(400, f"the body is not valid gzip ({problem}); compress it again or send it plain", "gzip") from None


def parse(data: bytes) -> Any:
    """The JSON value in ``data``; also takes NaN, Infinity and -Infinity.

    Raises:
        ApiError: 413 too many values; 422: empty, not UTF-8, not JSON, nested too deeply, or a key given twice.
    """
    return _parse_text(_decode(data))


def parse_lines(data: bytes, content_type: str, most: int) -> Lines | None:
    """The values of an NDJSON body with their line numbers; None if the body is a single JSON value.

    Args:
        data: the body after decompression.
        content_type: of the request; NDJSON is also known by its looks.
        most: most lines; as many may be blank.

    Raises:
        ApiError: 413 too many lines or values; 422, see :func:`parse`.
    """
    if content_type.split(";", maxsplit=1)[0].strip().lower() not in NDJSON and not _looks_like_lines(data):
        return None
    if (count := data.count(b"\n")) > 2 * most:
        raise ApiError(413, f"the body has {count} lines; send at most {most} at a time", "too_large")
    lines: Lines = []
    # Not splitlines(): a text may hold U+2028, which is no end of a line in NDJSON.
    for number, line in enumerate(_decode(data).split("\n"), 1):
        if line.strip():
            lines.append((number, _parse_text(line, f"line {number}: ")))
    return lines


def _looks_like_lines(data: bytes) -> bool:
    """Whether the first of several lines is an object of its own."""
    first, _, rest = data.lstrip().partition(b"\n")
    return first.startswith(b"{") and first.rstrip().endswith(b"}") and bool(rest.strip())


def _decode(data: bytes) -> str:
    if not data.strip():
        raise ApiError(422, 'the body is empty; send {"step": 1, "metrics": {"reward": 0.5}}', "empty")
    if data.count(b",") > MOST_VALUES:
        raise ApiError(413, f"the body has more than {MOST_VALUES} values; send fewer vectors at a time", "too_large")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(422, f"the body is not UTF-8 (byte {error.start})", "syntax") from None


def _parse_text(text: str, where: str = "") -> Any:
    try:
        return json_texts.parse(text)
    except json_texts.JsonError as error:
        raise ApiError(422, f"{where}{error}", "syntax") from None
