"""The thread that serves one receiver from the outbox: takes all that is due, decides, and tells at a pace."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tocsin_service.delivery import Failed, News, Reason, Receiver, Result, Retry, Sent
from tocsin_service.delivery.decision import Decision, Nothing, Tell, Wait, backoff, decide, reminder_at
from tocsin_service.delivery.muting import silent_until
from tocsin_service.delivery.pace import Bucket
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.routing import Route, is_for
from tocsin_service.exposition import Exposition
from tocsin_service.silences import Silence
from tocsin_service.store import Claim, Settlement, Store, StoreUnavailable, Told

__all__ = ["Delivery"]

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0  # twice what an attempt may take: none begins in the second half
MOST_CLAIMS = 500  # in one summary
LONGEST_WAIT = 5.0  # seconds between two looks at the outbox: not everybody who writes into it says so
SHARED_WAIT = 0.25  # the same where it is usually another process that writes


@dataclass(frozen=True, slots=True)
class _Ready:
    """A claim whose news are to be told now."""

    claim: Claim
    news: News


class Delivery:
    """The thread that serves one receiver from the outbox.

    Args:
        store: has the outbox and the silences.
        receiver: whom to tell; closed with the delivery.
        exposition: where attempts are counted.
        clock: Unix time in seconds.
        policy: how the receiver wants to be told.
        routes: which incidents are for which receiver; none: all for all.
        serves: where several processes share the store: whether the receiver of that name is this one's to serve.
    """

    def __init__(
        self,
        store: Store,
        receiver: Receiver,
        exposition: Exposition,
        clock: Callable[[], float] = time.time,
        *,
        policy: Policy | None = None,
        routes: Sequence[Route] = (),
        serves: Callable[[str], bool] | None = None,
    ) -> None:
        self._store, self._receiver, self._exposition, self._clock = store, receiver, exposition, clock
        self._policy, self._routes, self._serves = policy or Policy(), tuple(routes), serves
        for result in (Sent, Retry, Failed):  # from the beginning: an increase from nothing would be none
            exposition.deliveries.labels(receiver.name, result.__name__.lower())
        self._bucket = Bucket(self._policy.pace, clock())
        self._taken: dict[str, Claim] = {}  # claims of which nothing has become yet, by the incident's id
        self._unsettled: deque[Settlement] = deque()  # what happened and the store couldn't take yet
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

    def _is_mine(self) -> bool:
        return self._serves is None or self._serves(self._receiver.name)

    def _wait_seconds(self) -> float:
        longest = LONGEST_WAIT if self._serves is None else SHARED_WAIT
        due = self._store.next_due(self._receiver.name) if self._is_mine() else None
        if due is None:
            return longest
        now = self._clock()
        possible = max(self._paused_until, now if self._policy.mirrors else self._bucket.next(now))
        return min(longest, max(0.0, max(due, possible) - now))

    # What is due.

    def _send_due(self) -> None:
        self._settle()
        while self._clock() >= self._paused_until and self._is_mine():
            # What can't be told yet stays in the outbox, where more may join it.
            if not (self._policy.mirrors or self._bucket.tokens(self._clock())):
                return
            begun = time.monotonic()
            try:
                claims = self._claim()
                if not claims:
                    return
                self._serve(claims, begun)
            finally:  # after trouble nothing has to wait until its lease is over
                self._unsettled.extend(Settlement(claim, retry_at=self._clock()) for claim in self._taken.values())
                self._taken.clear()

    def _claim(self) -> list[Claim]:
        claims: list[Claim] = []
        while len(claims) < MOST_CLAIMS and time.monotonic() < self._deadline:
            claim = self._store.claim(self._receiver.name, self._clock(), LEASE_SECONDS)
            if claim is None:
                break
            claims.append(claim)
            self._taken[claim.incident_id] = claim
        return claims

    def _serve(self, claims: Sequence[Claim], begun: float) -> None:
        silences, ready = self._store.silences(), list[_Ready]()
        for claim in claims:
            try:
                decision = self._decide(claim, silences)
            except Exception as error:
                logger.exception("delivery to %s: incident %s can't be decided", claim.receiver, claim.incident_id)
                self._settle(self._failed(claim, Retry(f"unexpected {type(error).__name__}")))
                continue
            match decision:
                case Tell(reason):
                    ready.append(_Ready(claim, self._news(claim, reason)))
                case Wait(until):
                    self._settle(Settlement(claim, retry_at=until))
                case Nothing():
                    self._settle(Settlement(claim))
        if ready and (self._policy.mirrors or len(ready) > self._bucket.tokens(self._clock())):
            self._tell_together(ready, begun)
        else:
            self._tell_each(ready, begun)

    def _decide(self, claim: Claim, silences: Sequence[Silence]) -> Decision:
        incident, now, routed, silent = claim.incident, self._clock(), True, None
        if incident is not None:
            labels = claim.config.labels or {}
            routed = is_for(self._routes, claim.receiver, incident, claim.alerts, labels)
            silent = silent_until(silences, now, incident, claim.alerts, labels)
        return decide(claim, self._policy, now, routed=routed, silent_until=silent)

    # Telling.

    def _tell_each(self, ready: Iterable[_Ready], begun: float) -> None:
        for one in ready:
            if self._may_begin(begun):
                self._attempt([one])
            else:
                self._put_back([one])

    def _tell_together(self, ready: Sequence[_Ready], begun: float) -> None:
        """One message for all. One that is refused for good is halved, until it is known which news are to blame."""
        if not self._may_begin(begun):
            self._put_back(ready)
        elif isinstance(self._attempt(ready), Failed) and len(ready) > 1:
            half = len(ready) // 2
            self._tell_together(ready[:half], begun)
            self._tell_together(ready[half:], begun)

    def _may_begin(self, begun: float) -> bool:
        """Whether there is time for an attempt: the claims were made at ``begun`` (monotonic)."""
        now = time.monotonic()
        paused = self._clock() < self._paused_until
        return not paused and now < min(self._deadline, begun + LEASE_SECONDS / 2)

    def _put_back(self, ready: Iterable[_Ready]) -> None:
        until = max(self._clock(), self._paused_until)
        for one in ready:
            self._settle(Settlement(one.claim, retry_at=until))

    def _attempt(self, ready: Sequence[_Ready]) -> Result:
        """Makes one attempt to tell all of this, and settles it; not if several were refused together."""
        name = self._receiver.name
        try:
            if len(ready) == 1:
                result = self._receiver.tell(ready[0].news)
            else:
                result = self._receiver.summarise([one.news for one in ready])
            if not isinstance(result, Sent | Retry | Failed):
                result = Retry(f"unexpected {type(result).__name__}")
        except Exception as error:  # noqa: BLE001 - a receiver's bug must not stop the others' messages
            result = Retry(f"unexpected {type(error).__name__}")
        self._exposition.deliveries.labels(name, type(result).__name__.lower()).inc()
        what = f"incident {ready[0].claim.incident_id}" if len(ready) == 1 else f"{len(ready)} incidents together"
        match result:
            case Sent():
                self._bucket.take()
                self._settle(*(self._told(one, result, alone=len(ready) == 1) for one in ready))
            case Retry(why, after):
                logger.warning("%s was not told of %s: %s; again later", name, what, why)
                if after is not None:
                    self._paused_until = self._clock() + after
                self._settle(*(self._failed(one.claim, result) for one in ready))
            case Failed(why):
                logger.error("%s can't be told of %s: %s", name, what, why)
                if len(ready) == 1:
                    self._settle(Settlement(ready[0].claim, error=why))
        return result

    # How it ended.

    def _news(self, claim: Claim, reason: Reason) -> News:
        assert claim.incident is not None  # noqa: S101 - what isn't there isn't told
        told = claim.told
        return News(
            reason,
            claim.incident,
            claim.alerts,
            claim.config,
            claim.acknowledged,
            thread=None if told is None else told.thread,
            again=claim.tries > 0 or claim.interrupted,
            told_at=None if told is None else told.time,
        )

    def _told(self, one: _Ready, result: Sent, *, alone: bool) -> Settlement:
        """What the receiver knows now. A summary is a first message only of what had none."""
        incident, known = one.news.incident, one.news.thread
        told = Told(
            incident.rule,
            incident.severity,
            incident.state,
            self._clock(),
            thread=result.thread if known is None or (alone and result.thread is not None) else known,
            acknowledged=one.news.acknowledged is not None,
        )
        return Settlement(one.claim, told, retry_at=reminder_at(told, one.claim, self._policy))

    def _failed(self, claim: Claim, result: Retry) -> Settlement:
        wait = backoff(claim.tries + 1) if result.after is None else result.after
        return Settlement(claim, retry_at=self._clock() + wait, error=result.reason)

    def _settle(self, *settlements: Settlement) -> None:
        """Tells the store, first what it couldn't take before: who was told must not be told again for that."""
        self._unsettled.extend(settlements)
        for settlement in settlements:
            self._taken.pop(settlement.claim.incident_id, None)
        while self._unsettled:
            settlement = self._unsettled.popleft()
            try:
                self._store.settle(settlement)
            except StoreUnavailable:
                self._unsettled.appendleft(settlement)
                raise
