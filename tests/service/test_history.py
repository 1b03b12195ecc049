"""The curves of an incident, read back from the log: the right attempt, and enough of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tocsin_detectors.alerts import Alert
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.commands.verdict import judge
from tocsin_service.pictures import history
from tocsin_service.store import Record
from tocsin_service.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = SqliteStore(tmp_path / "tocsin.db")
    yield opened
    opened.close()


def keep(store: Any, vectors: Iterable[StepVector]) -> None:
    store.append("run", [Record(vector) for vector in vectors], 0.0).result(30)


def broken(steps: Iterable[int], onset: int, size: float = 1000.0) -> list[StepVector]:
    """A gradient norm that explodes."""
    return [
        StepVector(step, {"actor/grad_norm": (1 + math.sin(7 * step) / 20) * (size if step >= onset else 1), "x": 1.0})
        for step in steps
    ]


def alerts_of(vectors: list[StepVector]) -> list[Alert]:
    return [one for one in judge("run", vectors).alerts.values() if one.rule == "grad_norm_spike"]


def test_the_same_as_a_check_shows(store: Any, collapse: Any) -> None:
    told = judge("run", collapse.vectors, collapse.config)
    keep(store, collapse.vectors)
    shown = told.curves(collapse.vectors, collapse.config)
    for incident in told.incidents.values():
        alerts = [told.alerts[member] for member in incident.members]
        found = history.read_curves(store, "run", alerts, collapse.config, 0)
        onset = min(one.onset_step for one in alerts)
        expected = {
            one.id: shown[one.id].around(onset, history.BEFORE, history.AFTER) for one in alerts if one.id in shown
        }
        assert found.keys() == expected.keys()
        for name, curve in found.items():
            assert list(curve.steps) == list(expected[name].steps)
            assert list(map(repr, curve.values)) == list(map(repr, expected[name].values))


def test_each_attempt_has_its_own(store: Any) -> None:
    vectors = [*broken(range(100), 80), *broken(range(60, 100), 90, 2000.0), *broken(range(60, 95), 85, 3000.0)]
    alerts = alerts_of(vectors)
    assert [one.attempt for one in alerts] == [0, 1, 2]
    keep(store, vectors)
    for alert, size in zip(alerts, (1000, 2000, 3000), strict=True):
        (curve,) = history.read_curves(store, "run", [alert], RunConfig(), 2).values()
        value = curve.at(alert.fired_step)
        assert value is not None
        assert size * 0.9 < value < size * 1.1
        assert curve.at(alert.onset_step - 1) == pytest.approx(1, abs=0.1)


def test_what_was_sent_again_is_no_attempt(store: Any) -> None:
    vectors = broken(range(100), 95)
    keep(store, [*vectors[:90], *vectors])
    (alert, *_) = alerts_of(vectors)
    (curve,) = history.read_curves(store, "run", [alert], RunConfig(), 0).values()
    assert list(curve.steps) == list(range(100))


def test_of_a_long_run_what_is_around_the_onset(store: Any) -> None:
    vectors = broken(range(3000), 2000)
    (alert, *_) = alerts_of(vectors[:2010])
    keep(store, vectors)
    (curve,) = history.read_curves(store, "run", [alert], RunConfig(), alert.attempt).values()
    assert (curve.steps[0], curve.steps[-1]) == (2000 - history.BEFORE, 2000 + history.AFTER - 1)


def test_of_a_run_that_logs_rarely(store: Any) -> None:
    vectors = broken(range(0, 20_000, 100), 15_000)
    (alert, *_) = alerts_of(vectors)
    keep(store, vectors)
    (curve,) = history.read_curves(store, "run", [alert], RunConfig(), alert.attempt).values()
    assert sum(step < 15_000 for step in curve.steps) == 150


def test_vectors_of_one_step_in_any_order(store: Any) -> None:
    merged = broken(range(100), 80)
    (alert, *_) = alerts_of(merged)
    split: list[StepVector] = []
    for vector in merged:
        split += [StepVector(vector.step, {name: vector.metrics[name]}) for name in sorted(vector.metrics)]
    late = [StepVector(50, {"val/score": 1.0})]  # validation comes when it is done
    keep(store, [*split[:180], *late, *split[180:]])
    (curve,) = history.read_curves(store, "run", [alert], RunConfig(), alert.attempt).values()
    assert list(curve.steps) == list(range(100))


def test_what_is_not_there(store: Any) -> None:
    (alert, *_) = alerts_of(broken(range(100), 80))
    assert history.read_curves(store, "run", [], RunConfig(), 0) == {}
    assert history.read_curves(store, "run", [alert], RunConfig(), alert.attempt) == {}
    keep(store, [StepVector(step, {"x": 1.0}) for step in range(100)])
    assert history.read_curves(store, "run", [alert], RunConfig(), alert.attempt) == {}
