"""What follows from what the server tells: a pure function of what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from tocsin._guard import Mistake
from tocsin._watch import Steps, Watch, Wishes, rank_of

WISHES = Wishes(stop_on="critical", checkpoint_on="warning", watching=True)
STEPS = Steps(10, 20)


def incident(name: str, severity: str = "critical", opened: int = 15) -> dict[str, Any]:
    return {"id": name, "severity": severity, "opened_step": opened, "fired_step": opened}


def test_each_incident_acts_once() -> None:
    watch = Watch()
    assert [one["id"] for one in watch.see([incident("a")], STEPS, WISHES)] == ["a"]
    assert watch.stop is not None
    assert watch.take_checkpoint() is not None
    assert watch.see([incident("a")], STEPS, WISHES) == []
    assert watch.take_checkpoint() is None
    assert watch.see([incident("a"), incident("b")], STEPS, WISHES) == [incident("b")]
    assert watch.take_checkpoint() == incident("b")


def test_it_acts_when_it_becomes_severe_enough() -> None:
    watch = Watch()
    assert watch.see([incident("a", "info")], STEPS, WISHES) == []
    watch.see([incident("a", "warning")], STEPS, WISHES)
    assert watch.stop is None
    assert watch.take_checkpoint() is not None
    watch.see([incident("a", "critical")], STEPS, WISHES)
    assert watch.stop == incident("a", "critical")
    assert watch.take_checkpoint() is None  # it has had its one


def test_a_stop_stays_and_what_fires_does_not() -> None:
    watch = Watch()
    watch.see([incident("a")], STEPS, WISHES)
    assert watch.worst == rank_of("critical")
    assert watch.see([], STEPS, WISHES) == []
    assert watch.stop is not None
    assert watch.worst < rank_of("info")


@pytest.mark.parametrize("opened", [9, 21])
def test_what_this_process_cannot_have_caused_does_nothing(opened: int) -> None:
    watch = Watch()
    assert watch.see([incident("a", opened=opened)], STEPS, WISHES) == []
    assert watch.stop is None
    assert watch.worst == rank_of("critical")  # but it fires


def test_an_old_incident_acts_when_it_gets_worse() -> None:
    watch = Watch()
    watch.see([incident("a", "warning", opened=5)], STEPS, WISHES)
    assert watch.take_checkpoint() is None
    watch.see([incident("a", "critical", opened=5)], STEPS, WISHES)
    assert watch.stop is not None


def test_what_fired_before_the_first_vector_is_forgiven() -> None:
    watch = Watch()
    watch.forgive([incident("a")], [incident("x")])
    assert watch.see([incident("a")], STEPS, WISHES) == []
    assert watch.news([incident("x"), incident("y")], STEPS) == [incident("y")]


def test_steps_that_nobody_knows_may_have_caused_anything() -> None:
    watch = Watch()
    assert watch.see([incident("a", opened=0)], Steps(), WISHES)


def test_without_wishes_nothing_follows() -> None:
    watch = Watch()
    assert watch.see([incident("a")], STEPS, Wishes(watching=True)) == []
    assert watch.stop is None
    assert watch.take_checkpoint() is None


def test_alerts_are_told_once_and_again_when_they_escalate() -> None:
    watch = Watch()
    assert watch.news([incident("a", "warning")], STEPS) == [incident("a", "warning")]
    assert watch.news([incident("a", "warning")], STEPS) == []
    assert watch.news([incident("a", "critical")], STEPS) == [incident("a", "critical")]
    assert watch.news([incident("a", "warning")], STEPS) == []


def test_memory_is_bounded() -> None:
    watch = Watch()
    for number in range(12_000):
        watch.see([incident(str(number), "info")], STEPS, WISHES)
    assert len(watch._incidents) == 10_000


def test_steps_span_what_was_logged() -> None:
    steps = Steps().including(7).including(5).including(9)
    assert steps == Steps(5, 9)


def test_wishes_add_up_and_unknown_severities_are_refused() -> None:
    wishes = Wishes().updated("critical", None, None).updated(None, "warning", None)
    assert (wishes.stop_on, wishes.checkpoint_on, wishes.watching) == ("critical", "warning", True)
    with pytest.raises(Mistake, match="'fatal' is no severity; there are info, warning, critical"):
        Wishes().updated("fatal", None, None)
