"""Tensors on their way to the server: packed on the trainer's thread, sent on one of their own.

Metrics wait for the server in their thousands, tensors don't: a few bodies are all that a trainer's memory should be
asked for. When they are more than that, the oldest gives way, because what a run does now says more about it.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from time import time as wall_clock
from typing import Any
from urllib.parse import urlencode

from tocsin._guard import Mistake, debugging
from tocsin._packing import Parcel, pack, pieces_of, size_of
from tocsin._policy import UNREACHABLE, Action, Verdict, delay, judge_status
from tocsin._settings import Settings
from tocsin._tally import Tally
from tocsin._transport import Address, Transport, Unreachable
from tocsin._values import hold_value, whole

__all__ = ["TensorChannel"]

_MOST_WAITING = 2
# The server computes before it answers, and perhaps others' tensors first.
_TIMEOUT = 120.0
_MOST_WARNINGS = 20

_MEANING = {
    "full": "the server is slower than the trainer or away: the oldest that waits gives way to the newest",
    "too_large": "larger than max_tensor_bytes, or than the server takes: send fewer rows, or the ragged layout",
    "invalid": "the step must be a whole number >= 0",
    "unsupported": "the server can't compute tensors: install it with the extra [torch]",
    "no_service": "they need the service's address, and the run's is a Redis",
}


@dataclass(frozen=True, slots=True)
class _Batch:
    """Packed tensors and what stands beside them; ``size`` is what they count for."""

    parcel: Parcel
    step: object
    beside: Mapping[str, object]
    size: int


class TensorChannel:
    """One process's way to the server for one run's tensors.

    Args:
        settings: of the run.
        tally: says each kind of trouble once.
        session: unique to the process.
    """

    def __init__(self, settings: Settings, tally: Tally, session: str) -> None:
        self._settings, self._tally, self._session = settings, tally, session
        # A Condition's lock is re-entrant: a signal handler may log while its own thread is in here.
        self._changed = threading.Condition()
        self._waiting: deque[_Batch] = deque()
        self._size = 0  # bytes of everything that is held
        self._count = 0  # batches that are held: packed, waiting or being sent
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
        """Batches that are neither delivered nor dropped yet."""
        return self._count

    def put(self, tensors: Mapping[str, Any], step: object, time: float | None, options: Mapping[str, Any]) -> None:
        """Copies the tensors and leaves them to the thread.

        Raises:
            Mistake: they can't be packed; counted as dropped.
        """
        self.logged += 1
        beside = {"time": wall_clock() if time is None else time, "sequence": f"{self._session}-{next(self._sequence)}"}
        beside |= {name: value for name, value in options.items() if name != "domains"}
        domains = options.get("domains")
        metadata = {} if domains is None else {"domains": json.dumps(list(domains))}
        if not isinstance(self._settings.address, Address):
            self._drop("no_service")
            return
        try:
            pieces, refused = pieces_of(tensors)
        except Mistake:
            self.dropped["invalid"] += 1
            raise
        if refused:
            self._tally.warn("tensors beside", f"not sent, the server knows no such tensors: {refused}", "")
        size = size_of(pieces)
        if not self._reserve(size):
            return
        try:
            batch = _Batch(pack(pieces, metadata), hold_value(step), beside, size)
        except BaseException:
            self._release(size)
            self.dropped["invalid"] += 1
            raise
        with self._changed:
            self._waiting.append(batch)
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
        self._thread = threading.Thread(target=self.work, name="tocsin-tensors", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            raise

    def _reserve(self, size: int) -> bool:
        """Makes room for a batch, if need be by dropping those that wait; False if there can be none."""
        limit = self._settings.options.max_tensor_bytes
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
        """Sends the oldest batch that waits, as soon as there is one; False when the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                self._thread = None
                return False
            batch = self._waiting.popleft()
        verdict = self._send(batch)
        if verdict.action is not Action.RETRY:
            self._failures = 0
            self._release(batch.size)
            return True
        with self._changed:
            crowded = len(self._waiting) >= _MOST_WAITING
            if crowded:
                self._release(batch.size)
            else:
                self._waiting.appendleft(batch)
        del batch  # it may have to give way while we wait
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

    def _send(self, batch: _Batch) -> Verdict:
        """One request; whatever goes wrong is counted and said."""
        try:
            path = self._path(batch)
        except (TypeError, ValueError):
            self._drop("invalid")
            return Verdict(Action.DROP, "invalid")
        try:
            verdict, detail = self._exchange(path, batch.parcel)
        except Exception as error:
            self._drop("internal", repr(error))
            if debugging():
                self._release(batch.size)
                raise
            return Verdict(Action.DROP, "internal")
        if verdict.action is Action.DELIVERED:
            self.delivered += 1
        elif verdict.action is Action.RETRY:
            self._tally.warn(f"tensors {verdict.reason}", f"can't send tensors now ({verdict.reason}), retried", detail)
        else:
            self._drop(verdict.reason, detail)
        return verdict

    def _path(self, batch: _Batch) -> str:
        query: list[tuple[str, object]] = [("step", whole(batch.step))]
        attempt = self._settings.options.attempt
        if attempt is not None:
            query.append(("attempt", attempt))
        for name, value in batch.beside.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            query += [(name, str(one).lower() if isinstance(one, bool) else one) for one in values if one is not None]
        return f"{self._settings.path}/tensors?{urlencode(query)}"

    def _exchange(self, path: str, parcel: Parcel) -> tuple[Verdict, str]:
        address = self._settings.address
        assert isinstance(address, Address)  # noqa: S101 put() takes nothing else
        parcel.wait()
        # A connection for each: between two steps the server would have closed it.
        transport = Transport(address, max(_TIMEOUT, self._settings.options.timeout))
        headers = {"Content-Type": "application/octet-stream", "User-Agent": "tocsin"}
        try:
            answer = transport.request("POST", path, parcel.body, headers)
        except Unreachable as error:
            return UNREACHABLE, str(error)
        finally:
            transport.close()
        if answer.status == 501:
            return Verdict(Action.DROP, "unsupported"), answer.told()
        if answer.status == 200:
            self._say_warnings(answer.body)
        return judge_status(answer.status, answer.headers), answer.told()

    def _say_warnings(self, body: bytes) -> None:
        """What the server thinks of the tensors, each thing once."""
        try:
            warnings = json.loads(body).get("warnings", [])
        except (ValueError, AttributeError):
            return
        for warning in warnings[:_MOST_WARNINGS]:
            if len(self._warnings) < _MOST_WARNINGS:
                self._warnings.add(str(warning))
                self._tally.warn(f"tensors: {warning}", f"tensors: {warning!s:.500}", "")

    def _drop(self, reason: str, detail: str = "") -> None:
        with self._changed:
            self.dropped[reason] += 1
        meaning = _MEANING.get(reason, "")
        text = f"dropping tensors ({reason})" + (f": {meaning}" if meaning else "")
        self._tally.warn(f"tensors {reason}", text, detail)
