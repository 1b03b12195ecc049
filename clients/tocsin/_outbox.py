"""Encoded vectors on their way: in memory alone, or on disk until the server has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from tocsin._box import Box, adopt_all
from tocsin._queue import Queue
from tocsin._records import record_size
from tocsin._tally import Tally

__all__ = ["Batch", "Outbox", "Spool"]

_LARGEST_SEGMENT = 4 * 1024 * 1024
_SMALLEST_SEGMENT = 64 * 1024
_LARGEST_WRITE = 1024 * 1024
_DISK_PATIENCE = 5.0


class Batch(NamedTuple):
    """The oldest vectors.

    Attributes:
        vectors: JSON, oldest first.
        box: where they lie, None for memory.
    """

    vectors: list[bytes]
    box: Box | None = None

    @property
    def recovered(self) -> bool:
        """Whether an earlier process has logged them."""
        return self.box is not None and self.box.recovered


class Outbox:
    """A queue in memory. Vectors leave it by ``pop``, once the server has them or has refused them for good.

    Args:
        queue: told of what leaves, as its bounds hold for what is in here.
    """

    spools = False
    """Whether what is in here outlives the process."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._memory: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self._memory)

    @property
    def untidy(self) -> bool:
        """Whether there are files that ``close`` would delete or release."""
        return False

    def open(self) -> None:
        """Called whenever a thread begins to send."""

    def put(self, vector: bytes) -> None:
        """Adds a vector at the end."""
        self._memory.append(vector)

    def head(self, most: int, limit: int) -> Batch:
        """The oldest vectors, which stay: one at least if there is one, up to ``most`` and about ``limit`` bytes."""
        return Batch(_first(self._memory, most, limit))

    def pop(self, batch: Batch) -> None:
        """Forgets the vectors that ``head`` gave last."""
        for _ in batch.vectors:
            self._memory.popleft()
        self._queue.release(len(batch.vectors), sum(map(len, batch.vectors)))

    def close(self) -> None:
        """Called whenever a thread has sent everything."""

    def abandon(self) -> None:
        """Called in a forked child, which must touch nothing of its parent's."""


class Spool(Outbox):
    """A queue on disk, and behind it one in memory for what the disk doesn't take.

    Every vector is written before it is sent. What dead processes of the same run have left goes first. When the
    directory is full or broken, that is said once, and vectors wait in memory until it takes them again.

    Args:
        queue: see :class:`Outbox`; what is on disk counts as waiting, and not towards its bounds.
        tally: where trouble is said and losses are counted.
        directory: where boxes lie, of this run and others.
        run: the run's id.
        session: unique to the process.
        most_bytes: how many bytes the boxes that this process has in hand may take.
    """

    spools = True

    def __init__(self, queue: Queue, tally: Tally, directory: Path, run: str, session: str, most_bytes: int) -> None:
        super().__init__(queue)
        self._tally = tally
        self._directory = directory
        self._run = run
        self._session = session
        self._most_bytes = most_bytes
        self._segment_bytes = max(_SMALLEST_SEGMENT, min(_LARGEST_SEGMENT, most_bytes // 8))
        # Oldest first; the one that is written to is the last.
        self._boxes: deque[Box] = deque()
        self._own: Box | None = None
        self._again_at = 0.0

    def __bool__(self) -> bool:
        return bool(self.head(1, 0).vectors)

    @property
    def untidy(self) -> bool:
        """See :class:`Outbox`."""
        return bool(self._boxes)

    def open(self) -> None:
        """Takes over what dead processes of this run have left."""
        try:
            found = adopt_all(self._directory, self._run)
        except OSError as error:
            self._tally.warn("spool", f"the spool {self._directory} can't be read", str(error))
            return
        self._boxes.extendleft(reversed(found))

    def put(self, vector: bytes) -> None:
        """Writes the vector down."""
        self._memory.append(vector)
        if monotonic() >= self._again_at:
            self._write()

    def head(self, most: int, limit: int) -> Batch:
        """See :meth:`Outbox.head`. All of one batch lie in one place."""
        while self._boxes:
            box = self._boxes[0]
            try:
                vectors = _first((record.vector for record in box.head()), most, limit)
            except OSError as error:
                self._lose(box, str(error))
                continue
            if box.damaged:
                self._tally.drop("damaged", box.damaged, str(box.path))
                box.damaged = 0
            if vectors:
                return Batch(vectors, box)
            self._queue.release_spooled(box.count)
            box.count = 0
            if box is self._own:
                break
            self._boxes.popleft().close()
        return super().head(most, limit)

    def pop(self, batch: Batch) -> None:
        """See :meth:`Outbox.pop`."""
        if batch.box is None:
            super().pop(batch)
            return
        batch.box.pop(len(batch.vectors))
        if not batch.recovered:
            self._queue.release_spooled(len(batch.vectors))

    def close(self) -> None:
        """Deletes what is delivered; what isn't stays for the next process."""
        boxes, self._boxes, self._own = self._boxes, deque(), None
        for box in boxes:
            box.close()

    def abandon(self) -> None:
        """Closes the files."""
        for box in list(self._boxes):
            box.abandon()

    def _write(self) -> None:
        """Moves what waits in memory to disk, as far as there is room."""
        while self._memory:
            part = self._fitting()
            if not part:
                text = f"the spool {self._directory} is full (spool_bytes={self._most_bytes})"
                self._tally.warn("spool_full", text, "")
                return
            try:
                self._writable().append(part)
            except OSError as error:
                self._again_at = monotonic() + _DISK_PATIENCE
                self._tally.warn("spool", f"the spool {self._directory} can't be written", str(error))
                self._forsake()
                return
            for _ in part:
                self._memory.popleft()
            self._queue.spool(len(part), sum(map(len, part)))

    def _fitting(self) -> list[bytes]:
        room = self._most_bytes - sum(box.size for box in self._boxes)
        part: list[bytes] = []
        for vector in _first(self._memory, len(self._memory), _LARGEST_WRITE):
            room -= record_size(vector)
            if room < 0:
                break
            part.append(vector)
        return part

    def _writable(self) -> Box:
        if self._own is None:
            self._own = Box.create(self._directory, self._run, self._session, self._segment_bytes)
            self._boxes.append(self._own)
        return self._own

    def _forsake(self) -> None:
        """After a failed write: another box is begun later if this one is of no use."""
        box = self._own
        if box is None or (box.count and box.path.exists()):
            return
        self._own = None
        if not box.count:
            self._boxes.remove(box)
            box.close()

    def _lose(self, box: Box, detail: str) -> None:
        """Sets a box aside that can't be read; its files stay."""
        self._tally.drop("unreadable", box.count, f"{box.path}: {detail}")
        self._queue.release_spooled(box.count)
        self._boxes.remove(box)
        box.abandon()
        if box is self._own:
            self._own = None


def _first(vectors: Iterable[bytes], most: int, limit: int) -> list[bytes]:
    """The first of ``vectors``: one if there is one, up to ``most`` and about ``limit`` bytes."""
    first: list[bytes] = []
    size = 0
    for vector in vectors:
        size += len(vector) + 1
        if first and (len(first) >= most or size > limit):
            break
        first.append(vector)
    return first
