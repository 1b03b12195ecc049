"""The outbox of every store: claims, how they end, and when a notification is due again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.service.stores import INCIDENT, NOW, TOLD, OpenStore, add, change, events, positions, record, taken

from tocsin_detectors.alerts import Event, Severity, State, Transition
from tocsin_detectors.entries import RunConfig
from tocsin_service.store import Claim, Notification, Record, Settlement, Store, Told
from tocsin_service.store.encoding import told_from_text, told_text

HOUR = 3600.0


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    return open_store()


class TestOutbox:
    def commit(self, store: Store, *batches: list[Event]) -> None:
        add(store, *(record(step) for step in range(len(batches))))
        at = positions(store)
        for number, batch in enumerate(batches):
            assert store.commit("r", change(at[number], at[number + 1], batch))

    def test_a_claim_is_for_one(self, store: Store) -> None:
        add(store, Record(RunConfig("grpo")))
        assert store.commit("r", change(0, positions(store)[-1], events()))
        claim = taken(store)
        assert (claim.incident, [alert.id for alert in claim.alerts], claim.told) == (INCIDENT, ["a1"], None)
        assert (claim.receiver, claim.incident_id, claim.tries, claim.config) == ("slack", "i1", 0, RunConfig("grpo"))
        assert (claim.acknowledged, claim.error) == (None, None)
        assert store.claim("slack", NOW + 59, 60) is None
        assert store.claim("pager", NOW, 60) is None
        assert not claim.interrupted
        again = taken(store, NOW + 60)  # its sender must have died
        assert again.interrupted
        assert replace(again, interrupted=False, alerts=()) == replace(claim, alerts=())

    def test_not_before_it_is_due(self, store: Store) -> None:
        self.commit(store, events())
        assert store.next_due("slack") == NOW
        assert store.claim("slack", NOW - 1, 60) is None

    def test_the_one_due_longest_first(self, store: Store) -> None:
        add(store, record(1), record(2))
        _, first, second = positions(store)
        store.commit("r", replace(change(0, first, events(id="late")), time=NOW + 5))
        store.commit("r", replace(change(first, second, events(id="early")), time=NOW + 1))
        claims = [store.claim("slack", NOW + 9, 60) for _ in range(3)]
        assert [claim and claim.incident_id for claim in claims] == ["early", "late", None]

    def test_every_receiver_has_its_own(self, store: Store) -> None:
        add(store, record(1))
        found = events()
        wishes = [Notification(receiver, "i1", found[1].id) for receiver in ("slack", "pager:a")]
        store.commit("r", change(0, positions(store)[-1], found, notifications=wishes))
        assert store.pending_notifications() == 2
        claim = taken(store, receiver="pager:a")
        store.settle(Settlement(claim))
        assert store.next_due("pager:a") is None
        assert store.next_due("slack") == NOW

    def test_settled(self, store: Store) -> None:
        self.commit(store, events())
        claim = taken(store)
        store.settle(Settlement(claim, told=TOLD))
        assert store.pending_notifications() == 0
        assert store.next_due("slack") is None
        assert store.claim("slack", NOW + 999, 60) is None

    def test_again_later(self, store: Store) -> None:
        self.commit(store, events())
        claim = taken(store)
        store.settle(Settlement(claim, retry_at=NOW + 5, error="HTTP 500"))
        assert store.next_due("slack") == NOW + 5
        again = taken(store, NOW + 5)
        assert (again.tries, again.error) == (1, "HTTP 500")
        store.settle(Settlement(again))
        assert store.pending_notifications() == 0

    @pytest.mark.parametrize("ending", [{}, {"told": TOLD}, {"retry_at": NOW + 9}, {"error": "HTTP 500"}])
    def test_who_says_how_it_ended_was_not_interrupted(self, store: Store, ending: dict[str, Any]) -> None:
        self.commit(store, events())
        taken(store)
        store.settle(Settlement(taken(store, NOW + 60), **ending))
        at = positions(store)[-1]
        assert store.commit("r", change(at, at, events(Transition.ESCALATED, severity=Severity.CRITICAL)))
        assert not taken(store, NOW + 61).interrupted

    def test_news_during_a_claim_are_not_lost(self, store: Store) -> None:
        worse = events(Transition.ESCALATED, severity=Severity.CRITICAL)
        add(store, record(1), record(2))
        _, first, second = positions(store)
        store.commit("r", change(0, first, events()))
        claim = taken(store)
        store.commit("r", change(first, second, worse))
        assert store.claim("slack", NOW, 60) is None  # one message at a time
        store.settle(Settlement(claim, told=TOLD))
        late = taken(store)
        assert (late.told, late.tries) == (TOLD, 0)
        assert late.incident is not None
        assert late.incident.severity is Severity.CRITICAL

    def test_several_news_are_one_notification(self, store: Store) -> None:
        self.commit(store, events(), events(Transition.ESCALATED, severity=Severity.CRITICAL))
        assert store.pending_notifications() == 1

    def test_known_events_notify_nobody(self, store: Store) -> None:
        self.commit(store, events())
        claim = taken(store)
        store.settle(Settlement(claim, told=TOLD))
        add(store, record(7))
        _, first, second = positions(store)
        assert store.commit("r", change(first, second, events()))
        assert store.pending_notifications() == 0


class TestDueAgain:
    """What is told and comes again, what is put off, and what failed; and news in each of these."""

    def open(self, store: Store) -> Claim:
        """The claim of an incident that has just begun."""
        add(store, record(1))
        assert store.commit("r", change(0, positions(store)[-1], events()))
        return taken(store)

    def worsen(self, store: Store, now: float, severity: Severity = Severity.CRITICAL) -> None:
        """News of the incident."""
        at = positions(store)[-1]
        found = events(Transition.ESCALATED, severity=severity)
        assert store.commit("r", replace(change(at, at, found), time=now))

    def test_a_reminder(self, store: Store) -> None:
        told = replace(TOLD, thread="17.5", acknowledged=True)
        store.settle(Settlement(self.open(store), told=told, retry_at=NOW + 4 * HOUR))
        assert store.next_due("slack") == NOW + 4 * HOUR
        assert store.pending_notifications() == 0  # nobody waits for the receiver
        assert store.claim("slack", NOW + 4 * HOUR - 1, 60) is None
        claim = taken(store, NOW + 4 * HOUR)
        assert (claim.told, claim.tries, claim.error) == (told, 0, None)
        assert store.pending_notifications() == 1
        again = replace(told, time=NOW + 4 * HOUR)
        store.settle(Settlement(claim, told=again, retry_at=NOW + 8 * HOUR))
        claim = taken(store, NOW + 8 * HOUR)
        assert claim.told == again
        store.settle(Settlement(claim))
        assert (store.next_due("slack"), store.pending_notifications()) == (None, 0)

    def test_news_do_not_wait_for_a_reminder(self, store: Store) -> None:
        store.settle(Settlement(self.open(store), told=TOLD, retry_at=NOW + 4 * HOUR))
        self.worsen(store, NOW + 7)
        assert (store.next_due("slack"), store.pending_notifications()) == (NOW + 7, 1)
        claim = taken(store, NOW + 7)
        store.settle(Settlement(claim, told=TOLD))
        assert (store.next_due("slack"), store.pending_notifications()) == (None, 0)

    def test_news_while_it_is_told_do_not_wait_for_a_reminder(self, store: Store) -> None:
        claim = self.open(store)
        self.worsen(store, NOW + 7)
        assert store.next_due("slack") == NOW + 60  # the end of the lease
        store.settle(Settlement(claim, told=TOLD, retry_at=NOW + 4 * HOUR))
        late = taken(store, NOW + 8)
        assert late.told == TOLD
        assert late.incident is not None
        assert late.incident.severity is Severity.CRITICAL
        store.settle(Settlement(late, told=TOLD, retry_at=NOW + 4 * HOUR))
        assert store.next_due("slack") == NOW + 4 * HOUR

    def test_put_off(self, store: Store) -> None:
        claim = self.open(store)
        for number in range(3):
            store.settle(Settlement(claim, retry_at=NOW + (number + 1) * HOUR))
            assert (store.next_due("slack"), store.pending_notifications()) == (NOW + (number + 1) * HOUR, 0)
            claim = taken(store, NOW + (number + 1) * HOUR)
            assert (claim.told, claim.tries, claim.error) == (None, 0, None)
        store.settle(Settlement(claim, told=TOLD))
        assert (store.next_due("slack"), store.pending_notifications()) == (None, 0)

    def test_news_of_what_is_put_off_are_looked_at_at_once(self, store: Store) -> None:
        store.settle(Settlement(self.open(store), retry_at=NOW + HOUR))
        self.worsen(store, NOW + 7)
        assert (store.next_due("slack"), store.pending_notifications()) == (NOW + 7, 1)

    def test_news_while_it_is_put_off_are_looked_at_at_once(self, store: Store) -> None:
        claim = self.open(store)
        self.worsen(store, NOW + 7)
        store.settle(Settlement(claim, retry_at=NOW + HOUR))
        assert taken(store, NOW + 8).news > claim.news

    def test_a_backoff_is_not_shortened_by_news(self, store: Store) -> None:
        claim = self.open(store)
        self.worsen(store, NOW + 1)  # before it has failed
        store.settle(Settlement(claim, retry_at=NOW + 300, error="HTTP 500"))
        self.worsen(store, NOW + 2, Severity.INFO)  # and afterwards
        assert (store.next_due("slack"), store.pending_notifications()) == (NOW + 300, 1)

    def test_what_is_put_off_after_a_failure_keeps_its_tries(self, store: Store) -> None:
        store.settle(Settlement(self.open(store), retry_at=NOW + 5, error="HTTP 500"))
        store.settle(Settlement(taken(store, NOW + 5), retry_at=NOW + 9, error="HTTP 502"))
        store.settle(Settlement(taken(store, NOW + 9), retry_at=NOW + HOUR))
        self.worsen(store, NOW + 10)
        claim = taken(store, NOW + 10)  # it backs off no more
        assert (claim.tries, claim.error) == (2, "HTTP 502")
        store.settle(Settlement(claim, told=TOLD, retry_at=NOW + HOUR))
        claim = taken(store, NOW + HOUR)
        assert (claim.tries, claim.error) == (0, None)

    def test_a_failure_for_good_is_a_try(self, store: Store) -> None:
        store.settle(Settlement(self.open(store), error="HTTP 404"))
        assert (store.next_due("slack"), store.pending_notifications()) == (None, 0)
        self.worsen(store, NOW + 7)
        claim = taken(store, NOW + 7)
        assert (claim.told, claim.tries, claim.error) == (None, 1, "HTTP 404")
        store.settle(Settlement(claim))
        self.worsen(store, NOW + 9, Severity.INFO)
        claim = taken(store, NOW + 9)
        assert (claim.tries, claim.error) == (0, None)

    def test_told_in_spite_of_an_error(self, store: Store) -> None:
        store.settle(Settlement(self.open(store), told=TOLD, retry_at=NOW + 5, error="no picture"))
        self.worsen(store, NOW + 1)
        claim = taken(store, NOW + 5)
        assert (claim.told, claim.tries, claim.error) == (TOLD, 1, "no picture")

    def test_whoever_comes_back_after_his_lease_changes_nothing(self, store: Store) -> None:
        slow = self.open(store)
        self.worsen(store, NOW + 1)
        quick = taken(store, NOW + 60)
        worse = replace(TOLD, severity=Severity.CRITICAL)
        store.settle(Settlement(quick, told=worse, retry_at=NOW + HOUR))
        for late in (
            Settlement(slow, told=TOLD),
            Settlement(slow, told=TOLD, retry_at=NOW + 90),
            Settlement(slow, retry_at=NOW + 90),
            Settlement(slow, retry_at=NOW + 90, error="HTTP 500"),
            Settlement(slow, error="HTTP 404"),
            Settlement(slow),
            Settlement(quick, told=TOLD),
        ):
            store.settle(late)
            assert (store.next_due("slack"), store.pending_notifications()) == (NOW + HOUR, 0)
        claim = taken(store, NOW + HOUR)
        assert (claim.told, claim.tries, claim.error) == (worse, 0, None)

    def test_the_latest_of_two_senders_decides(self, store: Store) -> None:
        slow = self.open(store)
        quick = taken(store, NOW + 60)
        store.settle(Settlement(slow, retry_at=NOW + HOUR))
        store.settle(Settlement(quick, retry_at=NOW + 300, error="HTTP 500"))
        self.worsen(store, NOW + 61)
        assert (store.next_due("slack"), store.pending_notifications()) == (NOW + 300, 1)

    def test_the_resolution_of_what_was_told_is_due_at_once(self, store: Store) -> None:
        store.settle(Settlement(self.open(store), told=TOLD, retry_at=NOW + 4 * HOUR))
        at = positions(store)[-1]
        over = events(Transition.RESOLVED, state=State.RESOLVED, resolved_step=9)
        assert store.commit("r", replace(change(at, at, over), time=NOW + 7))
        claim = taken(store, NOW + 7)
        assert claim.incident is not None
        assert (claim.incident.state, claim.told) == (State.RESOLVED, TOLD)


class TestTexts:
    @pytest.mark.parametrize("told", [TOLD, replace(TOLD, thread="17.5 ü", acknowledged=True)])
    def test_there_and_back(self, told: Told) -> None:
        assert told_from_text(told_text(told)) == told

    def test_what_an_older_tocsin_has_written(self) -> None:
        assert told_from_text('["kl_spike","critical","firing",1.5]') == Told(
            "kl_spike", Severity.CRITICAL, State.FIRING, 1.5
        )
