"""Both stores do at every step what a model of some lines does that keeps everything in lists."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.conftest import RedisServer
from tests.service.store_model import MAX_RUNS, Model, Run
from tests.service.stores import add, events

from tocsin_detectors.alerts import AlertEvent, Event, Severity, State, Transition
from tocsin_detectors.entries import Rebaseline, RunConfig, StepVector
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.audit import Act
from tocsin_service.store import (
    Appended,
    Claim,
    Commit,
    Notification,
    Record,
    Retention,
    Settlement,
    Store,
    Told,
    TooManyRuns,
)
from tocsin_service.store.redis import Address, RedisStore
from tocsin_service.store.sqlite import SqliteStore
from tocsin_service.store.trimming import config_after

BEGIN = time.time() - 1000  # of the model's clock, which never comes to what the machine's says
RUNS = st.sampled_from(["a", "b}:log", "ü", "d"])
NUMBERS = st.integers(0, 6)
VECTORS = st.builds(StepVector, NUMBERS, st.fixed_dictionaries({"loss": st.floats(allow_nan=False)}), st.just(1.7e9))
CONFIGS = st.builds(
    RunConfig,
    algorithm=st.sampled_from([None, "ppo", "grpo"]),
    temperature=st.sampled_from([None, 1.0, 0.5]),
    finished=st.sampled_from([None, True, False]),
    labels=st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
)
KEYS = st.sampled_from([None, *"klmnopqrst"])
RECORDS = st.one_of(
    st.builds(Record, VECTORS, KEYS),
    st.builds(Record, CONFIGS),
    st.builds(Record, st.just(Rebaseline("loss"))),
)
FOUND = st.lists(st.tuples(NUMBERS, st.sampled_from(list(Transition)), st.sampled_from(list(Severity))), max_size=4)


class Comparison(RuleBasedStateMachine):
    """The model and both stores, side by side."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        server.cli("FLUSHALL")
        self.sqlite = SqliteStore(Path(self.folder.name) / "t.db", max_runs=MAX_RUNS)
        self.redis = RedisStore(Address(server.socket_url), max_runs=MAX_RUNS)
        self.stores: list[Store] = [self.sqlite, self.redis]
        self.model, self.now = Model(), BEGIN
        self.positions: dict[tuple[Store, str], list[int]] = {}
        self.claims: list[tuple[Claim, ...]] = []

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()

    def at(self, store: Store, run: str, number: int) -> int:
        """The store's position of the entry of this number; something beyond the log if there is none."""
        known = self.positions.setdefault((store, run), [0])
        known += [one.position for one in store.read(run, known[-1], 100)]
        return known[number] if number < len(known) else known[-1] + number

    @rule(run=RUNS, records=st.lists(RECORDS, max_size=8), seconds=st.integers(0, 2))
    def append(self, run: str, records: list[Record], seconds: int) -> None:
        self.now += seconds
        expected = self.model.append(run, records, self.now)
        for store in self.stores:
            try:
                found: Appended | None = add(store, *records, run=run, now=self.now)
            except TooManyRuns:
                found = None
            assert found == expected

    @rule(
        run=RUNS,
        back=st.integers(-1, 3),
        wrong=st.sampled_from([0, 0, 0, 1]),
        saves=st.booleans(),
        attempt=st.sampled_from([None, 1]),
        error=st.sampled_from([None, "oops"]),
        sees=st.booleans(),
        rewrite=st.sampled_from([False, False, False, True]),
        found=FOUND,
    )
    def commit(self, *, run: str, back: int, wrong: int, sees: bool, saves: bool, found: Any, **fields: Any) -> None:
        known = self.model.runs.get(run, Run(0))
        expected = known.committed + wrong
        position = max(known.committed, known.head - back)
        told: list[Event] = []
        for number, transition, severity in found:
            over = {"state": State.RESOLVED, "resolved_step": 9} if transition is Transition.RESOLVED else {}
            told += events(transition, id=f"{run}{number}", run=run, severity=severity, **over)
        causes = [1 + number % max(1, position) for number in range(len(told))]
        wishes = [
            Notification(receiver, event.incident.id, event.id)
            for event in told
            if not isinstance(event, AlertEvent)
            for receiver in ("slack", "mail")
        ]
        config = config_after(known.log[number] for number in sorted(known.log) if number <= position) if sees else None
        change = Commit(
            expected,
            position,
            "v1",
            self.now,
            told,
            causes,
            wishes,
            {"n": position} if saves and position else None,
            config=config,
            **fields,
        )
        outcome = self.model.commit(run, change)
        for store in self.stores:
            theirs = replace(
                change,
                expected=self.at(store, run, expected),
                position=self.at(store, run, position),
                causes=[self.at(store, run, cause) for cause in causes],
            )
            assert store.commit(run, theirs) is outcome

    @rule(receiver=st.sampled_from(["slack", "mail"]), seconds=st.integers(0, 70))
    def claim(self, receiver: str, seconds: int) -> None:
        # Of several that are due at the same time a store may give any: then there is nothing to compare.
        due = [row.due for row in self.model.waiting(receiver).values() if row.due <= self.now + seconds]
        if due.count(min(due, default=0.0)) > 1:
            return
        self.now += seconds
        expected = self.model.claim(receiver, self.now, 60)
        claims = [store.claim(receiver, self.now, 60) for store in self.stores]
        if expected is None:
            assert claims == [None, None]
        else:
            taken = tuple(one for one in claims if one is not None)
            incident, row = expected
            for one in taken:
                assert (one.incident_id, one.news, one.tries) == (incident, row.news, row.tries)
                assert (one.told, one.error, one.interrupted) == (row.told, row.error, row.taken)
                assert one.acknowledged == self.model.acknowledged.get(incident)
            plain = [replace(one, alerts=[replace(alert, **PLAIN["alerts"]) for alert in one.alerts]) for one in taken]
            assert plain[0] == plain[1]
            self.claims.append(taken)

    @rule(told=st.booleans(), seconds=st.sampled_from([None, 5, 5000]), error=st.sampled_from(["", "HTTP 500"]))
    def settle(self, told: bool, seconds: int | None, error: str) -> None:
        if not self.claims:
            return
        claims = self.claims.pop()
        said = Told("rule", Severity.WARNING, State.FIRING, self.now, "17.5", told) if told else None
        again = None if seconds is None else self.now + seconds
        one = claims[0]
        self.model.settle((one.receiver, one.incident_id), one.news, said, again, error)
        for store, claim in zip(self.stores, claims, strict=True):
            store.settle(Settlement(claim, said, again, error or None))

    @rule(run=RUNS, number=NUMBERS, author=st.sampled_from(["me", "ü"]))
    def acknowledge(self, run: str, number: int, author: str) -> None:
        one = Acknowledgement(run, f"{run}{number}", author, "why", self.now)
        expected = self.model.acknowledge(one)
        for store in self.stores:
            assert store.acknowledge(one) is expected

    @rule(subject=RUNS, hours=NUMBERS)
    def record(self, subject: str, hours: int) -> None:
        act = Act(self.now, "me", "mute", subject, {"hours": hours})
        self.model.acts.append(act)
        for store in self.stores:
            store.record(act)

    @rule(entries=st.integers(1, 4))
    def trim(self, entries: int) -> None:
        expected = self.model.trim(entries)
        for store in self.stores:
            for run in self.model.runs:
                self.at(store, run, 0)  # takes note of positions that are about to go
            assert store.trim(Retention(entries=entries), self.now) == expected

    @invariant()
    def runs_look_the_same(self) -> None:
        for store in self.stores:
            assert store.count_runs() == len(self.model.runs)
            assert {one.run for one in store.runs(9)} == set(self.model.runs)
            assert set(store.news()) == {name for name, run in self.model.runs.items() if run.committed < run.head}
            for name, run in self.model.runs.items():
                found = store.run(name)
                assert found is not None
                assert (found.created, found.last_seen, found.step) == (run.created, run.last_seen, run.step)
                assert (found.vectors, found.attempt, found.error) == (run.vectors, run.attempt, run.error)
                assert found.config == (run.view or run.given)
                assert found.pending == run.head - run.committed
                assert found.firing == self.firing(name)

    @invariant()
    def logs_are_the_same(self) -> None:
        for store in self.stores:
            for name, run in self.model.runs.items():
                assert [one.entry for one in store.read(name, 0, 1000)] == [run.log[n] for n in sorted(run.log)]
                progress = store.load(name)
                assert progress.position == self.at(store, name, run.committed)
                assert progress.version == run.version
                snapshot = progress.snapshot
                assert (snapshot is None) == (run.snapshot == 0)
                assert snapshot is None or snapshot.position == self.at(store, name, run.snapshot)
                assert snapshot is None or snapshot.state == {"n": run.snapshot}

    @invariant()
    def lists_are_the_same(self) -> None:
        for store in self.stores:
            for run, state, severity in [
                (None, None, None),
                ("a", None, None),
                (None, State.FIRING, None),
                ("ü", State.RESOLVED, Severity.WARNING),
            ]:
                for kind, found in (
                    ("alerts", store.alerts(run, state, severity, 5)),
                    ("incidents", store.incidents(run, state, severity, 5)),
                ):
                    expected = self.listed(kind, run, state, severity)[:5]
                    assert [replace(one, **PLAIN[kind]) for one in found] == expected

    @invariant()
    def outboxes_are_the_same(self) -> None:
        for store in self.stores:
            waiting = {receiver: self.model.waiting(receiver) for receiver in ("slack", "mail")}
            pending = [not row.postponed for rows in waiting.values() for row in rows.values()]
            assert store.pending_notifications() == sum(pending)
            for receiver, rows in waiting.items():
                assert store.next_due(receiver) == min((row.due for row in rows.values()), default=None)

    @invariant()
    def wishes_are_the_same(self) -> None:
        for store in self.stores:
            assert store.acknowledgements() == self.model.acknowledged
            for run in ("a", "ü"):
                expected = {name: one for name, one in self.model.acknowledged.items() if one.run == run}
                assert store.acknowledgements(run) == expected
            assert store.acts(3) == self.model.acts[-3:][::-1]

    @invariant()
    def single_incidents_are_the_same(self) -> None:
        for store in self.stores:
            for number in range(7):
                _, expected = self.model.subjects.get(("incidents", f"a{number}"), (0, None))
                found = store.incident("a", f"a{number}")
                assert (found and found[0]) == expected
                known = [name for name in ("a1",) if ("alerts", name) in self.model.subjects]
                assert found is None or [alert.id for alert in found[1]] == known

    def listed(self, kind: str, run: str | None, state: State | None, severity: Severity | None) -> list[Any]:
        return [
            replace(subject, **PLAIN[kind])
            for (one, _), (_, subject) in reversed(self.model.subjects.items())
            if one == kind
            and run in {None, subject.run}
            and state in {None, subject.state}
            and severity in {None, subject.severity}
        ]

    def firing(self, run: str) -> dict[str, int]:
        found = [str(one.severity) for one in self.listed("alerts", run, State.FIRING, None)]
        return {severity: found.count(severity) for severity in set(found)}


# NaN equals nothing, and the evidence of every alert here is one.
PLAIN: dict[str, dict[str, Any]] = {"alerts": {"evidence": None}, "incidents": {}}


def test_stores_and_model(redis_server: RedisServer) -> None:
    settings = hypothesis.settings(
        max_examples=15,
        stateful_step_count=25,
        deadline=None,
        phases=[hypothesis.Phase.generate],  # to shrink what fails takes minutes, and shows little more
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(lambda: Comparison(redis_server), settings=settings)
