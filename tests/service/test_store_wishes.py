"""What every store keeps of what people want: silences, acknowledgements, and who did what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.service.stores import (
    ACKNOWLEDGEMENT,
    ACT,
    NOW,
    SILENCE,
    TOLD,
    OpenStore,
    add,
    change,
    events,
    positions,
    record,
    taken,
)

from tocsin_detectors.alerts import IncidentEvent
from tocsin_service.store import Commit, Notification, Settlement, Store
from tocsin_service.store.redis import store as redis_store
from tocsin_service.store.sqlite import auditing


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


class TestSilences:
    def test_added_listed_and_replaced(self, store: Store) -> None:
        later = replace(SILENCE, id="s2", starts=6.0)
        store.add_silence(SILENCE)
        store.add_silence(later)
        assert store.silences() == [later, SILENCE]
        store.add_silence(replace(SILENCE, ends=20.0))
        assert store.silences() == [later, replace(SILENCE, ends=20.0)]

    def test_expired(self, store: Store) -> None:
        store.add_silence(SILENCE)
        assert store.expire_silence("s1", 7.0)
        assert store.expire_silence("s1", 8.0)
        assert store.silences() == [replace(SILENCE, ends=7.0)]
        assert not store.expire_silence("unknown", 7.0)


class TestAcknowledgements:
    def fire(self, store: Store, *ids: str, run: str = "r") -> None:
        """Incidents of which slack and the pager are to hear."""
        add(store, record(1), run=run)
        found = [event for name in ids for event in events(id=name, run=run)]
        wishes = [
            Notification(receiver, one.incident.id, one.id)
            for one in found
            if isinstance(one, IncidentEvent)
            for receiver in ("slack", "pager:a")
        ]
        assert store.commit(run, change(0, positions(store, run)[-1], found, notifications=wishes))

    def test_kept_by_incident(self, store: Store) -> None:
        self.fire(store, "i1", "i2")
        self.fire(store, "i3", run="ü")
        second = replace(ACKNOWLEDGEMENT, incident="i2", comment="")
        third = replace(ACKNOWLEDGEMENT, run="ü", incident="i3", author="ü\n")
        assert store.acknowledgements() == store.acknowledgements("r") == {}
        for one in (ACKNOWLEDGEMENT, second, third):
            assert store.acknowledge(one)
        assert store.acknowledgements() == {"i1": ACKNOWLEDGEMENT, "i2": second, "i3": third}
        assert store.acknowledgements("r") == {"i1": ACKNOWLEDGEMENT, "i2": second}
        assert store.acknowledgements("unknown") == {}

    def test_the_latest_counts(self, store: Store) -> None:
        self.fire(store, "i1")
        later = replace(ACKNOWLEDGEMENT, author="you", time=NOW + 9)
        assert store.acknowledge(ACKNOWLEDGEMENT)
        assert store.acknowledge(later)
        assert store.acknowledgements("r") == {"i1": later}

    def test_of_no_incident(self, store: Store) -> None:
        self.fire(store, "i1")
        add(store, record(1), run="s")
        for wrong in ({"incident": "a1"}, {"run": "s"}, {"run": "unknown"}):
            assert not store.acknowledge(replace(ACKNOWLEDGEMENT, **wrong))
        assert store.acknowledgements() == {}

    def test_those_who_were_told_hear_of_it(self, store: Store) -> None:
        self.fire(store, "i1", "i2")
        for _ in "12":
            store.settle(Settlement(taken(store), told=TOLD))
        store.settle(Settlement(taken(store, receiver="pager:a")))  # nothing was said
        store.settle(Settlement(taken(store, receiver="pager:a")))
        assert store.acknowledge(ACKNOWLEDGEMENT)
        assert store.pending_notifications() == 1
        assert store.next_due("slack") == ACKNOWLEDGEMENT.time
        claim = taken(store, ACKNOWLEDGEMENT.time)
        assert (claim.incident_id, claim.told, claim.acknowledged) == ("i1", TOLD, ACKNOWLEDGEMENT)

    def test_who_was_not_told_yet_hears_of_both(self, store: Store) -> None:
        self.fire(store, "i1")
        assert taken(store, receiver="pager:a").acknowledged is None
        assert store.acknowledge(ACKNOWLEDGEMENT)
        assert store.pending_notifications() == 2
        claim = taken(store)
        assert (claim.told, claim.news, claim.acknowledged) == (None, 1, ACKNOWLEDGEMENT)

    def test_it_does_not_wait_for_a_reminder(self, store: Store) -> None:
        self.fire(store, "i1")
        store.settle(Settlement(taken(store), told=TOLD, retry_at=NOW + 4 * 3600))
        assert store.acknowledge(ACKNOWLEDGEMENT)
        assert store.next_due("slack") == ACKNOWLEDGEMENT.time

    def test_it_does_not_shorten_a_backoff(self, store: Store) -> None:
        self.fire(store, "i1")
        store.settle(Settlement(taken(store), told=TOLD, retry_at=NOW + 300, error="HTTP 500"))
        assert store.acknowledge(ACKNOWLEDGEMENT)
        assert store.next_due("slack") == NOW + 300

    def test_it_outlives_a_change_of_rules(self, store: Store) -> None:
        self.fire(store, "i1")
        store.acknowledge(ACKNOWLEDGEMENT)
        at = positions(store)[-1]
        assert store.commit("r", Commit(at, at, "v2", NOW, rewrite=True))
        assert store.incident("r", "i1") is None
        assert not store.acknowledge(replace(ACKNOWLEDGEMENT, author="you"))
        found = events()
        assert store.commit("r", Commit(at, at, "v2", NOW, found, [], [Notification("pager:b", "i1", found[1].id)]))
        assert store.acknowledgements("r") == {"i1": ACKNOWLEDGEMENT}
        assert taken(store).acknowledged == ACKNOWLEDGEMENT


class TestAudit:
    def test_latest_first(self, store: Store) -> None:
        assert store.acts(9) == []
        acts = [replace(ACT, time=NOW - number, subject=str(number)) for number in range(5)]
        for act in acts:
            store.record(act)
        assert store.acts(9) == acts[::-1]
        assert store.acts(2) == [acts[4], acts[3]]

    def test_the_same_twice_is_two_acts(self, store: Store) -> None:
        store.record(ACT)
        store.record(ACT)
        assert store.acts(9) == [ACT, ACT]

    def test_the_oldest_go(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (auditing, redis_store):
            monkeypatch.setattr(module, "MOST_ACTS", 3)
        for number in range(7):
            store.record(replace(ACT, subject=str(number)))
        assert [act.subject for act in store.acts(9)] == ["6", "5", "4"]
