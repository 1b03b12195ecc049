"""What every store forgets, and what it must not."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from tests.service.stores import (
    ACKNOWLEDGEMENT,
    NOW,
    SILENCE,
    TOLD,
    OpenStore,
    add,
    change,
    events,
    positions,
    record,
    summary,
    taken,
)

from tocsin_detectors.alerts import Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.exposition import Exposition
from tocsin_service.judging.worker import Worker
from tocsin_service.store import Appended, Commit, Progress, Record, Retention, Settlement, Store, Trimmed

DAY = 86_400.0


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


class TestRetention:
    """The log's clock is the machine's in Redis: so what is old is made by looking from the future."""

    def fill(self, store: Store, count: int, *, state: bool = True, run: str = "r") -> list[int]:
        now = time.time()
        add(store, Record(RunConfig("grpo")), *(record(step) for step in range(1, count)), run=run, now=now)
        at = positions(store, run)
        assert store.commit(run, change(0, at[-1], state={} if state else None))
        return at

    def test_nothing_goes_without_bounds(self, store: Store) -> None:
        at = self.fill(store, 10)
        assert store.trim(Retention(), time.time() + 999 * DAY) == Trimmed(0, 0)
        assert positions(store) == at

    def test_by_count(self, store: Store) -> None:
        at = self.fill(store, 10)
        assert store.trim(Retention(entries=4), time.time()) == Trimmed(5, 0)
        stored = store.read("r", 0, 100)
        assert [one.position for one in stored] == at[6:]
        assert stored[0].entry == RunConfig("grpo")
        assert [one.entry for one in stored[1:]] == [record(step).entry for step in (6, 7, 8, 9)]
        assert store.trim(Retention(entries=4), time.time()) == Trimmed(0, 0)
        assert (summary(store).pending, summary(store).vectors) == (0, 9)
        assert store.news() == []

    def test_again_and_again(self, store: Store) -> None:
        self.fill(store, 10)
        store.trim(Retention(entries=4), time.time())
        expected = store.load("r").position
        add(store, Record(RunConfig(framework="trl")), *(record(step) for step in range(20, 24)))
        last = positions(store)[-1]
        assert store.commit("r", change(expected, last, state={}))
        assert store.trim(Retention(entries=2), time.time()) == Trimmed(7, 0)
        entries = [one.entry for one in store.read("r", 0, 100)]
        assert entries == [RunConfig("grpo", "trl"), record(22).entry, record(23).entry]
        assert summary(store).pending == 0

    def test_a_long_log(self, store: Store) -> None:
        self.fill(store, 3000)
        assert store.trim(Retention(entries=100), time.time()) == Trimmed(2899, 0)
        stored = store.read("r", 0, 1000)
        assert [stored[0].entry, len(stored)] == [RunConfig("grpo"), 101]
        assert store.seek("r", 5, 0) < stored[1].position
        (first,) = store.read("r", store.seek("r", 2950, 0), 1)
        assert first.entry == record(2951).entry
        assert store.seek("r", None, 3) == stored[-4].position

    def test_what_is_not_folded_or_not_in_a_snapshot_stays(self, store: Store) -> None:
        at = self.fill(store, 10, state=False)
        assert store.trim(Retention(entries=1), time.time()) == Trimmed(0, 0)
        add(store, record(50))
        assert store.commit("r", change(at[-1], at[-1], state={}))
        assert store.trim(Retention(entries=1), time.time()) == Trimmed(9, 0)  # one is kept, one not folded
        assert [one.entry for one in store.read("r", 0, 9)] == [RunConfig("grpo"), record(50).entry]
        assert summary(store).pending == 1

    def test_a_snapshot_that_is_older_than_what_is_folded(self, store: Store) -> None:
        at = self.fill(store, 10, state=False)
        assert store.commit("r", change(at[-1], at[-1], state={}))
        add(store, *(record(step) for step in range(20, 25)))
        assert store.commit("r", change(at[-1], positions(store)[-1]))
        assert store.trim(Retention(entries=1), time.time()) == Trimmed(9, 0)
        assert positions(store)[1] == at[-1]

    def test_a_finished_run_that_went_on(self, store: Store) -> None:
        add(store, Record(RunConfig("grpo", finished=True)), *(record(step) for step in range(5)))
        store.commit("r", change(0, positions(store)[-1], state={}))
        store.trim(Retention(entries=2), time.time())
        assert store.read("r", 0, 1)[0].entry == RunConfig("grpo")

    def test_idempotency_keys_go_with_their_entries(self, store: Store) -> None:
        self.fill(store, 10)
        store.trim(Retention(entries=4), time.time())
        assert add(store, record(9)) == Appended(0, 1)
        assert add(store, record(1)) == Appended(1, 0)

    def test_by_age(self, store: Store) -> None:
        at = self.fill(store, 10)
        later = time.time() + 40 * DAY
        add(store, record(99), now=later)  # a sign of life: else the whole run would go
        assert store.trim(Retention(days=50), later) == Trimmed(0, 0)
        assert store.trim(Retention(days=30), later) == Trimmed(9, 0)
        assert positions(store)[1] == at[-1]

    def test_a_silent_run_goes_with_everything(self, store: Store) -> None:
        self.fill(store, 10, run="s")
        last = self.fill(store, 10)[-1]
        store.commit("r", change(last, last, events() + events(id="x", severity=Severity.CRITICAL), attempt=3))
        for claim in (taken(store), taken(store)):
            store.settle(Settlement(claim, TOLD, retry_at=NOW + 3600))
        assert store.acknowledge(ACKNOWLEDGEMENT)
        assert store.acknowledge(replace(ACKNOWLEDGEMENT, incident="x"))
        kept = replace(ACKNOWLEDGEMENT, run="s", incident="y")
        at = store.load("s").position
        assert store.commit("s", change(at, at, events(id="y", run="s"), notifications=()))
        assert store.acknowledge(kept)
        later = time.time() + 40 * DAY
        add(store, record(99), run="s", now=later)
        assert store.trim(Retention(days=50), later) == Trimmed(0, 0)
        assert store.trim(Retention(days=30), later, lambda run: run != "r") == Trimmed(9, 0)
        assert store.trim(Retention(days=30), later) == Trimmed(10, 1)
        assert store.run("r") is None
        assert (store.count_runs(), [one.run for one in store.runs(9)]) == (1, ["s"])
        assert store.read("r", 0, 10) == []
        assert store.load("r") == Progress()
        assert [one.id for one in store.incidents(None, None, None, 10)] == ["y"]
        assert store.alerts("r", None, None, 10) == store.incidents("r", None, None, 10) == []
        assert store.incident("r", "i1") is None
        assert store.acknowledgements() == {"y": kept}
        assert store.pending_notifications() == 0
        assert store.next_due("slack") is None
        assert store.claim("slack", later, 60) is None
        assert store.recent_times("r", 9) == []
        assert not store.commit("r", change(last, last))
        assert add(store, record(1)) == Appended(1, 0)  # it begins anew
        assert (summary(store).vectors, summary(store).attempt, summary(store).pending) == (1, None, 1)

    def test_a_silent_run_that_is_not_folded_stays(self, store: Store) -> None:
        self.fill(store, 10)
        add(store, record(99))
        assert store.trim(Retention(days=30), time.time() + 40 * DAY).runs == 0
        assert summary(store).pending == 1

    def test_old_silences(self, store: Store) -> None:
        store.add_silence(SILENCE)
        store.add_silence(replace(SILENCE, id="s2", ends=9 + 2 * DAY))
        store.trim(Retention(days=1), 20 + DAY)
        assert [one.id for one in store.silences()] == ["s2"]

    def test_other_rules_fold_what_is_left(self, store: Store) -> None:
        def send(steps: range) -> None:
            losses = [math.nan if 20 <= step < 40 or 150 <= step < 170 or step > 210 else 0.5 for step in steps]
            pairs = zip(steps, losses, strict=True)
            add(store, *(record(step, **{"actor/pg_loss": loss, "kl": 0.1}) for step, loss in pairs))

        def fold() -> list[tuple[int, State]]:
            worker = Worker(store, Exposition(store))
            worker.start()
            worker.wake("r")
            assert worker.wait_idle(60)
            worker.stop(60)
            return [(alert.onset_step, alert.state) for alert in store.alerts("r", None, None, 9)]

        add(store, Record(RunConfig("grpo", "verl")))
        send(range(200))
        before = fold()
        assert [onset for onset, _ in before] == [150, 20]
        assert store.trim(Retention(entries=100), time.time()) == Trimmed(100, 0)
        last = positions(store)[-1]
        assert store.commit("r", Commit(last, last, "older rules", NOW))
        assert fold() == before
        assert summary(store).config.framework == "verl"
        send(range(200, 220))
        assert fold() == [(211, State.FIRING), *before]

    def test_a_rewrite_keeps_what_it_can_not_find_again(self, store: Store) -> None:
        at = self.fill(store, 10)
        gone, over, kept = (
            events(id="gone"),
            events(id="over", state=State.RESOLVED, resolved_step=3),
            events(id="kept"),
        )
        found = [*gone, *over, *kept]
        causes = [at[2], at[2], at[3], at[3], at[8], at[8]]
        assert store.commit("r", Commit(at[-1], at[-1], "v1", NOW, events=found, causes=causes))
        store.trim(Retention(entries=4), time.time())
        again = Commit(at[-1], at[-1], "v2", NOW, events=events(id="new"), causes=[at[9]] * 2, rewrite=True)
        assert store.commit("r", again)
        alerts = {one.id: one for one in store.alerts("r", None, None, 10)}
        assert set(alerts) == {"gone", "over", "new"}
        assert (alerts["gone"].state, alerts["gone"].reason, alerts["gone"].resolved_step) == (
            State.RESOLVED,
            "reconfigured",
            9,
        )
        assert alerts["over"].resolved_step == 3
        incidents = {one.id: one.state for one in store.incidents("r", None, None, 10)}
        assert incidents == {"gone": State.RESOLVED, "over": State.RESOLVED, "new": State.FIRING}
        assert summary(store).firing == {"warning": 1}
