"""The background thread's work: turns held vectors into bodies and gets them to the server, in order."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections import deque
from time import monotonic
from typing import NamedTuple

from tocsin._guard import debugging
from tocsin._numbers import number
from tocsin._policy import Action, Decision, decide
from tocsin._queue import Held, Queue, Wake
from tocsin._settings import Settings
from tocsin._tally import Tally
from tocsin._transport import Transport, Unreachable
from tocsin._values import numbers, whole

__all__ = ["Sender"]

_MOST_VECTORS = 500
_LARGEST_BODY = 1024 * 1024
_SMALLEST_BODY = 16 * 1024
_BODY_GROWTH = 64 * 1024
_GZIP_FROM = 2048
# A config that the server can't take now holds the vectors back only this often.
_PATIENT_CONFIG_ATTEMPTS = 4


class Reply(NamedTuple):
    """What came of one request: the decision, what the server said, and whether it said anything."""

    decision: Decision
    detail: str
    answered: bool


class Sender:
    """Owns the connection and the encoded vectors; used by one thread at a time.

    Vectors leave the outbox only once the server has them (or has refused them for good), so order is kept and
    nothing is lost while the server is away. Posting twice is harmless: every vector has its own ``sequence``.
    """

    def __init__(self, settings: Settings, queue: Queue, tally: Tally, session: str) -> None:
        self._path = settings.path
        self._run_attempt = settings.options.attempt
        self._queue = queue
        self._tally = tally
        self._session = session
        self._address = settings.address
        self._transport = Transport(settings.address, settings.options.timeout)
        self._config = dict(settings.config)
        self._config_failures = 0
        self._outbox: deque[bytes] = deque()
        self._parts: deque[int] = deque()
        self._body_limit = _LARGEST_BODY
        self._failures = 0
        self._resume_at = 0.0
        # A generator of our own: the trainer's global one must not notice us.
        self._random = random.Random()  # noqa: S311 spreads retries, keeps no secret

    def work(self) -> None:
        """Runs until the queue is closed and drained."""
        try:
            while not self._finished(self._queue.wait(self._patience())):
                pass
        except BaseException:
            self._transport.close()
            self._queue.disclaim()
            raise

    def say_finished(self, timeout: float) -> None:
        """Tells the server that the run has ended, so that its silence alarms nobody. Called by whoever ends it.

        Args:
            timeout: seconds to wait at most, > 0.
        """
        transport = Transport(self._address, timeout)
        try:
            transport.request("PUT", self._path, b'{"finished": true}', {"Content-Type": "application/json"})
        except Unreachable:
            return  # then its silence is told of, which is the truth as the server knows it
        finally:
            transport.close()

    def _finished(self, wake: Wake | None) -> bool:
        """Does what is to be done now; True if nothing is left and nobody logs any more."""
        if wake is None:
            # Before retiring: after that, another thread may already be using the connection.
            self._transport.close()
            return self._queue.retire()
        for held in wake.arrived:
            self._take(held)
        if wake.hurry or self._patience() == 0.0:
            self._advance()
        return False

    def _patience(self) -> float | None:
        """Seconds until the next request is due; None if there is nothing to send."""
        return max(0.0, self._resume_at - monotonic()) if self._outbox else None

    def _take(self, held: Held) -> None:
        try:
            body = self._encoded(held)
        except Exception as error:  # noqa: BLE001 step and time are foreign objects
            self._tally.drop("invalid", 1, type(error).__name__)
            self._queue.release(1, held.size)
            return
        self._outbox.append(body)
        self._queue.resize(len(body) - held.size)

    def _encoded(self, held: Held) -> bytes:
        metrics, refused = numbers(held.metrics)
        for name, why in refused.items():
            self._tally.skip(name, why)
        vector: dict[str, object] = {
            "step": whole(held.step),
            "metrics": metrics,
            "time": _time(held.time, held.logged),
            "sequence": f"{self._session}-{held.sequence}",
        }
        if self._run_attempt is not None:
            vector["attempt"] = self._run_attempt
        return json.dumps(vector, separators=(",", ":")).encode()

    def _advance(self) -> None:
        """One try to get on; whatever goes wrong is waited out, so the thread neither dies nor spins."""
        try:
            if not self._config or self._send_config():
                self._send_batch()
        except Exception as error:
            if debugging():
                raise
            self._tally.warn("internal", "sending failed, it is retried", repr(error))
            self._wait(decide(None, {}, self._failures, self._random.random()))

    def _send_config(self) -> bool:
        """Puts the run's config; False if the vectors are to wait for the next try."""
        reply = self._exchange("PUT", self._path, json.dumps(self._config, default=str).encode())
        if reply.decision.action is Action.RETRY:
            self._config_failures += 1
            return reply.answered and self._config_failures > _PATIENT_CONFIG_ATTEMPTS
        if reply.decision.action is not Action.DELIVERED:
            self._tally.warn("config", "the config is not used", reply.detail)
        self._config.clear()
        return True

    def _send_batch(self) -> None:
        batch = self._batch()
        if not batch:
            return
        body = b"[" + b",".join(batch) + b"]"
        reply = self._exchange("POST", f"{self._path}/steps", body)
        action, reason = reply.decision.action, reply.decision.reason
        if reason == "too_large" or not reply.answered:
            # Without an answer: perhaps a slow line, or a server that hangs up on a body beyond its limit.
            self._body_limit = max(_SMALLEST_BODY, min(self._body_limit, len(body)) // 2)
        if action is Action.RETRY:
            return
        if self._parts:
            self._parts.popleft()
        if action is Action.SPLIT and len(batch) > 1:
            # Halving finds the one malformed vector among n in about 2 log n requests and keeps the order.
            half = len(batch) // 2
            self._parts.extendleft((len(batch) - half, half))
            return
        for _ in batch:
            self._outbox.popleft()
        if action is Action.DELIVERED:
            self._body_limit = min(_LARGEST_BODY, self._body_limit + _BODY_GROWTH)
            self._tally.deliver(len(batch))
        else:
            self._tally.drop(reason, len(batch), reply.detail)
        self._queue.release(len(batch), sum(map(len, batch)))

    def _batch(self) -> list[bytes]:
        """The oldest vectors that go into one body; they stay in the outbox."""
        most = self._parts[0] if self._parts else _MOST_VECTORS
        batch: list[bytes] = []
        size = 0
        for vector in self._outbox:
            size += len(vector) + 1
            if batch and (len(batch) >= most or size > self._body_limit):
                break
            batch.append(vector)
        return batch

    def _exchange(self, method: str, path: str, body: bytes) -> Reply:
        """Sends one request; a failure that will be retried is said and waited for."""
        headers = {"Content-Type": "application/json", "User-Agent": "tocsin"}
        if len(body) >= _GZIP_FROM:
            body = gzip.compress(body, compresslevel=4)
            headers["Content-Encoding"] = "gzip"
        try:
            answer = self._transport.request(method, path, body, headers)
        except Unreachable as error:
            reply = Reply(decide(None, {}, self._failures, self._random.random()), str(error), answered=False)
        else:
            decision = decide(answer.status, answer.headers, self._failures, self._random.random())
            reply = Reply(decision, answer.told(), answered=True)
        if reply.decision.action is Action.RETRY:
            self._tally.warn(reply.decision.reason, f"can't send ({reply.decision.reason})", reply.detail)
            self._wait(reply.decision)
        else:
            self._failures = 0
            self._resume_at = 0.0
        return reply

    def _wait(self, decision: Decision) -> None:
        self._failures += 1
        self._resume_at = monotonic() + decision.delay


def _time(value: object, logged: float) -> float:
    """The time as given by the trainer, or the time of the call if it gave none that is a number."""
    try:
        given = number(value)
    except ValueError:
        return logged
    return given if math.isfinite(given) else logged
