"""Bodies that are too large to wait in their thousands: tensors and rollouts, sent by a thread of their own.

Metrics wait for the server in their thousands, these don't: a few bodies are all that a trainer's memory should be
asked for. When they are more than that, the oldest gives way, because what a run does now says more about it.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from time import time as wall_clock
from typing import ClassVar, NamedTuple
from urllib.parse import urlencode

from tocsin._guard import Mistake, debugging
from tocsin._policy import UNREACHABLE, Action, Verdict, delay, judge_status
from tocsin._settings import Settings
from tocsin._tally import Tally
from tocsin._transport import Address, Transport, Unreachable
from tocsin._values import hold_value, whole

__all__ = ["Body", "Parcel", "ParcelChannel"]

_MOST_WAITING = 2
# The server computes before it answers, and perhaps for others first.
_TIMEOUT = 120.0
_MOST_WARNINGS = 20


class Body(NamedTuple):
    """What is sent, and the headers that say what it is."""

    data: bytes | memoryview
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something that waits to be sent.

    Attributes:
        load: makes the body, on the sending thread; raises Mistake if it can't be made.
        beside: parameters of the request.
        size: bytes that it counts for.
    """

    load: Callable[[], Body]
    step: object
    beside: Mapping[str, object]
    size: int


class ParcelChannel:
    """One process's way to the server for one run's parcels of one kind.

    Args:
        settings: of the run.
        tally: says each kind of trouble once.
        session: unique to the process.
        limit: most bytes that may be held.
    """

    kind: ClassVar[str]
    """What is sent: also the last part of the path."""
    meaning: ClassVar[Mapping[str, str]]
    """What to do about a reason for dropping."""

    def __init__(self, settings: Settings, tally: Tally, session: str, limit: int) -> None:
        self._settings, self._tally, self._session, self._limit = settings, tally, session, limit
        # A Condition's lock is re-entrant: a signal handler may log while its own thread is in here.
        self._changed = threading.Condition()
        self._waiting: deque[Parcel] = deque()
        self._size = 0  # bytes of everything that is held
        self._count = 0  # parcels that are held: packed, waiting or being sent
        self._thread: threading.Thread | None = None
        self._closed = False
        self._hurry = False
        self._sequence = itertools.count()
        self._random = random.Random()  # noqa: S311 spreads retries, keeps no secret
        self._failures = 0
        self._warnings: set[str] = set()
        self.logged = 0
        self.delivered = 0
        self.dropped: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Parcels that are neither delivered nor dropped yet."""
        return self._count

    def _beside(self, time: float | None, options: Mapping[str, object]) -> dict[str, object]:
        """The parameters of a request that begins now; counts it."""
        self.logged += 1
        beside = {"time": wall_clock() if time is None else time, "sequence": f"{self._session}-{next(self._sequence)}"}
        return {**beside, **options}

    def _has_service(self) -> bool:
        """Whether there is somebody to send it to; if not, it is dropped."""
        if isinstance(self._settings.address, Address):
            return True
        self._drop("no_service")
        return False

    def _enqueue(self, size: int, step: object, beside: Mapping[str, object], load: Callable[[], Body]) -> None:
        """Leaves a parcel, for which room was reserved, to the thread."""
        parcel = Parcel(load, hold_value(step), beside, size)
        with self._changed:
            self._waiting.append(parcel)
            self._closed = self._hurry = False
            self._changed.notify_all()
            if self._thread is None:
                self._start()

    def close(self, timeout: float) -> bool:
        """Waits up to ``timeout`` seconds until everything is sent; True if all of it was delivered."""
        with self._changed:
            self._closed = self._hurry = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return not self._count and not self.dropped

    def work(self) -> None:
        """Runs until the channel is closed and nothing waits."""
        try:
            while self._advance():
                pass
        except BaseException:
            with self._changed:
                self._thread = None
            raise

    def _start(self) -> None:
        # Daemon: a trainer that ends is not held up beyond the bounded wait at exit.
        self._thread = threading.Thread(target=self.work, name=f"tocsin-{self.kind}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            raise

    def _reserve(self, size: int) -> bool:
        """Makes room for a parcel, if need be by dropping those that wait; False if there can be none."""
        limit = self._limit
        if size > limit:
            self._drop("too_large")
            return False
        with self._changed:
            evicted = 0
            while self._waiting and (len(self._waiting) >= _MOST_WAITING or self._size + size > limit):
                self._release(self._waiting.popleft().size)
                evicted += 1
            fits = self._size + size <= limit  # if not, what is being sent takes the room
            if fits:
                self._size += size
                self._count += 1
        for _ in range(evicted + (not fits)):
            self._drop("full")
        return fits

    def _release(self, size: int) -> None:
        with self._changed:
            self._size -= size
            self._count -= 1

    def _advance(self) -> bool:
        """Sends the oldest parcel that waits, as soon as there is one; False when the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                self._thread = None
                return False
            parcel = self._waiting.popleft()
        verdict = self._send(parcel)
        if verdict.action is not Action.RETRY:
            self._failures = 0
            self._release(parcel.size)
            return True
        with self._changed:
            crowded = len(self._waiting) >= _MOST_WAITING
            if crowded:
                self._release(parcel.size)
            else:
                self._waiting.appendleft(parcel)
        del parcel  # it may have to give way while we wait
        if crowded:
            self._drop("full")
        self._wait(delay(verdict, self._failures, self._random.random()))
        self._failures += 1
        return True

    def _wait(self, seconds: float) -> None:
        """Waits before the next try; those who wait for the end get one at once."""
        due = monotonic() + seconds
        with self._changed:
            while not self._hurry and (left := due - monotonic()) > 0:
                self._changed.wait(left)
            self._hurry = False

    def _send(self, parcel: Parcel) -> Verdict:
        """One request; whatever goes wrong is counted and said."""
        try:
            path = self._path(parcel)
        except (TypeError, ValueError):
            self._drop("invalid")
            return Verdict(Action.DROP, "invalid")
        try:
            verdict, detail = self._exchange(path, parcel.load())
        except Mistake as error:
            self._drop("invalid", str(error))
            return Verdict(Action.DROP, "invalid")
        except Exception as error:
            self._drop("internal", repr(error))
            if debugging():
                self._release(parcel.size)
                raise
            return Verdict(Action.DROP, "internal")
        if verdict.action is Action.DELIVERED:
            self.delivered += 1
        elif verdict.action is Action.RETRY:
            text = f"can't send {self.kind} now ({verdict.reason}), retried"
            self._tally.warn(f"{self.kind} {verdict.reason}", text, detail)
        else:
            self._drop(verdict.reason, detail)
        return verdict

    def _path(self, parcel: Parcel) -> str:
        query: list[tuple[str, object]] = [("step", whole(parcel.step))]
        attempt = self._settings.options.attempt
        if attempt is not None:
            query.append(("attempt", attempt))
        for name, value in parcel.beside.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            query += [(name, str(one).lower() if isinstance(one, bool) else one) for one in values if one is not None]
        return f"{self._settings.path}/{self.kind}?{urlencode(query)}"

    def _exchange(self, path: str, body: Body) -> tuple[Verdict, str]:
        address = self._settings.address
        assert isinstance(address, Address)  # noqa: S101 nothing else is enqueued
        # A connection for each: between two steps the server would have closed it.
        transport = Transport(address, max(_TIMEOUT, self._settings.options.timeout))
        headers = {"User-Agent": "tocsin", **body.headers}
        try:
            answer = transport.request("POST", path, body.data, headers)
        except Unreachable as error:
            return UNREACHABLE, str(error)
        finally:
            transport.close()
        if answer.status == 501:
            return Verdict(Action.DROP, "unsupported"), answer.told()
        if 200 <= answer.status < 300:
            self._say_warnings(answer.body)
        return judge_status(answer.status, answer.headers), answer.told()

    def _say_warnings(self, body: bytes) -> None:
        """What the server thinks of what it got, each thing once."""
        try:
            warnings = json.loads(body).get("warnings", [])
        except (ValueError, AttributeError):
            return
        for warning in warnings[:_MOST_WARNINGS]:
            if len(self._warnings) < _MOST_WARNINGS:
                self._warnings.add(str(warning))
                self._tally.warn(f"{self.kind}: {warning}", f"{self.kind}: {warning!s:.500}", "")

    def _drop(self, reason: str, detail: str = "") -> None:
        with self._changed:
            self.dropped[reason] += 1
        meaning = self.meaning.get(reason, "")
        text = f"dropping {self.kind} ({reason})" + (f": {meaning}" if meaning else "")
        self._tally.warn(f"{self.kind} {reason}", text, detail)
