"""Vectors of one run to the server, through the client."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from time import monotonic
from typing import Any

from tocsin._guard import logger
from tocsin._run import Run
from tocsin.tail._chunk import Chunk
from tocsin.tail._place import Bookmark
from tocsin.tail._stream import Taken

__all__ = ["Delivery"]

# Drops that a repetition can't help; every other reason is waited out.
_FINAL = frozenset({"refused", "too_large", "invalid"})
_MISCONFIGURED = "misconfigured"
_PATIENCE = 10.0
_MOST_VECTORS = 1_000_000
_MOST_BYTES = 1024 * 1024 * 1024


class Delivery:
    """Sends the chunks of one run and tells when the server has them.

    Args:
        run: the run's id.
        config: what the user has said of the run.
        bookmark: remembers that the server knows the configuration.
        options: url and token, as :class:`tocsin.Run` takes them.
    """

    def __init__(self, run: str, config: Mapping[str, Any], bookmark: Bookmark, options: Mapping[str, Any]) -> None:
        self.name = run
        self._config = dict(config)
        self._bookmark = bookmark
        self._options = dict(options)
        self._run: Run | None = None
        self._told = ""
        self._dropped: dict[str, int] = {}
        self._again_at = 0.0
        self.sent = 0

    @property
    def ready(self) -> bool:
        """False for a while after a failure."""
        return monotonic() >= self._again_at

    @property
    def usable(self) -> bool:
        """False if the client was given something that it can't use, which it has said."""
        return self._run is None or _MISCONFIGURED not in self._run.stats()["dropped"]

    @property
    def delivered(self) -> int:
        """Vectors that the server has."""
        return int(self._run.stats()["delivered"]) if self._run else 0

    @property
    def lost(self) -> int:
        """Vectors that the server has refused for good."""
        dropped = self._run.stats()["dropped"] if self._run else {}
        return sum(count for reason, count in dropped.items() if reason in _FINAL)

    def send(self, chunk: Chunk) -> None:
        """See :class:`~tocsin.tail._stream.Receiver`."""
        run = self._run = self._run or self._open(chunk.framework)
        for vector, sequence in zip(chunk.vectors, chunk.sequences, strict=True):
            time = chunk.time if vector.time is None else vector.time
            run.log(vector.metrics, vector.step, time=time, sequence=sequence)
        self.sent += len(chunk.vectors)

    def taken(self) -> Taken:
        """See :class:`~tocsin.tail._stream.Receiver`."""
        if self._run is None:
            return Taken.DONE
        stats = self._run.stats()
        if stats["waiting"]:
            return Taken.WAITING
        dropped = stats["dropped"]
        new = {reason for reason, count in dropped.items() if count > self._dropped.get(reason, 0)}
        self._dropped = dropped
        if new - _FINAL:
            self._again_at = monotonic() + _PATIENCE
            return Taken.FAILED
        self._bookmark.configured[self.name] = self._told
        return Taken.DONE

    def finish(self, timeout: float) -> None:
        """Tells the server that the run has ended."""
        if self._run:
            self._run.finish(timeout)

    def close(self) -> None:
        """Ends without a word and without waiting."""
        if self._run:
            self._run.finish(0.0)

    def _open(self, framework: str | None) -> Run:
        config = {"framework": framework, **self._config} if framework else self._config
        self._told = hashlib.blake2b(json.dumps(config, sort_keys=True).encode(), digest_size=8).hexdigest()
        known = self._bookmark.configured.get(self.name) == self._told
        # Nothing is spooled: the file that is followed holds it all.
        bounds: dict[str, Any] = {"max_vectors": _MOST_VECTORS, "max_bytes": _MOST_BYTES, "exit_timeout": 0.0}
        bounds["spool"] = None
        logger.info("following run %s", self.name)
        return Run(self.name, config=None if known else config, **self._options, **bounds)
