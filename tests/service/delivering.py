"""What the tests of delivery share: a receiver that remembers, and a store with incidents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tocsin_detectors.alerts import Alert, AlertEvent, Evidence, Incident, IncidentEvent, Severity, State, Transition
from tocsin_detectors.entries import StepVector
from tocsin_service.delivery import News, Reason, Result, Sent
from tocsin_service.delivery.loop import Delivery
from tocsin_service.exposition import Exposition
from tocsin_service.store import Commit, Notification, Record, Store

INCIDENT = Incident(
    id="i1",
    run="run",
    attempt=0,
    rule="kl_jump",
    title="t",
    severity=Severity.WARNING,
    onset_step=2,
    first_sign="a1",
    last_good_step=1,
    members=("a1",),
    meaning="m",
    remedies=(),
)
ALERT = Alert(
    id="a1",
    run="run",
    attempt=0,
    rule="kl_jump",
    family="kl",
    severity=Severity.WARNING,
    metric="actor/kl",
    source="kl",
    onset_step=2,
    fired_step=3,
    evidence=Evidence(1.0),
    summary="s",
    meaning="m",
    remedies=(),
    incident="i1",
)
Answer = Result | Exception | Callable[[], Result] | None


@dataclass
class Recorder:
    """A receiver that keeps what it is told and answers from a script.

    Attributes:
        calls: the news of each message: one, or those of a summary.
    """

    name: str = "recorder"
    script: list[Answer] = field(default_factory=list)
    calls: list[list[News]] = field(default_factory=list)
    told: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: bool = False

    def tell(self, news: News) -> Result:
        assert isinstance(news.alerts, tuple)
        return self._take([news])

    def summarise(self, news: Sequence[News]) -> Result:
        assert len(news) > 1
        return self._take(list(news))

    def _take(self, news: list[News]) -> Result:
        self.calls.append(news)
        answer = self.script.pop(0) if self.script else Sent()
        self.told.release()
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer  # type: ignore[return-value] # a broken receiver may say anything

    def close(self) -> None:
        self.closed = True

    def wait(self) -> None:
        assert self.told.acquire(timeout=30)

    @property
    def reasons(self) -> list[Reason]:
        """Why it was told, one after the other."""
        return [news.reason for call in self.calls for news in call]

    @property
    def sizes(self) -> list[int]:
        """How many news each message had."""
        return [len(call) for call in self.calls]


@dataclass
class Stage:
    """A store with one run, and a clock that moves by hand."""

    store: Store
    exposition: Exposition
    now: float = 1000.0
    position: int = 0
    receivers: tuple[str, ...] = ("recorder", "other")

    def say(self, transition: Transition = Transition.FIRED, *alerts: Alert, **changes: Any) -> None:
        """An incident of the run has begun or changed."""
        incident = replace(INCIDENT, **changes)
        incident = replace(incident, members=tuple(alert.id for alert in alerts) or incident.members)
        event = IncidentEvent(transition, incident, self.position)
        told = [AlertEvent(transition, replace(alert, incident=incident.id), self.position) for alert in alerts]
        self.store.append("run", [Record(StepVector(self.position, {}))], self.now).result(30)
        wishes = [Notification(name, incident.id, event.id) for name in self.receivers]
        before = self.store.load("run").position
        after = self.store.read("run", before, 1)[0].position
        assert self.store.commit("run", Commit(before, after, "v", self.now, [*told, event], notifications=wishes))
        self.position += 1

    def deliver(self, receiver: Recorder, **how: Any) -> Delivery:
        """A delivery that isn't started: ``_send_due`` does what its thread would."""
        return Delivery(self.store, receiver, self.exposition, lambda: self.now, **how)

    def serve(self, receiver: Recorder, **how: Any) -> None:
        """Tells the receiver everything that is due now, as a process does that has just been started."""
        self.deliver(receiver, **how)._send_due()
        receiver.close()


def resolved(**changes: Any) -> dict[str, Any]:
    return {"state": State.RESOLVED, "resolved_step": 9, **changes}
