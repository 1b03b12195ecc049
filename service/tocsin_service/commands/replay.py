"""Send a recorded log to a service, through the client that its trainer would have used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tocsin
from tocsin import readers

__all__ = ["Delivered", "replay", "send"]

# The client drops rather than blocks; a file can wait, so the sender keeps the queue far from full.
MOST_WAITING = 500
PAUSE = 0.005  # seconds between looks at the queue


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the vectors of a file."""

    read: int
    delivered: int
    dropped: Mapping[str, int]

    @property
    def complete(self) -> bool:
        return self.delivered == self.read

    @property
    def summary(self) -> str:
        dropped = "".join(f", {count} dropped ({reason})" for reason, count in self.dropped.items())
        return f"{self.delivered} of {self.read} vectors delivered{dropped}"


def replay(
    file: str | Path,
    *,
    url: str,
    run: str,
    config: Mapping[str, Any] | None = None,
    token: str | None = None,
    rate: float | None = None,
) -> Delivered:
    """Send a log file in any format that :mod:`tocsin.readers` knows.

    Args:
        file: its path; "-" for standard input.
        url: address of the service.
        run: run id.
        config: what is known of the run.
        token: bearer token; None takes TOCSIN_TOKEN.
        rate: vectors per second; None: as quick as the service takes them.

    Raises:
        tocsin.readers.ReadError: the file can't be read as a log.
    """
    return send(readers.read(file), tocsin.Run(run, url=url, config=config, token=token), rate=rate)


def send(
    vectors: Any,
    run: tocsin.Run,
    *,
    rate: float | None = None,
    sent: Callable[[int], None] = lambda _: None,
) -> Delivered:
    """Send vectors in their order and wait until they have arrived.

    Args:
        vectors: an iterable of :class:`tocsin.readers.Vector`.
        run: the client's run; it is finished afterwards.
        rate: vectors per second; None: as quick as the service takes them.
        sent: called after each vector with the number sent so far.
    """
    clock = threading.Event()  # never set: a wait that signals can interrupt
    count = 0
    for vector in vectors:
        run.log(vector.metrics, vector.step, time=vector.time)
        count += 1
        sent(count)
        if rate:
            clock.wait(1 / rate)
        while run.stats()["waiting"] > MOST_WAITING and not run.dropped:
            clock.wait(PAUSE)
    run.finish(timeout=30)
    stats = run.stats()
    return Delivered(count, stats["delivered"], stats["dropped"])
