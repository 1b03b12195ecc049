"""The log of one run, in one file or in several, and how it goes to the server."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tocsin.readers import Log
from tocsin.tail._chunk import Chunk
from tocsin.tail._file import GrowingFile, WholeFileError
from tocsin.tail._place import Bookmark, Place
from tocsin.tail._whole import WholeFile

__all__ = ["Receiver", "Stream", "Taken"]

_HISTORY = "trainer_state.json"


class Taken(enum.Enum):
    """What became of what was sent."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class Receiver(Protocol):
    """Takes the vectors of one run to the server."""

    name: str

    @property
    def ready(self) -> bool:
        """Whether it wants more."""

    def send(self, chunk: Chunk) -> None:
        """Begins to send, in order."""

    def taken(self) -> Taken:
        """What became of everything that was sent since the last time that the answer was not WAITING."""


class Stream:
    """Follows the files of one run in their order. One chunk is on its way at most.

    Args:
        log: the files.
        receiver: where the vectors go.
        bookmark: where their places are kept.
    """

    def __init__(self, log: Log, receiver: Receiver, bookmark: Bookmark) -> None:
        self.log = log
        self.receiver = receiver
        self._bookmark = bookmark
        self._files: dict[str, GrowingFile | WholeFile] = {}
        self._open: tuple[str, Chunk] | None = None
        self.update(log)

    @property
    def waiting(self) -> bool:
        """Whether something is on its way."""
        return self._open is not None

    def update(self, log: Log) -> None:
        """Takes note of further files of the run."""
        self.log = log
        if Path(log.key).name == _HISTORY:
            # Every checkpoint has the history of those before it: to us they are one file.
            [path] = log.paths
            key = log.key
            if key in self._files:
                self._files[key].path = path
            else:
                self._add(key, path, WholeFile)
            return
        for path in log.paths:
            key = str(path.absolute())
            if key not in self._files:
                self._add(key, path, GrowingFile)

    def read(self, *, last: bool = False) -> bool:
        """Reads what is new and marks it as being sent; whether there was anything."""
        for key in list(self._files):
            chunk = self._read(key, last=last)
            self._bookmark.places[key] = self._files[key].place
            if chunk is not None:
                self._open = key, chunk
                self._bookmark.places[key] = chunk.before
                return True
        return False

    def send(self) -> None:
        """Sends what was read, once that is written down."""
        if self._open is not None:
            self.receiver.send(self._open[1])

    def settle(self, taken: Taken) -> None:
        """Says what became of what was sent."""
        if self._open is None or taken is Taken.WAITING:
            return
        key, chunk = self._open
        self._open = None
        if taken is Taken.DONE:
            self._files[key].commit(chunk.after)
            self._bookmark.places[key] = chunk.after
        else:
            self._files[key].commit(chunk.before)
            self._files[key].rewind()

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()

    def _read(self, key: str, *, last: bool) -> Chunk | None:
        file = self._files[key]
        try:
            return file.read(last=last)
        except WholeFileError:
            file.close()
            whole = self._files[key] = WholeFile(key, file.path, file.place)
            return whole.read(last=last)

    def _add(self, key: str, path: Path, kind: Callable[[str, Path, Place], GrowingFile | WholeFile]) -> None:
        self._files[key] = kind(key, path, self._bookmark.places.get(key, Place()))
