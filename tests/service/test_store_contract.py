"""The contract: what every store promises, asked of each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.service.stores import (
    ACKNOWLEDGEMENT,
    ACT,
    INCIDENT,
    NOW,
    SILENCE,
    OpenStore,
    add,
    change,
    events,
    positions,
    record,
    summary,
)

from tocsin_detectors.alerts import IncidentEvent, Severity, State, Transition
from tocsin_detectors.entries import Rebaseline, RunConfig, StepVector
from tocsin_service.store import (
    Appended,
    Progress,
    Record,
    Store,
    StoreUnavailable,
    TooManyRuns,
)

BOTH = replace(INCIDENT, members=("b", "a1"))


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


class TestLog:
    def test_entries_come_back_in_order(self, store: Store) -> None:
        entries = [
            StepVector(1, {"a": math.inf, "b": -0.0, "ü\n": 1e-300}, NOW, 2),
            RunConfig(algorithm="grpo", group_size=8, labels={"team": "α"}),
            Rebaseline("loss", "on purpose"),
        ]
        assert add(store, *map(Record, entries)) == Appended(3, 0)
        stored = store.read("r", 0, 10)
        assert [one.entry for one in stored] == entries
        first, second, third = (one.position for one in stored)
        assert 0 < first < second < third
        assert store.read("r", first, 1) == stored[1:2]
        assert store.read("r", third, 10) == []
        assert store.read("other", 0, 10) == []

    def test_many_entries_some_of_which_are_known(self, store: Store) -> None:
        known = [record(step, key=str(step)) for step in range(0, 250, 2)]
        assert add(store, *known) == Appended(125, 0)
        mixed = [record(step, key=str(step)) for step in range(250)]
        assert add(store, *mixed, Record(RunConfig("grpo")), mixed[1], record(250)) == Appended(127, 126)
        stored = store.read("r", 0, 1000)
        steps = [one.entry.step for one in stored if isinstance(one.entry, StepVector)]
        assert steps == [*range(0, 250, 2), *range(1, 250, 2), 250]
        assert stored[-2].entry == RunConfig("grpo")
        assert (summary(store).pending, summary(store).vectors, summary(store).step) == (252, 251, 250)

    def test_nan_survives(self, store: Store) -> None:
        add(store, record(1, loss=math.nan))
        (stored,) = store.read("r", 0, 10)
        assert isinstance(stored.entry, StepVector)
        assert math.isnan(stored.entry.metrics["loss"])

    def test_a_known_key_is_not_stored_again(self, store: Store) -> None:
        assert add(store, record(1), record(2), record(1)) == Appended(2, 1)
        assert add(store, record(2), record(3)) == Appended(1, 1)
        assert len(store.read("r", 0, 10)) == 3
        assert add(store, record(1), run="s") == Appended(1, 0)
        assert (summary(store).vectors, summary(store).step) == (3, 3)

    def test_a_configuration_that_changes_nothing_is_not_stored(self, store: Store) -> None:
        grpo = Record(RunConfig(algorithm="grpo", temperature=1.0))
        assert add(store, grpo, grpo) == Appended(1, 1)
        assert add(store, grpo) == Appended(0, 1)
        assert add(store, Record(RunConfig(temperature=1))) == Appended(0, 1)
        assert add(store, Record(RunConfig())) == Appended(0, 1)
        assert add(store, Record(RunConfig(framework="trl", labels={"a": "1"}))) == Appended(1, 0)
        assert add(store, Record(RunConfig(labels={"b": "2"}))) == Appended(1, 0)
        expected = RunConfig(algorithm="grpo", temperature=1.0, framework="trl", labels={"a": "1", "b": "2"})
        assert summary(store).config == expected

    def test_a_vector_takes_back_that_a_run_has_finished(self, store: Store) -> None:
        add(store, record(1), Record(RunConfig("grpo", finished=True)))
        assert summary(store).config == RunConfig("grpo", finished=True)
        add(store, record(1))  # known already: says nothing
        assert summary(store).config.finished
        add(store, record(2))
        assert summary(store).config == RunConfig("grpo")

    def test_bound_of_runs(self, store: Store) -> None:
        for run in "abc":
            add(store, record(1), run=run)
        with pytest.raises(TooManyRuns, match="max_runs"):
            add(store, record(1), run="d")
        assert store.run("d") is None
        assert add(store, record(2), run="a") == Appended(1, 0)
        usage = store.usage()
        assert usage.runs == usage.most_runs == store.count_runs() == 3

    def test_many_at_once_are_all_stored(self, store: Store) -> None:
        futures = [store.append("r", [record(step)], NOW) for step in range(1000)]
        assert sum(future.result(30).accepted for future in futures) == 1000
        stored = store.read("r", 0, 2000)
        assert [one.entry for one in stored] == [record(step).entry for step in range(1000)]
        assert sorted({one.position for one in stored}) == [one.position for one in stored]

    def test_one_bad_append_harms_no_other_of_its_group(self, store: Store) -> None:
        futures = [store.append(run, [record(1)], NOW) for run in ("a", "\ud800", "b")]
        assert futures[0].result(30) == futures[2].result(30) == Appended(1, 0)
        with pytest.raises(UnicodeEncodeError):
            futures[1].result(30)

    def test_seek(self, store: Store) -> None:
        add(store, *(record(step) for step in (10, 20, 30, 20, 40)))

        def found(after: int | None, last: int = 2) -> list[int]:
            entries = [one.entry for one in store.read("r", store.seek("r", after, last), 10)]
            return [entry.step for entry in entries if isinstance(entry, StepVector)]

        assert found(0) == [10, 20, 30, 40]
        assert found(10) == found(19) == [20, 30, 40]
        assert found(30) == [40]
        assert found(40) == []
        assert found(None) == [30, 40]
        assert found(None, 9) == [10, 20, 30, 40]
        assert store.seek("unknown", None, 9) == store.seek("unknown", 1, 9) == 0

    def test_seek_in_a_long_log(self, store: Store) -> None:
        steps = [*range(300), *range(100, 400)]  # the trainer was restarted
        add(store, *(record(step, f"k{number}") for number, step in enumerate(steps)))
        for after in (0, 62, 63, 64, 98, 99, 150, 299, 300, 398):
            (first, *_) = store.read("r", store.seek("r", after, 0), 1)
            assert isinstance(first.entry, StepVector)
            assert first.entry.step == after + 1
        assert store.read("r", store.seek("r", 399, 0), 1) == []
        assert len(store.read("r", store.seek("r", None, 299), 1000)) == 299

    def test_recent_times(self, store: Store) -> None:
        add(store, *(record(step) for step in (1, 2, 3)), Record(StepVector(4, {}, None), "timeless"))
        assert store.recent_times("r", 2) == [(3, NOW + 3), (2, NOW + 2)]
        add(store, *(record(step) for step in range(10, 110)))
        assert [step for step, _ in store.recent_times("r", 64)] == list(range(109, 45, -1))


class TestRuns:
    def test_what_a_run_looks_like(self, store: Store) -> None:
        add(store, record(7), record(5), Record(RunConfig("grpo")), now=NOW + 5)
        found = summary(store)
        assert (found.run, found.created, found.last_seen, found.step) == ("r", NOW + 5, NOW + 5, 5)
        assert (found.vectors, found.attempt, found.firing, found.pending, found.error) == (2, None, {}, 3, None)

    def test_a_repetition_is_no_sign_of_life(self, store: Store) -> None:
        add(store, record(1))
        add(store, record(1), now=NOW + 99)
        assert summary(store).last_seen == NOW

    def test_those_heard_of_last_come_first(self, store: Store) -> None:
        add(store, Record(RunConfig("grpo")), run="silent", now=NOW + 9)
        add(store, record(1), run="a", now=NOW + 1)
        add(store, record(1), run="b", now=NOW + 2)
        assert [one.run for one in store.runs(10)] == ["b", "a", "silent"]
        assert summary(store, "silent").last_seen is None
        add(store, record(2), run="a", now=NOW + 3)
        assert [one.run for one in store.runs(2)] == ["a", "b"]

    def test_pending_counts_what_is_not_folded(self, store: Store) -> None:
        add(store, *(record(step) for step in range(5)))
        at = positions(store)
        assert store.commit("r", change(0, at[2]))
        assert summary(store).pending == 3
        assert store.commit("r", change(at[2], at[3]))
        add(store, record(9))
        assert summary(store).pending == 3
        assert store.commit("r", change(at[3], positions(store)[-1]))
        assert summary(store).pending == 0


class TestCommit:
    def test_news_until_committed(self, store: Store) -> None:
        add(store, record(1), record(2))
        assert store.news() == ["r"]
        assert store.news(lambda run: run != "r") == []
        last = positions(store)[-1]
        assert store.commit("r", change(0, last))
        assert store.news() == []
        assert store.load("r") == Progress(last, "v1", None)
        assert store.load("unknown") == Progress()

    def test_a_second_commit_from_the_same_position_is_refused(self, store: Store) -> None:
        add(store, record(1), record(2))
        _, first, second = positions(store)
        assert store.commit("r", change(0, first, events(), state={"n": 1}))
        late = change(0, second, events(id="x"), state={"n": 2}, error="oops", attempt=7)
        assert not store.commit("r", late)
        assert not store.commit("unknown", late)
        progress = store.load("r")
        assert progress.position == first
        assert progress.snapshot is not None
        assert progress.snapshot.state == {"n": 1}
        assert [one.id for one in store.alerts("r", None, None, 10)] == ["a1"]
        assert (summary(store).error, summary(store).attempt) == (None, None)
        assert store.pending_notifications() == 1

    def test_several_runs_at_once_each_for_itself(self, store: Store) -> None:
        for run in "abc":
            add(store, record(1), run=run)
        ends = [positions(store, run)[-1] for run in "abc"]
        elsewhere, broken = change(ends[0], ends[0]), change(0, ends[1], state={"of": object()})
        good = change(0, ends[2], state={"of": "c"})
        refused, failed, stored = store.commit_all([("a", elsewhere), ("b", broken), ("c", good)])
        assert (refused, stored) == (False, True)
        assert isinstance(failed, TypeError)
        assert [store.load(run).position for run in "abc"] == [0, 0, ends[2]]
        assert store.commit_all([]) == []

    def test_nothing_beyond_the_log_can_be_committed(self, store: Store) -> None:
        add(store, record(1))
        assert not store.commit("r", change(0, positions(store)[-1] + 1))

    def test_beside_the_fold_the_position_stays(self, store: Store) -> None:
        add(store, record(1), record(2))
        first = positions(store)[1]
        store.commit("r", change(0, first))
        assert store.commit("r", change(first, first, events()))
        assert store.load("r").position == first
        assert summary(store).pending == 1

    def test_an_older_snapshot_stays_until_there_is_a_newer(self, store: Store) -> None:
        add(store, record(1), record(2))
        _, first, second = positions(store)
        store.commit("r", change(0, first, state={"n": [1, 0.1, "NaN"]}))
        store.commit("r", change(first, second))
        progress = store.load("r")
        assert progress.snapshot is not None
        assert (progress.position, progress.snapshot.position) == (second, first)
        assert progress.snapshot.state == {"n": [1, 0.1, "NaN"]}
        assert progress.snapshot.version == "v1"

    def test_a_view_that_is_older_than_the_configuration_does_not_hide_it(self, store: Store) -> None:
        add(store, Record(RunConfig(algorithm="grpo")))
        add(store, Record(RunConfig(framework="trl")))
        at = positions(store)
        for number, engine_saw, expected in [
            (1, RunConfig("grpo", profile="moe"), RunConfig("grpo", "trl")),
            (2, RunConfig("grpo", "trl", profile="moe"), RunConfig("grpo", "trl", profile="moe")),
        ]:
            assert store.commit("r", change(at[number - 1], at[number], config=engine_saw))
            assert summary(store).config == expected
        add(store, Record(RunConfig(group_size=8)))
        assert summary(store).config == RunConfig("grpo", "trl", group_size=8)

    def test_alerts_keep_their_latest_form(self, store: Store) -> None:
        add(store, record(1), record(2))
        _, first, second = positions(store)
        store.commit("r", change(0, first, events()))
        store.commit("r", change(first, second, events(Transition.RESOLVED, state=State.RESOLVED, resolved_step=9)))
        (alert,) = store.alerts("r", State.RESOLVED, None, 10)
        assert (alert.resolved_step, math.isnan(alert.evidence.value)) == (9, True)
        (incident,) = store.incidents(None, None, None, 10)
        assert incident.resolved_step == 9
        assert store.alerts("r", State.FIRING, None, 10) == store.alerts(None, State.FIRING, None, 10) == []
        assert summary(store).firing == {}

    def test_filters(self, store: Store) -> None:
        add(store, record(1))
        add(store, record(1), run="s")
        store.commit("r", change(0, positions(store)[1], events() + events(id="a2", severity=Severity.CRITICAL)))
        store.commit("s", change(0, positions(store, "s")[1], events(id="a3", run="s")))
        assert [one.id for one in store.alerts(None, None, None, 10)] == ["a3", "a2", "a1"]
        assert [one.id for one in store.alerts(None, State.FIRING, Severity.WARNING, 10)] == ["a3", "a1"]
        assert [one.id for one in store.alerts("r", State.FIRING, Severity.CRITICAL, 10)] == ["a2"]
        assert [one.id for one in store.alerts("r", None, None, 10)] == ["a2", "a1"]
        assert [one.id for one in store.incidents(None, None, None, 1)] == ["a3"]
        assert store.alerts("unknown", None, None, 10) == []
        assert summary(store).firing == {"critical": 1, "warning": 1}

    def test_one_incident(self, store: Store) -> None:
        add(store, record(1))
        add(store, record(1), run="s")
        found = events() + events(id="b") + [IncidentEvent(Transition.GREW, BOTH, 2, NOW)]
        store.commit("r", change(0, positions(store)[1], found))
        incident = store.incident("r", "i1")
        assert incident is not None
        assert (incident[0], [alert.id for alert in incident[1]]) == (BOTH, ["b", "a1"])
        assert store.incident("r", "a1") is store.incident("s", "i1") is store.incident("unknown", "i1") is None

    def test_order_is_that_of_the_first_event(self, store: Store) -> None:
        add(store, record(1), record(2))
        _, first, second = positions(store)
        store.commit("r", change(0, first, events() + events(id="a2")))
        store.commit("r", change(first, second, events(Transition.ESCALATED, severity=Severity.CRITICAL)))
        assert [one.id for one in store.alerts(None, None, None, 10)] == ["a2", "a1"]

    def test_rewriting_forgets_what_was_found_before(self, store: Store) -> None:
        add(store, record(1))
        last = positions(store)[-1]
        store.commit("r", change(0, last, events()))
        assert store.commit("r", change(last, last, events(id="b"), notifications=(), rewrite=True))
        assert [one.id for one in store.alerts("r", None, None, 10)] == ["b"]
        assert [one.id for one in store.alerts(None, None, None, 10)] == ["b"]
        assert [one.id for one in store.incidents("r", None, None, 10)] == ["b"]
        assert summary(store).firing == {"warning": 1}
        assert store.pending_notifications() == 1
        claim = store.claim("slack", NOW, 60)
        assert claim is not None
        assert claim.incident is None

    def test_everything_is_there_after_reopening(self, open_store: OpenStore) -> None:
        first = open_store()
        add(first, record(1))
        at = positions(first)[-1]
        first.commit("r", change(0, at, events(), state={"n": 1}, attempt=2, error="oops"))
        first.add_silence(SILENCE)
        assert first.acknowledge(ACKNOWLEDGEMENT)
        first.record(ACT)
        first.close()
        first.close()
        second = open_store()
        found = summary(second)
        assert (found.attempt, found.error, found.vectors, found.pending) == (2, "oops", 1, 0)
        assert second.load("r").snapshot is not None
        assert second.pending_notifications() == 1
        assert second.silences() == [SILENCE]
        assert second.acknowledgements() == {"i1": ACKNOWLEDGEMENT}
        assert second.acts(9) == [ACT]
        assert add(second, record(1)) == Appended(0, 1)

    def test_a_closed_store_stores_nothing(self, store: Store) -> None:
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.append("r", [record(1)], NOW)
        calls: list[Callable[[], object]] = [
            store.check,
            store.count_runs,
            store.silences,
            store.acknowledgements,
            store.usage,
            lambda: store.commit("r", change(0, 0)),
            lambda: store.acknowledge(ACKNOWLEDGEMENT),
            lambda: store.incident("r", "i1"),
            lambda: store.record(ACT),
            lambda: store.acts(1),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="closed"):
                call()


class TestUsage:
    def test_it_grows(self, store: Store) -> None:
        before = store.usage()
        add(store, *(record(step) for step in range(3000)))
        after = store.usage()
        assert after.used > before.used > 0
        assert (before.runs, after.runs) == (0, 1)
        assert after.most_runs == before.most_runs > 1
