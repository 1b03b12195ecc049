"""One file that grows: what is new in it, from where it was left."""

from __future__ import annotations

import hashlib
import io
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from time import time as wall_clock

from tocsin._guard import say
from tocsin.readers import ReadError, Vector
from tocsin.readers._decoder import Decoder
from tocsin.readers._open import is_packed
from tocsin.readers._sniffer import Sniffer, restore
from tocsin.readers._source import Source
from tocsin.readers.document import Document
from tocsin.tail._chunk import Chunk, sequence_of
from tocsin.tail._place import Place, Sending

__all__ = ["GrowingFile", "WholeFileError"]

_CHUNK = 256 * 1024
_SEEN = 1024
# A file that doesn't grow is closed after so many seconds; until then, one that was renamed is read to its end.
_KEPT_OPEN = 60.0
_MOST_BYTES = 16 * 1024 * 1024


class WholeFileError(Exception):
    """The file can't be read piece by piece: it is packed, or a JSON document."""


class GrowingFile:
    """Reads a file from its place on. One that is shorter than before, or another one by its content, begins anew.

    Args:
        key: tells the file from all others.
        path: where it is.
        place: where it was left.
    """

    def __init__(self, key: str, path: Path, place: Place) -> None:
        self.key = key
        self.path = path
        self.place = place
        self._source = Source(str(path), skip_broken=True)
        self._file: io.FileIO | None = None
        self._decoder: Decoder | None = None
        self._fed = 0
        self._fed_seen = ""
        self._said = ""
        self._stat: tuple[int, ...] = ()
        self._grown = 0.0
        self._refused = False

    def read(self, *, last: bool = False) -> Chunk | None:
        """What is new, up to some hundred kilobytes; None if nothing is. To be delivered before the next call.

        Args:
            last: nothing more will be read: settle on a format, even if little is there.

        Raises:
            WholeFileError: it is to be read in another way.
        """
        try:
            if not self._look():
                return None
            return self._next(last=last)
        except ReadError as error:
            self._refused = True
            say("%s: not followed until it begins anew", error)
        except OSError as error:
            self.close()
            if str(error) != self._said:
                self._said = str(error)
                say("%s can't be read, it is tried again: %s", self.path, error)
        return None

    def commit(self, place: Place) -> None:
        """Everything up to ``place`` was delivered."""
        self.place = place

    def rewind(self) -> None:
        """What was read last was not delivered: it is read again."""
        self._decoder = None

    def close(self) -> None:
        """Closes the file; the next read opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._decoder = None
        self._stat = ()

    @property
    def _fileno(self) -> int:
        assert self._file is not None  # noqa: S101 - only asked for while it is open
        return self._file.fileno()

    def _look(self) -> bool:
        """Whether there is something to read; notices that the file has begun anew."""
        if self._file is None and not self._open():
            return False
        found = os.fstat(self._fileno)
        stat = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stat != self._stat:
            self._grown = monotonic()
            if self._has_begun_anew(found.st_size):
                self._begin_anew()
            self._stat = stat
        if self._decoder is None or found.st_size > self._fed:
            return not self._refused
        if self._is_replaced():
            self.close()
            return self._look()
        if self._file is not None and monotonic() - self._grown > _KEPT_OPEN:
            self._file.close()
            self._file = None
        return False

    def _open(self) -> bool:
        try:
            stat = self.path.stat()
            if self._decoder is not None and (stat.st_ino, stat.st_size, stat.st_mtime_ns) == self._stat:
                return False
            self._file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return False
        return True

    def _is_replaced(self) -> bool:
        """Whether another file stands at the path, as this one was renamed."""
        with suppress(FileNotFoundError):
            return bool(self._stat) and self.path.stat().st_ino != self._stat[0]
        return False

    def _has_begun_anew(self, size: int) -> bool:
        place = self.place
        end = place.sending.end if place.sending else place.offset
        if size < end or self._seen(place.offset) != place.seen:
            return True
        return self._decoder is not None and (size < self._fed or self._seen(self._fed) != self._fed_seen)

    def _begin_anew(self) -> None:
        say("%s has begun anew: read from its beginning", self.path)
        self.place = Place(generation=self.place.generation + 1)
        self._decoder = None
        self._refused = False

    def _seen(self, offset: int) -> str:
        """A checksum of what stands before ``offset``; "" at the beginning."""
        begin = max(0, offset - _SEEN)
        data = os.pread(self._fileno, offset - begin, begin)
        return hashlib.blake2b(data, digest_size=8).hexdigest() if offset else ""

    def _start(self) -> Decoder:
        """The decoder at the place."""
        place = self.place
        self._fed = place.offset
        if place.decoder:
            with suppress(KeyError):
                return restore(place.decoder, place.state, self._source)
        if is_packed(os.pread(self._fileno, 2, 0)):
            raise WholeFileError
        return Sniffer(self._source)

    def _next(self, *, last: bool) -> Chunk | None:
        decoder = self._decoder = self._decoder or self._start()
        sending = self.place.sending
        time = sending.time if sending else wall_clock()
        vectors: list[Vector] = []
        flushed = False
        begin = self._fed
        while True:
            data = self._piece(sending.end if sending else None)
            vectors += decoder.feed(data)
            if sending and data and self._fed < sending.end:
                continue
            at_end = not data or self._fed >= os.fstat(self._fileno).st_size
            if vectors or at_end or self._fed - begin >= _MOST_BYTES:
                break
        if sending.flushed if sending else at_end:
            vectors += decoder.flush()
            flushed = True
        if at_end and last and isinstance(decoder, Sniffer) and decoder.chosen is None and self._fed:
            vectors += decoder.feed(b"", last=True)
        if isinstance(_told(decoder), Document):
            raise WholeFileError
        self._fed_seen = self._seen(self._fed)
        return self._chunk(_told(decoder), vectors, Sending(self._fed, time, flushed))

    def _piece(self, end: int | None) -> bytes:
        size = _CHUNK if end is None else max(0, min(_CHUNK, end - self._fed))
        data = os.pread(self._fileno, size, self._fed)
        self._fed += len(data)
        return data

    def _chunk(self, decoder: Decoder, vectors: list[Vector], sending: Sending) -> Chunk | None:
        state = decoder.state()
        name = "" if isinstance(decoder, Sniffer) else decoder.name
        after = replace(self.place, decoder=name, state=state, seen=self._seen(decoder.offset), sending=None)
        if not vectors:
            self.place = after
            return None
        generation = self.place.generation
        sequences = [sequence_of(self.key, generation, vector.mark) for vector in vectors]
        before = replace(self.place, sending=sending)
        return Chunk(vectors, sequences, sending.time, before, after, decoder.framework)


def _told(decoder: Decoder) -> Decoder:
    """The decoder that does the work."""
    return (decoder.chosen or decoder) if isinstance(decoder, Sniffer) else decoder
