"""One process's way to the server: queue, sender, thread and counters of one run."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping
from time import monotonic
from time import time as wall_clock

from tocsin._guard import Mistake
from tocsin._lookout import Lookout
from tocsin._queue import Held, Queue
from tocsin._rollouts import RolloutChannel
from tocsin._sender import Sender
from tocsin._settings import Settings
from tocsin._tally import Tally
from tocsin._tensors import TensorChannel
from tocsin._values import MOST_METRICS, hold, hold_value
from tocsin._watch import Wishes

__all__ = ["Channel"]

_VECTOR_SIZE = 400


class Channel:
    """Belongs to the process that made it; a forked child makes its own, with an empty queue and another session.

    The thread starts with the first vector, so a process that never logs has none.
    """

    def __init__(self, settings: Settings, wishes: Wishes) -> None:
        self.process = os.getpid()
        self.tally = Tally(settings.run)
        self.given_up = False
        # os.urandom: neither the trainer's random state nor a forked parent's is shared.
        session = os.urandom(8).hex()
        options = settings.options
        self._max_bytes = options.max_bytes
        self._queue = Queue(options.max_vectors, options.max_bytes)
        self.lookout = Lookout(settings, self.tally, wishes)
        self._sender = Sender(settings, self._queue, self.tally, session, self.lookout)
        self.tensors = TensorChannel(settings, self.tally, session, options.max_tensor_bytes)
        self.rollouts = RolloutChannel(settings, self.tally, session, options.max_rollout_bytes)
        self._thread: threading.Thread | None = None
        self._sequence = itertools.count()
        self._next_step = 0

    @property
    def waiting(self) -> int:
        """Vectors that are neither delivered nor dropped yet."""
        return self._queue.count

    @property
    def unfinished(self) -> bool:
        """Whether anything is left for ``close`` to do."""
        return bool(self.waiting or self.tensors.waiting or self.rollouts.waiting or self._sender.untidy)

    @property
    def spooled(self) -> int:
        """How many of the waiting lie on disk."""
        return self._queue.spooled

    def put(self, metrics: Mapping[str, object], step: object, time: object, sequence: str | None = None) -> None:
        """Copies a vector into the queue; never waits.

        Raises:
            Mistake: ``metrics`` is no mapping; counted as dropped.
        """
        self.tally.log()
        self.given_up = False
        if not isinstance(metrics, Mapping):
            self.tally.lose("invalid")
            raise Mistake(f"log() takes a mapping of metric names to numbers, not a {type(metrics).__name__}")
        if step is None:
            step = self._next_step
        if isinstance(step, int):
            self._next_step = step + 1
        held, size = hold(metrics)
        size += _VECTOR_SIZE
        number = next(self._sequence) if sequence is None else sequence
        vector = Held(hold_value(step), held, hold_value(time), wall_clock(), number, size)
        if len(held) > MOST_METRICS or size > self._max_bytes:
            self.tally.drop("too_large")
            return
        self.lookout.note(step)
        if not self._queue.put(vector):
            self.tally.drop("queue_full")
        elif self._queue.claim():
            self._start()

    def close(self, timeout: float) -> bool:
        """Waits up to ``timeout`` seconds until everything is sent; True if all of it so far was delivered."""
        begin = monotonic()
        if self._sender.spools and self._queue.claim():
            self._start()  # earlier processes may have left something
        self._queue.close()
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        tensors_delivered = self.tensors.close(max(0.0, timeout - (monotonic() - begin)))
        rollouts_delivered = self.rollouts.close(max(0.0, timeout - (monotonic() - begin)))
        self._sender.rescue()
        self.lookout.close()
        self.given_up = True
        self.tally.summary(self.waiting, self.spooled)
        return not self.waiting and not self.tally.dropped and tensors_delivered and rollouts_delivered

    def describe(self, config: Mapping[str, object]) -> None:
        """Sends more fields of the run's config before the next vectors."""
        self._sender.describe(config)

    def abandon(self) -> None:
        """Called in a forked child on its parent's channel."""
        self._sender.abandon()

    def say_finished(self, timeout: float) -> None:
        """Tells the server that the run has ended, if it knows the run and there is time left."""
        if timeout > 0 and (self.tally.delivered or self.tensors.delivered or self.rollouts.delivered):
            self._sender.say_finished(timeout)

    def _start(self) -> None:
        # Daemon: a trainer that ends is not held up beyond the bounded wait at exit.
        self._thread = threading.Thread(target=self._sender.work, name="tocsin-sender", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            self._queue.disclaim()
            raise
