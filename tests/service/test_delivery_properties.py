"""Whatever happens, and in whatever order: nothing that fires is forgotten, nothing is said twice, nothing spins."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.service.delivering import INCIDENT, Recorder

from tocsin_detectors.alerts import Incident, IncidentEvent, Severity, State, Transition
from tocsin_detectors.entries import StepVector
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.delivery import News, Reason, Result, Retry, Sent
from tocsin_service.delivery.decision import Tell, Wait, decide
from tocsin_service.delivery.loop import Delivery
from tocsin_service.delivery.pace import Pace
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.quiet import QuietHours
from tocsin_service.exposition import Exposition
from tocsin_service.silences import Matchers, Silence
from tocsin_service.store import Claim, Commit, Notification, Record, Store, Told
from tocsin_service.store.sqlite import SqliteStore

BEGIN = 1_750_000_000.0
NIGHT = QuietHours(time(22), time(8), ZoneInfo("Europe/Berlin"))
NUMBERS = itertools.count()

POLICIES = st.builds(
    Policy,
    quiet=st.sampled_from([(), (NIGHT,)]),
    pace=st.builds(Pace, st.integers(1, 4), st.sampled_from([1.0, 30.0, 600.0])),
    remind_seconds=st.sampled_from([None, 3600.0]),
    mirrors=st.just(False),
)
SEVERITIES = st.sampled_from(list(Severity))
STATES = st.sampled_from(list(State))
TIMES = st.floats(BEGIN, BEGIN + 1e6)
RULES = st.sampled_from(["kl_jump", "model_collapse"])
CLAIMS = st.builds(
    Claim,
    receiver=st.just("chat"),
    incident_id=st.just("i1"),
    news=st.just(1),
    tries=st.integers(0, 9),
    told=st.none() | st.builds(Told, RULES, SEVERITIES, STATES, TIMES, st.none(), st.booleans()),
    incident=st.none() | st.builds(replace, st.just(INCIDENT), rule=RULES, severity=SEVERITIES, state=STATES),
    acknowledged=st.none() | st.just(Acknowledgement("run", "i1", "ada")),
)


@given(CLAIMS, POLICIES | st.just(Policy(mirrors=True)), TIMES, st.booleans(), st.none() | st.floats(0.001, 1e6))
def test_a_wait_lies_in_the_future(
    claim: Claim, policy: Policy, now: float, routed: bool, silence: float | None
) -> None:
    silent_until = None if silence is None else now + silence
    decision = decide(claim, policy, now, routed=routed, silent_until=silent_until)
    if isinstance(decision, Wait):
        assert decision.until > now
    if isinstance(decision, Tell):
        assert silent_until is None
        assert claim.incident is not None
        assert claim.incident.severity is not Severity.INFO
        assert claim.told is not None or routed
        critical = claim.incident.severity is Severity.CRITICAL
        assert critical or policy.quiet_until(now) is None
        if decision.reason is Reason.REMINDED:
            assert claim.acknowledged is None


@dataclass
class World:
    """A run of its own with some incidents, a receiver that is often down, and time that passes."""

    store: Store
    policy: Policy
    name: str = field(default_factory=lambda: f"w{next(NUMBERS)}")
    now: float = BEGIN
    incidents: dict[int, Incident] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    position: int = 0
    starts: int = 0

    def __post_init__(self) -> None:
        self.receiver = Recorder(self.name)
        self.exposition = Exposition(self.store)
        self.restart()

    def restart(self) -> None:
        self.starts += 1
        self.delivery = Delivery(self.store, self.receiver, self.exposition, lambda: self.now, policy=self.policy)

    def commit(self, number: int, transition: Transition, **changes: Any) -> None:
        before = self.incidents.get(number, replace(INCIDENT, id=f"{self.name}-{number}", run=self.name))
        self.incidents[number] = incident = replace(before, **changes)
        event = IncidentEvent(transition, incident, self.position)
        self.store.append(self.name, [Record(StepVector(self.position, {}))], self.now).result(30)
        wishes = [Notification(self.name, incident.id, event.id)]
        change = Commit(self.position, self.position + 1, "v", self.now, [event], notifications=wishes)
        assert self.store.commit(self.name, change)
        self.position += 1

    def act(self, what: str, number: int, amount: float) -> None:
        incident = self.incidents.get(number)
        firing = incident is not None and incident.state is State.FIRING
        match what:
            case "begins" if incident is None:
                severity = Severity.CRITICAL if amount > 0.5 else Severity.WARNING
                self.commit(number, Transition.FIRED, severity=severity)
            case "gets worse" if firing:
                self.commit(number, Transition.ESCALATED, severity=Severity.CRITICAL, rule="model_collapse")
            case "ends" if firing:
                self.commit(number, Transition.RESOLVED, state=State.RESOLVED, resolved_step=9)
            case "acknowledged" if incident is not None:
                self.store.acknowledge(Acknowledgement(self.name, incident.id, "ada", "", self.now))
                self.acknowledged.add(number)
            case "silenced":
                matchers = Matchers(run=self.name, rule="*" if amount > 0.5 else "kl_*")
                ends = self.now + 1 + amount * 10_000
                self.store.add_silence(Silence(f"{self.name}-{number}", matchers, self.now, ends))
            case "unsilenced":
                self.store.expire_silence(f"{self.name}-{number}", self.now)
            case "refuses":
                self.receiver.script = [Retry("HTTP 500"), Retry("HTTP 429", amount * 100), RuntimeError()][
                    : number + 1
                ]
            case "restarts":
                self.restart()
            case "passes":
                self.now += amount * 3000
        self.turn()

    def turn(self) -> None:
        self.delivery._send_due()
        wait = self.delivery._wait_seconds()
        assert wait > 0, "it would look again at once and find nothing to do"

    def come_to_rest(self) -> None:
        """A day passes in which nothing happens; all silences end in it, and the receiver is well."""
        self.receiver.script = []
        for _ in range(200):
            self.now += 450.0
            self.turn()


ACTS = st.tuples(
    st.sampled_from(
        ["begins", "begins", "gets worse", "ends", "acknowledged", "silenced", "unsilenced", "refuses", "restarts"]
        + ["passes"] * 3
    ),
    st.integers(0, 2),
    st.floats(0, 1),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = SqliteStore(tmp_path_factory.mktemp("properties") / "tocsin.db")
    yield store
    store.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(policy=POLICIES, acts=st.lists(ACTS, min_size=1, max_size=25))
def test_what_fires_is_told_in_the_end_and_nothing_twice(store: Store, policy: Policy, acts: list[Any]) -> None:
    world = World(store, policy)
    taken: list[News] = []
    take = world.receiver._take

    def note(news: list[News]) -> Result:
        result = take(news)
        if isinstance(result, Sent):
            taken.extend(news)
            messages.append(world.now)
        return result

    messages: list[float] = []
    world.receiver._take = note  # type: ignore[method-assign]
    for what, number, amount in acts:
        world.act(what, number, amount)
    world.come_to_rest()

    known = {news.incident.id: news for news in taken}  # the last of each
    for number, incident in world.incidents.items():
        if incident.state is State.FIRING:
            assert known[incident.id].incident.severity is incident.severity
            assert known[incident.id].incident.rule == incident.rule
            assert (number in world.acknowledged) == (known[incident.id].acknowledged is not None)
        elif incident.id in known and incident.severity is Severity.CRITICAL:
            assert known[incident.id].reason is Reason.RESOLVED
    assert max(Counter(news.id for news in taken).values(), default=0) <= 1
    allowed = world.starts * policy.pace.burst + (world.now - BEGIN) / policy.pace.seconds
    assert len(messages) <= allowed + 1e-3
    forever = any(
        incident.state is State.FIRING and incident.severity is Severity.CRITICAL and number not in world.acknowledged
        for number, incident in world.incidents.items()
    )
    if policy.remind_seconds is None or not forever:
        assert store.next_due(world.name) is None
