"""A body on its way into memory: its header is checked before room for the data is made, which is copied once."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tocsin_service.receiving.json_texts import shorten
from tocsin_service.tensors.errors import FileError, HeaderError
from tocsin_service.tensors.header import PREFIX, Header, TensorSpan, parse_header, read_length

__all__ = ["Body", "Intake", "TensorFile"]


@dataclass(frozen=True, slots=True)
class Body:
    """Tensors in memory.

    Attributes:
        memory: the data; its first byte is aligned for every dtype. Returned to the system with the last view of it.
    """

    header: Header
    memory: mmap.mmap

    def view(self, span: TensorSpan) -> memoryview:
        """The bytes of one tensor, not copied."""
        return memoryview(self.memory)[span.begin : span.end]


class Intake:
    """Takes a body in pieces of any size.

    Args:
        length: of the whole body in bytes, as declared.
        names: tensors that may be in it.
    """

    def __init__(self, length: int, names: Iterable[str]) -> None:
        self._length, self._names = length, frozenset(names)
        self._head = bytearray()
        self._wanted = PREFIX  # bytes of the head until the next thing is known
        self._body: Body | None = None
        self._filled = 0

    def feed(self, chunk: bytes) -> None:
        """Adds the next piece.

        Raises:
            HeaderError: the header can't be used, or more came than was declared. Nothing may be fed after that.
            MemoryError: there is no room for it.
        """
        rest = memoryview(chunk)
        while self._body is None and rest:
            taken = min(self._wanted - len(self._head), len(rest))
            self._head += rest[:taken]
            rest = rest[taken:]
            if len(self._head) == self._wanted:
                self._advance()
        if self._body is None or not rest:
            return
        end = self._filled + len(rest)
        if end > self._body.header.size:
            raise HeaderError(f"more bytes came than the {self._length} that were declared")
        self._body.memory[self._filled : end] = rest
        self._filled = end

    def finish(self) -> Body:
        """The whole body.

        Raises:
            HeaderError: it ended too early.
        """
        if self._body is None or self._filled < self._body.header.size:
            came = len(self._head) + self._filled
            raise HeaderError(f"the body ended after {came} of {self._length} bytes; send all of it")
        return self._body

    def _advance(self) -> None:
        if self._wanted == PREFIX:
            self._wanted += read_length(bytes(self._head), self._length)
            return
        header = parse_header(bytes(self._head[PREFIX:]), self._length - self._wanted, self._names)
        self._body = Body(header, _allocate(header.size))


class TensorFile:
    """A safetensors file in the directory from which the service may read.

    It is copied: whoever can write the file could cut it off while it is mapped, and that ends a process. Symbolic
    links are refused: they would lead out of the directory.

    Args:
        directory: what the operator allows; may be reached by a link itself.
        name: of the file in it, without any path.

    Raises:
        FileError: there is no such file, it is no regular file, or it can't be opened.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._file = -1
        if not name or name in {".", ".."} or "/" in name or "\0" in name:
            raise FileError(f"file {shorten(name)}: send the name of a file in the tensor directory, without a path")
        try:
            folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                # Not blocking: a pipe of that name would wait for its writer.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                self._file = os.open(name, flags, dir_fd=folder)
            finally:
                os.close(folder)
        except (OSError, ValueError) as error:
            raise FileError(f"file {shorten(name)} can't be opened in the tensor directory ({_why(error)})") from None
        facts = os.fstat(self._file)
        if not stat.S_ISREG(facts.st_mode):
            self.close()
            raise FileError(f"file {shorten(name)} is no regular file")
        self.size = facts.st_size

    def read(self, names: Iterable[str]) -> Body:
        """Copies the file into memory; see :meth:`Intake.feed`.

        Raises:
            HeaderError: it can't be used.
            FileError: it can't be read, or was cut meanwhile.
            MemoryError: there is no room for it.
        """
        prefix = os.pread(self._file, PREFIX, 0)
        length = read_length(prefix, self.size)
        start = PREFIX + length
        header = parse_header(os.pread(self._file, length, PREFIX), self.size - start, names)
        memory = _allocate(header.size)
        filled = 0
        while filled < header.size:
            count = os.preadv(self._file, [memoryview(memory)[filled : header.size]], start + filled)
            if not count:
                raise FileError(f"the file ended after {start + filled} of {self.size} bytes; was it cut meanwhile?")
            filled += count
        return Body(header, memory)

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._file)


def _allocate(size: int) -> mmap.mmap:
    # A map of its own, not the allocator's: pages are only taken as they are filled, and all are given back at once.
    try:
        return mmap.mmap(-1, max(1, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes can't be had ({error.strerror})") from None


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
    return type(error).__name__
