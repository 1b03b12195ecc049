"""What one session has spooled: a directory that belongs to one living process at a time.

- ``SPOOL/RUN.TIME-SESSION/``: RUN is the run's id, made a safe name; TIME Unix time in nanoseconds, so they sort by age
- ``.../owner``: locked (flock) as long as the process lives that writes or sends this; holds the run's id
- ``.../00000001``, ``.../00000002``: segments of records, oldest first, deleted once they are delivered
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from tocsin._records import Record, encode_record
from tocsin._segment import Segment

try:
    import fcntl
except ImportError:  # not POSIX: who lives can't be told, so nothing is spooled
    fcntl = None  # type: ignore[assignment]

__all__ = ["Box", "adopt_all"]

_OWNER = "owner"
_READABLE = 60
# Each keeps a file open. After so many crashes the rest waits for the next process.
_MOST_ADOPTED = 100


class Box:
    """A queue of vectors on disk.

    Attributes:
        path: the directory.
        recovered: whether another, dead process has written it.
        count: vectors of this process that lie in it.
        damaged: records that were found torn or changed since this was last set to 0.

    Args:
        path: the directory.
        owner: descriptor of its locked file.
        segments: what lies in it.
        segment_bytes: size from which the next segment is begun; None if nothing is to be written.
    """

    def __init__(self, path: Path, owner: int, segments: deque[Segment], segment_bytes: int | None) -> None:
        self.path = path
        self.recovered = segment_bytes is None
        self.count = 0
        self.damaged = 0
        self._owner: int | None = owner
        self._segments = segments
        self._segment_bytes = segment_bytes
        self._created = 0
        # Records that were read but aren't delivered, all of the first segment, and where the reading has stopped.
        self._window: deque[Record] = deque()
        self._read_to = 0

    @classmethod
    def create(cls, spool: Path, run: str, session: str, segment_bytes: int) -> Box:
        """A new box of this process.

        Raises:
            OSError: the directory can't be written, or its file system can't lock.
        """
        # Under a name that nobody looks for until it is locked: without its lock it would look left over.
        hidden = spool / f".new-{session}-{time.time_ns()}"
        path = spool / f"{_prefix(run)}{time.time_ns():020d}-{session}"
        spool.mkdir(parents=True, exist_ok=True)
        hidden.mkdir(mode=0o700)
        owner = None
        try:
            owner = os.open(hidden / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            _lock(owner)
            os.write(owner, run.encode())
            hidden.rename(path)
        except BaseException:
            with suppress(OSError):
                (hidden / _OWNER).unlink()
            if owner is not None:
                os.close(owner)
            with suppress(OSError):
                hidden.rmdir()
            raise
        return cls(path, owner, deque(), segment_bytes)

    @classmethod
    def adopt(cls, path: Path) -> Box | None:
        """A box that another process has left; None if that process lives, or somebody else has it by now."""
        try:
            owner = os.open(path / _OWNER, os.O_RDWR)
        except OSError:
            return None
        try:
            _lock(owner)
            files = sorted(file for file in path.iterdir() if file.name.isdigit())
            segments = deque(Segment(file, file.stat().st_size) for file in files)
        except OSError:
            os.close(owner)
            return None
        return cls(path, owner, segments, None)

    @property
    def size(self) -> int:
        """Bytes that it takes on disk."""
        return sum(segment.size for segment in self._segments)

    def append(self, vectors: Sequence[bytes]) -> None:
        """Adds vectors at the end: all, or none.

        Raises:
            OSError: the disk is full, say.
        """
        if not self._segments or self._segments[-1].size >= (self._segment_bytes or 0):
            self._segments.append(Segment.create(self.path / f"{self._created + 1:08d}"))
            self._created += 1
        self._segments[-1].append(b"".join(map(encode_record, vectors)))
        self.count += len(vectors)

    def head(self) -> Sequence[Record]:
        """The oldest records, not all of them; empty if there are none.

        Raises:
            OSError: the disk is broken, say.
        """
        while not self._window and self._segments:
            segment = self._segments[0]
            if segment.done:
                if not self._retire(segment):
                    break
                continue
            found = segment.read()
            self._window.extend(found.records)
            self.damaged += found.damaged
            self._read_to = found.end
            if found.end == segment.offset:
                # A line without an end: its writer died over it.
                self.damaged += 1
                self._read_to = segment.size
            if not found.records:
                segment.offset = self._read_to
        return self._window

    def pop(self, count: int) -> None:
        """Forgets the oldest records."""
        segment = self._segments[0]
        for _ in range(count):
            segment.offset = self._window.popleft().end
        if not self._window:
            segment.offset = self._read_to
        if segment.done:
            self._retire(segment)
        if not self.recovered:
            self.count -= count

    def close(self) -> None:
        """Gives the box up: one that is empty is deleted, another stays for the next process."""
        for segment in self._segments:
            if segment.done:
                segment.remove()
        if all(segment.done for segment in self._segments):
            with suppress(OSError):
                (self.path / _OWNER).unlink()
            self.abandon()
            with suppress(OSError):
                self.path.rmdir()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Closes all files and touches none of them: in a forked child they are its parent's."""
        owner, self._owner = self._owner, None
        if owner is not None:
            with suppress(OSError):
                os.close(owner)
        for segment in self._segments:
            segment.close()

    def _retire(self, segment: Segment) -> bool:
        """Deletes a segment that is delivered; False if it stays because it is written to."""
        if not self.recovered and segment is self._segments[-1]:
            segment.clear()
            return False
        segment.remove()
        self._segments.popleft()
        return True


def adopt_all(spool: Path, run: str) -> list[Box]:
    """The boxes that dead processes of a run have left, the oldest session first.

    Raises:
        OSError: the directory can't be read.
    """
    prefix = _prefix(run)
    try:
        directory = os.open(spool, os.O_RDONLY)
    except FileNotFoundError:
        return []
    try:
        _lock_patiently(directory)
        paths = sorted(path for path in spool.iterdir() if path.name.startswith(prefix))
        adopted = (box for box in map(Box.adopt, paths) if box is not None)
        return list(itertools.islice(adopted, _MOST_ADOPTED))
    finally:
        os.close(directory)


def _prefix(run: str) -> str:
    """The run's part of a box's name: readable, and different for every run on every file system."""
    return f"{quote(run, safe='')[:_READABLE]}-{hashlib.sha256(run.encode()).hexdigest()[:12]}."


def _lock_patiently(directory: int) -> None:
    """Of processes that look at the same time one finds everything, so the order holds. Waits a second at most."""
    for _ in range(100):
        try:
            _lock(directory)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return  # network file systems can't lock a directory
        else:
            return


def _lock(descriptor: int) -> None:
    if fcntl is None:
        raise OSError("this system can't lock files")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
