"""What the tests of the detectors share: the metrics of a healthy run, and a way to fold a log."""

import math
import random
from collections.abc import Callable, Iterable
from typing import TypeAlias

import pytest

from tocsin_detectors.alerts import Alert, AlertEvent, Event, Transition
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import Entry

Normal: TypeAlias = Callable[[int], dict[str, float]]
Fold: TypeAlias = Callable[[Iterable[Entry]], tuple[Engine, list[Event]]]


@pytest.fixture(scope="session")
def normal() -> Normal:
    """The metrics of a step of a healthy GRPO run under verl's names: a function of the step alone."""

    def metrics(step: int) -> dict[str, float]:
        rng = random.Random(step)  # noqa: S311 - noise that has to be the same every time
        return {
            "actor/kl_loss": 0.02 * math.exp(0.002 * step + rng.gauss(0, 0.08)),
            "actor/entropy": 0.9 * math.exp(-0.001 * step + rng.gauss(0, 0.03)),
            "actor/pg_loss": rng.gauss(0, 0.01),
            "actor/grad_norm": 0.3 * math.exp(rng.gauss(0, 0.15)),
            "actor/pg_clipfrac": abs(rng.gauss(0.01, 0.002)),
            "critic/score/mean": 0.4 + 0.3 * (1 - math.exp(-step / 80)) + rng.gauss(0, 0.02),
            "response_length/mean": 300 * math.exp(rng.gauss(0, 0.03)),
        }

    return metrics


@pytest.fixture(scope="session")
def fold() -> Fold:
    """Fold a log into an engine; gives the engine and all its events."""

    def run(log: Iterable[Entry]) -> tuple[Engine, list[Event]]:
        engine = Engine("run")
        return engine, [event for entry in log for event in engine.feed(entry)]

    return run


@pytest.fixture(scope="session")
def fired() -> Callable[[Iterable[Event]], list[Alert]]:
    """The alerts among events, as they were when they fired."""

    def pick(events: Iterable[Event]) -> list[Alert]:
        return [
            event.alert for event in events if isinstance(event, AlertEvent) and event.transition is Transition.FIRED
        ]

    return pick
