"""What an Alertmanager is shown, as timelines: sends every 30 s, ends that are 120 s away."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tocsin_service.delivery.ledger import MOST_ENDED, RESOLVED_SECONDS, Ledger
from tocsin_service.firing import Labels

START = 1_700_000_000.0
KL = Labels("run", "kl_collapse", "critical", "actor/kl_loss", "i1")
WARNING = KL._replace(severity="warning")
OTHER = Labels("run", "gap", "warning", "step", "i2")


def message(labels: Labels) -> dict[str, Any]:
    return {"labels": labels._asdict()}


class Timeline:
    """A ledger and the Alertmanager that believes it; times are seconds since the start."""

    def __init__(self) -> None:
        self.ledger = Ledger(30.0)

    def fire(self, *firing: Labels) -> None:
        self.ledger.fire({labels: message(labels) for labels in firing})

    def end(self, at: float, *gone: Labels) -> None:
        self.ledger.end(gone, START + at)

    def send(self, at: float, wanted: Any = None, *, arrives: bool = True) -> dict[Labels, tuple[float, float]]:
        """What is sent: when it begins and ends."""
        found = {}
        for part in self.ledger.due(START + at, wanted):
            if arrives:
                self.ledger.sent(part, START + at)
            found |= {labels: (since(one["startsAt"]), since(one["endsAt"])) for labels, one in part.items()}
        self.ledger.forget(START + at)
        return found


def since(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() - START


def test_what_fires_is_sent_with_an_end_four_sends_away() -> None:
    line = Timeline()
    line.fire(KL)
    assert line.send(0) == {KL: (0, 120)}
    line.fire(KL, OTHER)
    assert line.send(30) == {KL: (0, 150), OTHER: (30, 150)}


def test_an_end_is_said_when_it_would_have_come_by_itself_and_for_five_minutes() -> None:
    line = Timeline()
    line.fire(KL)
    line.send(0)
    line.end(600, KL)
    line.end(610, KL)
    assert line.send(600) == line.send(719) == {}
    assert line.send(600, {KL}) == {KL: (0, 720)}  # to who asks, the end is known already
    assert line.send(720) == line.send(1020) == {KL: (0, 720)}
    assert line.send(720 + RESOLVED_SECONDS + 1) == {KL: (0, 720)}
    assert line.send(720 + RESOLVED_SECONDS + 2) == {}
    assert KL not in line.ledger


def test_what_was_over_before_it_was_shown_is_shown_first() -> None:
    line = Timeline()
    line.fire(KL)
    line.end(5, KL)
    assert line.send(5, arrives=False) == {KL: (5, 125)}
    assert line.send(7000, arrives=False) == {KL: (7000, 7120)}  # Alertmanager was away: its end waits for it
    assert line.send(7030) == {KL: (7030, 7150)}
    assert line.send(7060) == line.send(7149) == {}
    assert line.send(7150) == {KL: (7030, 7150)}


def test_an_end_that_does_not_arrive_is_said_until_it_does() -> None:
    line = Timeline()
    line.fire(KL)
    line.send(0)
    line.end(0, KL)
    assert line.send(5000, arrives=False) == line.send(90000) == {KL: (0, 120)}
    assert line.send(90000 + RESOLVED_SECONDS) == {KL: (0, 120)}


def test_what_fires_again_before_its_end_was_said_never_ended() -> None:
    line = Timeline()
    line.fire(KL)
    line.send(0)
    line.end(30, KL)
    line.fire(KL)
    assert line.send(60) == {KL: (0, 180)}
    line.end(90, KL)
    assert line.send(210) == {KL: (0, 210)}
    line.fire(KL)
    assert line.send(240) == {KL: (240, 360)}  # its end was said: it begins anew


def test_what_another_process_has_shown_ends_at_once() -> None:
    line = Timeline()
    line.ledger.end_shown({KL: message(KL)}, START)
    assert line.send(0) == {KL: (-120, 0)}
    line.fire(KL)
    line.ledger.end_shown({KL: message(KL)}, START + 31)  # what is known here is known better
    assert line.send(31) == {KL: (31, 151)}


def test_nothing_but_this_fires() -> None:
    line = Timeline()
    line.fire(WARNING, OTHER)
    line.send(0)
    line.fire(KL)
    line.ledger.keep([KL, OTHER], START + 30)
    assert line.send(30) == {KL: (30, 150), OTHER: (0, 150)}
    assert line.send(150)[WARNING] == (0, 150)
    assert line.ledger.of_incident("i1") == {KL, WARNING}
    line.ledger.clear()
    assert line.send(180) == {}


def test_a_clock_that_is_set_back_makes_no_end_before_the_beginning() -> None:
    line = Timeline()
    line.fire(KL)
    line.send(1000)
    assert line.send(0) == {KL: (1000, 1000)}


def test_what_inhibits_comes_before_what_it_inhibits_and_ends_after_it() -> None:
    line = Timeline()
    firing = [KL, KL._replace(severity="warning")]
    over = [KL._replace(incident="i2"), OTHER]
    line.fire(*firing, *over)
    line.send(0)
    line.end(0, *over)
    assert [list(part) for part in line.ledger.due(START + 120)] == [[over[1]], [firing[0]], [firing[1]], [over[0]]]


def test_ends_that_can_not_be_said_are_bounded() -> None:
    line = Timeline()
    many = [KL._replace(metric=str(number)) for number in range(MOST_ENDED + 5)]
    line.fire(*many)
    line.end(1, *many[5:])
    line.end(0, *many[:5])
    line.ledger.forget(START + 2)
    assert {labels in line.ledger for labels in many[:5]} == {False}
    assert many[5] in line.ledger


@given(st.lists(st.tuples(st.sampled_from(["fire", "end", "sent", "lost"]), st.integers(1, 200))))
def test_everything_is_shown_firing_and_ends_once_and_not_too_early(acts: list[tuple[str, int]]) -> None:
    line, now, firing, ended, told = Timeline(), 0, False, 0, list[bool]()  # told: whether it fires

    def send(*, arrives: bool) -> None:
        for starts, ends in line.send(now, arrives=arrives).values():
            assert starts <= ends
            assert ends == now + 120 if firing else ends > now or ends >= ended + 120
            if arrives:
                told.append(ends > now)

    for act, later in acts:
        now += later
        if act == "fire":
            line.fire(KL)
            firing = True
        elif act == "end":
            line.end(now, KL)
            firing, ended = False, now if firing else ended
        else:
            send(arrives=act == "sent")
    begun = KL in line.ledger
    firing, ended = False, now if firing else ended
    line.end(now, KL)
    for _ in range(20):
        send(arrives=True)
        now += 30
    if begun:
        assert True in told
        assert told[-1] is False
    assert line.send(now) == {}
