"""Follows sources and streams what is new in them, until it is told to stop or there is nothing more to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from tocsin._guard import say
from tocsin.readers._finding import Finder, Log
from tocsin.tail._delivery import Delivery
from tocsin.tail._place import Bookmark
from tocsin.tail._stop import Stop
from tocsin.tail._stream import Stream, Taken

__all__ = ["Follower", "Plan"]

_TICK = 0.02
# Looking for new runs in a large tree takes no more than this share of the time.
_SCAN_SHARE = 0.05
_FINISH_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to follow, and where it goes.

    Attributes:
        sources: files and folders.
        run: the id of the one run that all of them are of; None makes a run of each log.
        config: what is known of the runs.
        client: url and token, as :class:`tocsin.Run` takes them.
        poll: seconds between two looks.
        ended: says that the trainer writes no more: what is there is still sent.
        patience: seconds without progress after which that is given up; None tries for ever.
    """

    sources: Sequence[Path]
    run: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    poll: float = 1.0
    ended: Callable[[], bool] = lambda: False
    patience: float | None = None


class Follower:
    """Does it. Vectors are read on only when those before are delivered, so a server that is away costs no memory.

    Args:
        plan: what to do.
        bookmark: where it was left.
        stop: ends it at once when set.
    """

    def __init__(self, plan: Plan, bookmark: Bookmark, stop: Stop) -> None:
        self._plan = plan
        self._bookmark = bookmark
        self._stop = stop
        self._finders = [Finder(source) for source in plan.sources]
        self._streams: dict[str, Stream] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._scan_at = 0.0
        self._said: set[str] = set()

    @property
    def delivered(self) -> int:
        """Vectors that the server has taken from this process."""
        return sum(delivery.delivered for delivery in self._deliveries.values())

    @property
    def lost(self) -> int:
        """Vectors that the server has refused."""
        return sum(delivery.lost for delivery in self._deliveries.values())

    @property
    def usable(self) -> bool:
        """False if the client can't be used as it was set up."""
        return all(delivery.usable for delivery in self._deliveries.values())

    def run(self) -> bool:
        """Follows; True if it came to the end, False if it was stopped."""
        progress, since = -1, monotonic()
        while not self._stop.is_set and self.usable:
            ended = self._plan.ended()
            self._scan(now=ended)
            busy = self._step(last=ended)
            if ended and not busy:
                for delivery in self._deliveries.values():
                    delivery.finish(_FINISH_PATIENCE)
                return True
            if progress != self.delivered + self.lost or not ended:
                progress, since = self.delivered + self.lost, monotonic()
            if self._plan.patience is not None and monotonic() - since > self._plan.patience:
                return False
            self._stop.wait(_TICK if busy else self._plan.poll)
        return False

    def close(self) -> None:
        """Closes files and connections; what is on its way will be sent again, and known as the same."""
        for stream in self._streams.values():
            stream.close()
        for delivery in self._deliveries.values():
            delivery.close()

    def _scan(self, *, now: bool) -> None:
        begin = monotonic()
        if begin < self._scan_at and not now:
            return
        for finder in self._finders:
            for log in self._found(finder):
                if log.key in self._streams:
                    self._streams[log.key].update(log)
                else:
                    delivery = self._delivery(self._plan.run or log.name)
                    self._streams[log.key] = Stream(log, delivery, self._bookmark)
        end = monotonic()
        self._scan_at = end + (end - begin) / _SCAN_SHARE

    def _found(self, finder: Finder) -> list[Log]:
        try:
            logs, problem = finder.find(), ""
        except OSError as error:
            logs, problem = [], str(error)
        if not logs and problem not in self._said:
            self._said.add(problem)
            say("nothing to follow yet in %s %s", finder.source, problem)
        return logs

    def _delivery(self, run: str) -> Delivery:
        if run not in self._deliveries:
            plan = self._plan
            self._deliveries[run] = Delivery(run, plan.config, self._bookmark, plan.client)
        return self._deliveries[run]

    def _step(self, *, last: bool) -> bool:
        """Settles what was sent, sends what is new; whether something is on its way."""
        taken = {name: delivery.taken() for name, delivery in self._deliveries.items()}
        changed = False
        for stream in self._streams.values():
            if stream.waiting and taken[stream.receiver.name] is not Taken.WAITING:
                stream.settle(taken[stream.receiver.name])
                changed = True
        reading = [stream for stream in self._streams.values() if not stream.waiting and stream.receiver.ready]
        new = [stream for stream in reading if stream.read(last=last)]
        if changed or new:
            self._bookmark.save()
        for stream in new:
            stream.send()
        return any(stream.waiting or not stream.receiver.ready for stream in self._streams.values())
