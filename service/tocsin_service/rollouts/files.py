"""The files of the rollout log: how they are called, how they come to be whole or not at all, and how they go.

    ROLLOUT_DIR/<digest of the run's id>/run.json                        whose rollouts these are, for people
                                        /<first step>-<last step>-<key>.parquet
                                        /.<name>.<process>-<number>      being written; never read

A file is written under a name that nobody reads, synced, renamed, and its folder synced: after a crash at any moment it
is there as a whole or not at all. Its key is made of what it holds, so the repetition of a request finds it there. A
merged file lists the keys of what it was made of (in Parquet's own metadata): should a crash leave both, the merged one
counts.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tocsin_service.rollouts.places import NAME, folder_of

__all__ = ["KEY", "Folder", "Stored", "digest", "key_of", "parts_of", "scan_all", "sweep", "with_parts"]

logger = logging.getLogger(__name__)

KEY = 32  # hex digits
PARTS = b"tocsin.parts"
_FORGOTTEN_SECONDS = 3600.0  # a file that is still being written after an hour is nobody's
_LOOKS = 50  # at a folder that keeps changing
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of a run.

    Attributes:
        first: the least step in it; ``last``: the greatest.
        written: Unix time in seconds of its newest rows.
    """

    path: Path
    first: int
    last: int
    key: str
    size: int
    written: float


def key_of(*parts: object) -> str:
    """The key that the parts make; the same for the same parts."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=KEY // 2).hexdigest()


def digest(data: bytes) -> str:
    """What stands for a body."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class Folder:
    """The files of one run.

    Args:
        root: the setting ``rollout_dir``.
        run: the run's id, any printable text.
    """

    def __init__(self, root: Path, run: str) -> None:
        self._run = run
        self.path = folder_of(root, run)

    def files(self) -> list[Stored]:
        """What is there, by step. What a merged file holds too is left out."""
        found = self._settled()
        merged = {key for one in found for key in parts_of(one.path)}
        return [one for one in found if one.key not in merged]

    def superseded(self) -> list[Stored]:
        """Files that a merged one holds too: a crash came between its birth and their end."""
        counting = {one.path for one in self.files()}
        return [one for one in self._all() if one.path not in counting]

    def holds(self, key: str) -> bool:
        """Whether rows of this key are there."""
        return any(one.key == key or key in parts_of(one.path) for one in self._all())

    def name(self, first: int, last: int, key: str) -> Path:
        """Where a file with these steps lies."""
        return self.path / f"{first:016d}-{last:016d}-{key}.parquet"

    @contextmanager
    def writing(self, path: Path) -> Iterator[Path]:
        """Where to write what will be ``path`` once the block has ended without an error.

        Raises:
            OSError: the disk is full, or the like; nothing is left behind.
        """
        self._make()
        temporary = self.path / f".{path.name}.{os.getpid()}-{next(_numbers)}"
        try:
            yield temporary
            _sync(temporary)
            temporary.rename(path)
            _sync(self.path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()

    def remove(self, files: Iterable[Stored]) -> None:
        """Removes files; those that have gone already are passed over."""
        for one in files:
            with suppress(FileNotFoundError):
                one.path.unlink()

    def _settled(self) -> list[Stored]:
        # A look at a folder isn't one moment: a merged file may have come after its place was passed, and its parts may
        # have gone before theirs was reached. Two looks that saw the same have missed nothing.
        found = self._all()
        for _ in range(_LOOKS):
            again = self._all()
            if [one.path for one in again] == [one.path for one in found]:
                break
            found = again
        return found

    def _all(self) -> list[Stored]:
        return sorted(_scan(self.path), key=lambda one: (one.first, one.last, one.key))

    def _make(self) -> None:
        if self.path.is_dir():
            return
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.path / "run.json").write_text(json.dumps({"run": self._run}) + "\n", encoding="utf-8")
        _sync(self.path.parent)


def scan_all(root: Path) -> Iterator[Stored]:
    """The files of all runs, in any order."""
    with suppress(FileNotFoundError), os.scandir(root) as folders:
        for folder in folders:
            if folder.is_dir(follow_symlinks=False):
                yield from _scan(Path(folder.path))


def sweep(root: Path) -> None:
    """Removes what processes that were killed had begun to write."""
    now = time.time()
    for path in root.glob("*/.*.parquet.*"):
        with suppress(FileNotFoundError):
            if now - path.stat().st_mtime > _FORGOTTEN_SECONDS:
                path.unlink()


def parts_of(path: Path) -> frozenset[str]:
    """The keys of what a file was merged from; none for a file that wasn't."""
    return _parts(str(path))


@lru_cache(65_536)
def _parts(path: str) -> frozenset[str]:
    # May be remembered: a file's name has its key in it, which is made of what it holds.
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except FileNotFoundError:
        return frozenset()
    except pa.ArrowException as error:
        logger.warning("%s can't be read: %s", path, error)
        return frozenset()
    return frozenset(json.loads(metadata.get(PARTS, b"[]")))


def with_parts(keys: Sequence[str]) -> dict[bytes, bytes]:
    """The metadata of a file that was merged from these."""
    return {PARTS: json.dumps(sorted(keys)).encode()}


def _scan(folder: Path) -> Iterator[Stored]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            found = NAME.fullmatch(entry.name)
            if found is None:
                continue
            with suppress(FileNotFoundError):  # merged or removed just now
                facts = entry.stat(follow_symlinks=False)
                first, last, key = found.groups()
                yield Stored(Path(entry.path), int(first), int(last), key, facts.st_size, facts.st_mtime)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
