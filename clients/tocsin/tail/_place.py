"""How far a file has been delivered, and the file in which that outlives the process."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from tocsin._guard import say

__all__ = ["Bookmark", "BookmarkError", "Place", "Sending", "default_path"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Sending:
    """What is on its way; written down before it is sent, so that it is cut the same when it is sent again.

    Attributes:
        end: the byte (of a document: the row) that it goes up to.
        time: Unix time in seconds for rows that have none.
        flushed: what waited for more was sent as well.
    """

    end: int
    time: float
    flushed: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: everything before it was delivered.

    Attributes:
        generation: how often the file has begun anew.
        decoder: the name of its format, "" as long as it isn't known.
        state: of the decoder, with the place as ``offset``.
        seen: a checksum of the bytes before the place, by which a file that began anew is noticed.
        marks: of a document, which is always read as a whole, the rows that were delivered.
        sending: what was on its way when this was written.
    """

    generation: int = 0
    decoder: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    seen: str = ""
    marks: tuple[str, ...] = ()
    sending: Sending | None = None

    @property
    def offset(self) -> int:
        """The place in bytes."""
        return int(self.state.get("offset", 0))

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The place that :meth:`to_json` wrote."""
        sending = data["sending"]
        known = {**data, "marks": tuple(data["marks"]), "sending": Sending(**sending) if sending else None}
        return cls(**known)


class BookmarkError(Exception):
    """The state can't be kept where it should be; the text says what to do."""


class Bookmark:
    """The places of all files, and which runs have been told their configuration.

    Args:
        path: the file; None keeps everything in memory.

    Raises:
        BookmarkError: another process uses the file, or it can't be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock: TextIO | None = None
        self.places: dict[str, Place] = {}
        self.configured: dict[str, str] = {}
        if path is not None:
            self._open(path)

    def save(self) -> None:
        """Writes everything down: the file has either the old content or the new one, whatever happens meanwhile."""
        if self._path is None:
            return
        places = {key: place.to_json() for key, place in self.places.items()}
        data = {"version": _VERSION, "configured": self.configured, "places": places}
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(data, file, separators=(",", ":"))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise BookmarkError(f"the state can't be written: {error}; name another file with --state") from error

    def close(self) -> None:
        """Leaves the file to others."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = path.with_name(path.name + ".lock").open("a", encoding="utf-8")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise BookmarkError(f"another tail uses {path}; name another file with --state") from error
        except OSError as error:
            raise BookmarkError(f"the state can't be kept: {error}; name another file with --state") from error
        self._load(path)

    def _load(self, path: Path) -> None:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            places = data["places"] if data["version"] == _VERSION else {}
            self.places = {key: Place.from_json(place) for key, place in places.items()}
            self.configured = dict(data["configured"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            self.places, self.configured = {}, {}
            say("the state %s can't be used (%r): everything is read from its beginning", path, error)


def default_path(words: Iterable[str]) -> Path:
    """Where the state lies unless told: in the user's state directory, by what is followed and where it goes."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    digest = hashlib.blake2b("\0".join(words).encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return Path(base) / "tocsin" / f"tail-{digest}.json"
