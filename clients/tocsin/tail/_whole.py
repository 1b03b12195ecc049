"""A file that can only be read as a whole: a JSON document, or one that is packed."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from time import time as wall_clock

from tocsin.readers import ReadError, Vector
from tocsin.readers._reading import Reading
from tocsin.tail._chunk import Chunk, sequence_of
from tocsin.tail._place import Place, Sending

__all__ = ["WholeFile"]

_MOST_VECTORS = 5000


class WholeFile:
    """Reads the file anew when it has changed. Rows that differ from those of the last time are new, and all after.

    Args:
        key: tells the file from all others.
        path: where it is now; a later checkpoint is another file with a longer history.
        place: where it was left.
    """

    def __init__(self, key: str, path: Path, place: Place) -> None:
        self.key = key
        self.path = path
        self.place = place
        self._stat: tuple[object, ...] = ()
        self._vectors: list[Vector] = []
        self._framework: str | None = None

    def read(self, *, last: bool = False) -> Chunk | None:
        """See :meth:`~tocsin.tail._file.GrowingFile.read`."""
        _ = last
        self._look()
        marks = tuple(vector.mark for vector in self._vectors)
        place = self.place
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(place.marks, marks, strict=False)))
        sending = place.sending
        end = min(len(marks), same + _MOST_VECTORS, sending.end if sending else len(marks))
        if end <= same:
            if len(marks) > same or marks[:same] != place.marks:
                self.place = replace(place, marks=marks[:same], sending=None)
            return None
        sending = Sending(end, sending.time if sending else wall_clock())
        vectors = self._vectors[same:end]
        sequences = [sequence_of(self.key, place.generation, vector.mark) for vector in vectors]
        before = replace(place, marks=marks[:same], sending=sending)
        after = replace(place, marks=marks[:end], sending=None)
        return Chunk(vectors, sequences, sending.time, before, after, self._framework)

    def commit(self, place: Place) -> None:
        """Everything up to ``place`` was delivered."""
        self.place = place

    def rewind(self) -> None:
        """What was read last was not delivered: it is read again."""

    def close(self) -> None:
        """There is nothing open between two reads."""

    def _look(self) -> None:
        try:
            found = self.path.stat()
        except OSError:
            return
        stat = (self.path, found.st_ino, found.st_size, found.st_mtime_ns)
        if stat == self._stat:
            return
        try:
            reading = Reading([str(self.path)], skip_broken=True)
            self._vectors, self._framework = list(reading), reading.framework
        except ReadError:
            return  # it is being written: there will be another change
        self._stat = stat
