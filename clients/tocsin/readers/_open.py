"""Opens a log, packed or not."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tocsin.readers._source import Source

__all__ = ["is_packed", "pieces"]

_GZIP = b"\x1f\x8b"
_PIECE = 64 * 1024


def is_packed(head: bytes) -> bool:
    """Whether a file that begins with these bytes is packed by gzip."""
    return head.startswith(_GZIP)


def pieces(source: Source) -> Iterator[bytes]:
    """The unpacked content of a log. A gzip file that ends early gives what it still has.

    Raises:
        ReadError: it can't be opened or read.
    """
    with ExitStack() as opened:
        try:
            stored = opened.enter_context(_stored(source.path))
            packed = is_packed(stored.peek(2)[:2])
        except OSError as error:
            raise source.error(None, f"can't be opened: {error.strerror}") from error
        content = opened.enter_context(gzip.GzipFile(fileobj=stored)) if packed else stored
        line = 1
        while True:
            try:
                piece = content.read1(_PIECE)
            except EOFError:
                source.warn(f"{source.path}: ends in the middle of its gzip data")
                return
            except (OSError, zlib.error) as error:
                raise source.error(line, f"can't be read: {error}") from error
            if not piece:
                return
            line += piece.count(b"\n")
            yield piece


def _stored(path: str) -> io.BufferedReader:
    """The file; closing standard input leaves it open for others."""
    return open(0, "rb", closefd=False) if path == "-" else Path(path).open("rb")
