"""Runs that fall silent: told of once, by the clock, and over when they speak again or say that they have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tocsin
from tocsin_detectors.alerts import Alert, State
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_detectors.rules import RuleSet, shipped_rules
from tocsin_service.exposition import Exposition
from tocsin_service.judging import stalled
from tocsin_service.judging.stalled import LEAST_PATIENCE, Watchdog, patience
from tocsin_service.judging.worker import Worker
from tocsin_service.presentation import Presentation
from tocsin_service.store import Record
from tocsin_service.store.sqlite import SqliteStore

START = 1.7e9


class House:
    """A store, its worker and its watchdog, with a clock that the test moves."""

    def __init__(self, path: Path) -> None:
        self.now = START
        self.store = SqliteStore(path / "tocsin.db")
        self.woken = 0
        self.worker = Worker(self.store, Exposition(self.store), ("slack",), None, self.wake, lambda: self.now)
        self.worker.start()
        self.watchdog = self.watch()

    def watch(self, rules: RuleSet | None = None, serves: Callable[[str], bool] | None = None) -> Watchdog:
        return Watchdog(self.store, ("slack",), self.wake, lambda: self.now, rules, serves)

    def wake(self) -> None:
        self.woken += 1

    def log(self, *entries: StepVector | RunConfig, run: str = "run") -> None:
        self.store.append(run, [Record(entry) for entry in entries], self.now).result(30)
        self.worker.wake(run)
        assert self.worker.wait_idle(30)

    def train(self, steps: range, every: float = 60.0) -> None:
        for step in steps:
            self.now += every
            self.log(StepVector(step, {"actor/grad_norm": 1.0}, self.now))

    def look(self, later: float) -> list[Alert]:
        """What fires after a look ``later`` seconds from now."""
        self.now += later
        self.watchdog.look()
        return self.store.alerts("run", State.FIRING, None, 100)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    built = House(tmp_path)
    yield built
    built.worker.stop(10)
    built.store.close()


def test_silence_is_told_of_once_and_ends_with_the_next_vector(house: House) -> None:
    house.train(range(20))
    assert not house.look(599)  # ten usual steps are 600 s
    [alert] = house.look(2)
    assert (alert.rule, alert.severity, alert.onset_step) == ("run_stalled", "critical", 19)
    assert "nothing for 601 s after step 19" in alert.evidence.detail
    told = Presentation("zh").alert(alert)
    assert told["evidence"]["detail"] == "第 19 步之后已有 601 秒没有数据；按该训练的节奏，最多允许 600 秒"
    assert told["summary"] == f"run_stalled（critical），第 19 步之后：{told['evidence']['detail']}"
    assert house.look(3600) == [alert]
    [incident] = house.store.incidents("run", State.FIRING, None, 100)
    assert (incident.rule, incident.members, house.woken) == ("run_stalled", (alert.id,), 1)
    house.train(range(20, 22))
    assert not house.look(0)
    [over] = house.store.alerts("run", State.RESOLVED, None, 100)
    assert (over.id, over.reason) == (alert.id, "recovered")
    assert not house.store.incidents("run", State.FIRING, None, 100)


def test_a_run_that_has_ended_is_missed_by_nobody(house: House) -> None:
    house.train(range(20))
    house.log(RunConfig(finished=True))
    assert not house.look(1e5)
    house.train(range(20, 40))  # it goes on after all
    assert house.look(1e5)
    house.log(RunConfig(finished=True))  # said late
    assert not house.look(1)
    assert [alert.reason for alert in house.store.alerts("run", State.RESOLVED, None, 100)] == ["finished"]


def test_who_has_an_own_pace_is_judged_by_it(house: House) -> None:
    house.train(range(10), every=3600)
    assert not house.look(9 * 3600)
    assert house.look(3601)


def test_quick_steps_leave_room_for_a_validation(house: House) -> None:
    house.train(range(10), every=0.1)
    assert not house.look(LEAST_PATIENCE - 1)
    assert house.look(2)


def test_two_vectors_are_no_pace(house: House) -> None:
    house.train(range(2))
    assert not house.look(1e5)


def test_while_the_service_was_away_nobody_could_be_heard(house: House) -> None:
    house.train(range(20))
    house.now += 1e5
    house.watchdog = house.watch()
    assert not house.look(599)
    assert house.look(2)


def test_the_rule_can_be_turned_off(house: House) -> None:
    house.train(range(20))
    house.watchdog = house.watch(RuleSet(rule for rule in shipped_rules() if rule.name != "run_stalled"))
    assert not house.look(1e5)


def test_runs_of_others_are_looked_after_by_others(house: House) -> None:
    house.train(range(20))
    house.watchdog = house.watch(serves=lambda run: run != "run")
    assert not house.look(1e5)
    house.watchdog = house.watch(serves=lambda run: run == "run")
    assert house.look(1e5)


def test_while_the_store_was_away_nobody_could_be_heard(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalled, "LOOK_SECONDS", 0.01)
    house.train(range(20))
    house.now += 1e5
    house.store.close()
    house.watchdog.start()
    pause = threading.Event()
    while house.watchdog._since < house.now:  # it has tried
        assert not pause.wait(0.01)
    house.watchdog.stop()
    house.store = house.watchdog._store = SqliteStore(tmp_path / "tocsin.db")
    assert not house.look(599)
    assert house.look(2)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 2e9)), max_size=20))
def test_patience_is_never_short(times: list[tuple[int, float]]) -> None:
    allowed = patience(times)
    assert allowed is None or allowed >= LEAST_PATIENCE


def test_the_client_says_when_it_has_ended(api: Any) -> None:
    def finished(run: str) -> object:
        return api.get(f"/v1/runs/{run}").json["config"].get("finished")

    with tocsin.Run("finished", url=api.address) as training:
        training.log({"actor/grad_norm": 1.0}, 1)
    with suppress(RuntimeError), tocsin.Run("crashed", url=api.address) as training:
        training.log({"actor/grad_norm": 1.0}, 1)
        raise RuntimeError("out of memory")
    api.settle()
    assert (finished("finished"), finished("crashed")) == (True, None)
    with tocsin.Run("finished", url=api.address) as again:
        again.log({"actor/grad_norm": 1.0}, 2)
        pause = threading.Event()
        while again.stats()["delivered"] < 1:
            assert not pause.wait(0.001)
        api.settle()
        assert finished("finished") is None
