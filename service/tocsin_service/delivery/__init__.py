"""Delivery: tells receivers of incidents, from the outbox, at least once, with backoff.

Every receiver has a thread of its own, so that a broken one delays nobody. Whether there is something to say is decided
when it is said: a message that had to wait tells what is true now.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.exposition import Exposition
from tocsin_service.store import Claim, Settlement, Store, StoreUnavailable, Told

__all__ = ["Delivery", "Failed", "Reason", "Receiver", "Result", "Retry", "Sent", "backoff", "decide"]

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0  # longer than any attempt takes
LONGEST_WAIT = 30.0  # seconds between two looks at the outbox, in case a wake-up got lost
LONGEST_BACKOFF = 300.0  # seconds


class Reason(StrEnum):
    """Why a receiver is told of an incident."""

    OPENED = "opened"
    ESCALATED = "escalated"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Sent:
    """The receiver has it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Not now. ``after``: seconds for which the receiver asked not to be disturbed at all; None: our own backoff."""

    reason: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It will never take this message; ``reason`` says why, without secrets."""

    reason: str


Result: TypeAlias = Sent | Retry | Failed


class Receiver(Protocol):
    """Somebody to tell. One attempt at a time; a result for everything that can go wrong, never an exception."""

    @property
    def name(self) -> str:
        """Name in the outbox and in the metrics."""
        ...

    def send(self, reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig) -> Result:
        """Makes one attempt, bounded in time."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...


def decide(told: Told | None, incident: Incident) -> Reason | None:
    """Why the receiver should hear of ``incident``, given what it was last told; None if it should not.

    One message when it opens, another only when it gets worse, and the all-clear for what had been critical. An
    incident that was over before anybody could be told is still told if it was critical: once, as resolved.
    """
    if incident.severity is Severity.INFO:
        return None
    critical = incident.severity is Severity.CRITICAL
    if incident.state is State.RESOLVED:
        silent = told is not None and told.state is State.RESOLVED
        return Reason.RESOLVED if critical and not silent else None
    if told is None:
        return Reason.OPENED
    # A rule changes without the severity when a critical alert turns out to be a collapse.
    worse = incident.severity.rank > told.severity.rank or (critical and incident.rule != told.rule)
    return Reason.ESCALATED if worse else None


def backoff(tries: int) -> float:
    """Seconds to wait after ``tries`` failed attempts in a row: 1, 2, 4 ... up to five minutes."""
    return min(2.0 ** min(max(0, tries - 1), 10), LONGEST_BACKOFF)  # the inner bound: no float holds 2 to the 1024th


class Delivery:
    """The thread that serves one receiver from the outbox.

    Args:
        store: has the outbox.
        receiver: whom to tell; closed with the delivery.
        exposition: where attempts are counted.
        clock: Unix time in seconds.
    """

    def __init__(
        self, store: Store, receiver: Receiver, exposition: Exposition, clock: Callable[[], float] = time.time
    ) -> None:
        self._store, self._receiver, self._exposition, self._clock = store, receiver, exposition, clock
        for result in (Sent, Retry, Failed):  # from the beginning: an increase from nothing would be none
            exposition.deliveries.labels(receiver.name, result.__name__.lower())
        self._paused_until = 0.0  # the receiver asked for silence until then
        self._wakened = threading.Event()
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._loop, name=f"tocsin-{receiver.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Says that the outbox may have something new."""
        self._wakened.set()

    def stop(self, timeout: float) -> None:
        """Sends what is due, for at most ``timeout`` seconds; the rest waits in the outbox for the next start."""
        self._deadline = time.monotonic() + timeout
        self._stopping.set()
        self._wakened.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)  # a receiver that hangs is left alone: it is told again after the next start
        self._receiver.close()

    def _loop(self) -> None:
        while True:
            self._wakened.clear()
            wait = LONGEST_WAIT
            try:
                self._send_due()
                wait = self._wait_seconds()
            except StoreUnavailable as error:
                logger.warning("delivery to %s waits for the store: %s", self._receiver.name, error)
                wait = 1.0
            except Exception as error:  # noqa: BLE001 - the thread must live; its text might hold the receiver's secret
                logger.error("delivery to %s: unexpected %s", self._receiver.name, type(error).__name__)  # noqa: TRY400 - no traceback: same
            if self._stopping.is_set():
                return
            self._wakened.wait(wait)

    def _wait_seconds(self) -> float:
        due = self._store.next_due(self._receiver.name)
        if due is None:
            return LONGEST_WAIT
        return min(LONGEST_WAIT, max(0.0, max(due, self._paused_until) - self._clock()))

    def _send_due(self) -> None:
        while time.monotonic() < self._deadline and self._clock() >= self._paused_until:
            claim = self._store.claim(self._receiver.name, self._clock(), LEASE_SECONDS)
            if claim is None:
                return
            self._store.settle(self._serve(claim))

    def _serve(self, claim: Claim) -> Settlement:
        incident = claim.incident
        reason = None if incident is None else decide(claim.told, incident)
        if incident is None or reason is None:
            return Settlement(claim)
        try:
            result = self._receiver.send(reason, incident, claim.alerts, claim.config)
        except Exception as error:  # noqa: BLE001 - a receiver's bug must not stop the others' messages
            result = Retry(f"unexpected {type(error).__name__}")
        self._exposition.deliveries.labels(self._receiver.name, type(result).__name__.lower()).inc()
        now = self._clock()
        match result:
            case Sent():
                return Settlement(claim, told=Told(incident.rule, incident.severity, incident.state, now))
            case Retry(why, after):
                if after is not None:
                    self._paused_until = now + after
                logger.warning("%s was not told of incident %s: %s; again later", claim.receiver, incident.id, why)
                wait = backoff(claim.tries + 1) if after is None else after
                return Settlement(claim, retry_at=now + wait, error=why)
            case Failed(why):
                logger.error("%s can't be told of incident %s: %s", claim.receiver, incident.id, why)
                return Settlement(claim, error=why)
