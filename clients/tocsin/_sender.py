"""The background thread's work: turns held vectors into bodies and gets them to the server, in order."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from time import monotonic

from tocsin._courier import Outcome
from tocsin._encoder import Encoder
from tocsin._guard import debugging
from tocsin._lookout import Lookout
from tocsin._outbox import Outbox, Spool
from tocsin._policy import LONGEST_DELAY, UNREACHABLE, Action, Verdict, delay
from tocsin._queue import Held, Queue, Wake
from tocsin._servers import open_courier
from tocsin._settings import Settings
from tocsin._tally import Tally

__all__ = ["Sender"]

_MOST_VECTORS = 500
_LARGEST_BODY = 1024 * 1024
_SMALLEST_BODY = 16 * 1024
_BODY_GROWTH = 64 * 1024
# A config that the server can't take now holds the vectors back only this often.
_PATIENT_CONFIG_ATTEMPTS = 4
_DISK_PATIENCE = 1.0


class Sender:
    """Owns the connection and the encoded vectors; used by one thread at a time, but for ``rescue``.

    Vectors leave the outbox only once the server has them (or has refused them for good), so order is kept and
    nothing is lost while the server is away. Sending twice is harmless: every vector has its own ``sequence``.
    """

    def __init__(self, settings: Settings, queue: Queue, tally: Tally, session: str, lookout: Lookout) -> None:
        self._settings = settings
        self._queue = queue
        self._tally = tally
        self._lookout = lookout
        self._encoder = Encoder(session, settings.options.attempt, tally)
        self._outbox = _outbox(settings, queue, tally, session)
        # Held while vectors move from the queue into the outbox or out of it, and never over the network.
        self._lock = threading.RLock()
        self._courier = open_courier(settings, settings.options.timeout)
        self._config = dict(settings.config)
        self._config_failures = 0
        # Sizes of the next batches, while one that was refused is sent in parts.
        self._parts: list[int] = []
        self._body_limit = _LARGEST_BODY
        self._failures = 0
        self._resume_at = 0.0
        # A generator of our own: the trainer's global one must not notice us.
        self._random = random.Random()  # noqa: S311 spreads retries, keeps no secret

    def work(self) -> None:
        """Runs until the queue is closed and drained."""
        try:
            with self._lock:
                self._outbox.open()
            while not self._finished(self._queue.wait(self._patience())):
                pass
        except BaseException:
            self._courier.close()
            self._queue.disclaim()
            raise

    def describe(self, config: Mapping[str, object]) -> None:
        """Adds fields to the config, which is sent before the next vectors."""
        with self._lock:
            self._config = {**self._config, **config}
            self._config_failures = 0

    def say_finished(self, timeout: float) -> None:
        """Tells the server that the run has ended, so that its silence alarms nobody. Called by whoever ends it.

        Args:
            timeout: seconds to wait at most, > 0.
        """
        courier = open_courier(self._settings, timeout)
        courier.configure(b'{"finished": true}')  # if it fails, silence is told of: the truth as the server knows it
        courier.close()

    @property
    def spools(self) -> bool:
        """Whether there may be something to send although nothing was logged."""
        return self._outbox.spools

    def rescue(self) -> None:
        """Spools what the thread couldn't take in time, as it waits for the server. Called by whoever ends it."""
        if self._outbox.spools and self._lock.acquire(timeout=_DISK_PATIENCE):
            try:
                self._take_all()
            finally:
                self._lock.release()

    @property
    def untidy(self) -> bool:
        """Whether there are files that the end of ``work`` would delete or release."""
        return self._outbox.untidy

    def abandon(self) -> None:
        """Called in a forked child: what is open here belongs to its parent."""
        self._outbox.abandon()

    def _finished(self, wake: Wake) -> bool:
        """Does what is to be done now; True if nothing is left and nobody logs any more."""
        if wake is Wake.DRAINED:
            if self._outbox and not self._failures:
                # All of this process is delivered: what others have left is sent as long as that goes well.
                self._advance()
                return False
            # Before retiring: after that, another thread may already be using the connection.
            self._courier.close()
            with self._lock:
                self._outbox.close()
            return self._queue.retire()
        self._take_all()
        if wake is Wake.HURRY or self._patience() == 0.0:
            self._advance()
        return False

    def _patience(self) -> float | None:
        """Seconds until the next request is due; None if there is nothing to send."""
        with self._lock:
            return max(0.0, self._resume_at - monotonic()) if self._outbox else None

    def _take_all(self) -> None:
        with self._lock:
            for held in self._queue.take():
                self._take(held)

    def _take(self, held: Held) -> None:
        try:
            vector = self._encoder.encode(held)
        except Exception as error:  # noqa: BLE001 step and time are foreign objects
            self._tally.drop("invalid", 1, type(error).__name__)
            self._queue.release(1, held.size)
            return
        self._queue.resize(len(vector) - held.size)
        self._outbox.put(vector)

    def _advance(self) -> None:
        """One try to get on; whatever goes wrong is waited out, so the thread neither dies nor spins."""
        try:
            if not self._config or self._send_config():
                self._send_batch()
        except Exception as error:
            if debugging():
                raise
            self._tally.warn("internal", "sending failed, it is retried", repr(error))
            self._wait(UNREACHABLE)

    def _send_config(self) -> bool:
        """Sends the run's config; False if the vectors are to wait for the next try."""
        with self._lock:
            config = dict(self._config)
        outcome = self._heeded(self._courier.configure(json.dumps(config, default=str).encode()))
        if outcome.verdict.action is Action.RETRY:
            self._config_failures += 1
            return outcome.answered and self._config_failures > _PATIENT_CONFIG_ATTEMPTS
        if outcome.verdict.action is not Action.DELIVERED:
            self._tally.warn("config", "the config is not used", outcome.detail)
        with self._lock:
            # What was described meanwhile is still to be sent.
            self._config = {name: value for name, value in self._config.items() if config.get(name) != value}
        return not self._config

    def _send_batch(self) -> None:
        with self._lock:
            batch = self._outbox.head(self._parts[-1] if self._parts else _MOST_VECTORS, self._body_limit)
        vectors = batch.vectors
        if not vectors:
            return
        self._lookout.sending()
        outcome = self._heeded(self._courier.deliver(vectors))
        action, reason = outcome.verdict.action, outcome.verdict.reason
        if reason == "too_large" or not outcome.answered:
            # Without an answer: perhaps a slow line, or a server that hangs up on a body beyond its limit.
            size = sum(map(len, vectors)) + len(vectors)
            self._body_limit = max(_SMALLEST_BODY, min(self._body_limit, size) // 2)
        if action is Action.RETRY:
            return
        if self._parts:
            self._parts.pop()
        if action is Action.SPLIT and len(vectors) > 1:
            # Halving finds the one malformed vector among n in about 2 log n requests and keeps the order.
            half = len(vectors) // 2
            self._parts += [len(vectors) - half, half]
            return
        with self._lock:
            self._outbox.pop(batch)
        if action is Action.DELIVERED:
            self._body_limit = min(_LARGEST_BODY, self._body_limit + _BODY_GROWTH)
            self._tally.deliver(len(vectors), recovered=batch.recovered)
            self._lookout.delivered()
        else:
            self._tally.drop(reason, len(vectors), outcome.detail)

    def _heeded(self, outcome: Outcome) -> Outcome:
        """The outcome of a request as we act on it; a failure that will be retried is said and waited for."""
        if outcome.verdict.action is Action.DROP and self._outbox.spools:
            # Somebody may correct the address or the token: what is on disk can wait for that.
            held = Verdict(Action.RETRY, outcome.verdict.reason, LONGEST_DELAY)
            outcome = Outcome(held, outcome.detail, outcome.answered)
        if outcome.verdict.action is Action.RETRY:
            reason = outcome.verdict.reason
            self._tally.warn(reason, f"can't send ({reason})", outcome.detail)
            self._wait(outcome.verdict)
        else:
            self._failures = 0
            self._resume_at = 0.0
        return outcome

    def _wait(self, verdict: Verdict) -> None:
        self._resume_at = monotonic() + delay(verdict, self._failures, self._random.random())
        self._failures += 1


def _outbox(settings: Settings, queue: Queue, tally: Tally, session: str) -> Outbox:
    directory = settings.options.spool
    if directory is None or settings.disabled or settings.faulty:
        return Outbox(queue)
    return Spool(queue, tally, directory, settings.run, session, settings.options.spool_bytes)
