"""One file of spooled vectors: written at its end, read from its beginning."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tocsin._records import Scan, scan

__all__ = ["Segment"]

_PIECE = 1024 * 1024


class Segment:
    """Unbuffered, so that what was appended survives the process at once, and a forked child has nothing to flush.

    Args:
        path: the file.
        size: bytes of it that count; what may lie behind them is no part of it.
        descriptor: of the open file; None opens it when it is first read.

    Attributes:
        offset: where the first record begins that isn't delivered yet.
    """

    def __init__(self, path: Path, size: int, descriptor: int | None = None) -> None:
        self.path = path
        self.size = size
        self.offset = 0
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path) -> Segment:
        """A new, empty file.

        Raises:
            OSError: it can't be made.
        """
        return cls(path, 0, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    @property
    def done(self) -> bool:
        """Whether everything in it is delivered."""
        return self.offset >= self.size

    def append(self, data: bytes) -> None:
        """Writes whole records: all of them, or none that counts.

        Raises:
            OSError: the disk is full, say.
        """
        descriptor = self._open()
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], self.size + written)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, self.size)
            raise
        self.size += len(data)

    def read(self) -> Scan:
        """Records from ``offset`` on, about a megabyte of them and at least one if there is one.

        Raises:
            OSError: the disk is broken, say.
        """
        piece = _PIECE
        while True:
            wanted = min(piece, self.size - self.offset)
            data = os.pread(self._open(), wanted, self.offset)
            found = scan(data, self.offset)
            if found.end > self.offset or len(data) < piece:
                return found
            piece *= 2

    def clear(self) -> None:
        """Makes room: what was delivered is cut away."""
        if not self.size:
            return
        with suppress(OSError):
            os.ftruncate(self._open(), 0)
            self.size = self.offset = 0

    def close(self) -> None:
        """Closes the file; it stays where it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def remove(self) -> None:
        """Closes and deletes the file."""
        self.close()
        with suppress(OSError):
            self.path.unlink()

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR)
        return self._descriptor
