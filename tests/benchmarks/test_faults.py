"""The injected faults are what they say: deterministic, at their row, and caught on the project's own runs."""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tocsin_detectors.rules import shipped_rules

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests" / "data" / "runs"
KINDS = (
    "KL x30",
    "lone KL spike x50",
    "reward falls at once",
    "NaN in the loss",
    "one infinite gradient norm",
    "length to a tenth",
    "resume 20 rows back",
    "50 steps lost",
    "model collapse",
)


@pytest.fixture(scope="module")
def faults() -> Iterator[Any]:
    """The benchmark's module; its folder is no package, as scripts import one another by name."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("faults")
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def runs(faults: Any) -> dict[str, Any]:
    return {run.name: run for run in faults.healthy_runs(RUNS / "no corpus", RUNS)}


def window_of(faults: Any, run: Any, at: int = 150) -> Any:
    return faults.Window.of(run.vectors[: at + 40], at, run.config.framework, random.Random(1))  # noqa: S311 - noise, not secrets


def text_of(window: Any) -> str:
    return json.dumps([[vector.step, vector.metrics] for vector in window.vectors])


def fault_of(faults: Any, name: str) -> Any:
    return next(fault for fault in faults.FAULTS if fault.name == name)


def test_kinds_are_told_apart_and_name_rules_that_exist(faults: Any) -> None:
    names = [fault.name for fault in faults.FAULTS]
    assert len(set(names)) == len(names)
    known = {rule.name for rule in shipped_rules()}
    for fault in faults.FAULTS:
        assert fault.right <= known, fault.name
        assert bool(fault.right) != (fault.tell == "quiet"), fault.name


def test_a_fault_changes_its_rows_and_no_other_window(faults: Any, runs: dict[str, Any]) -> None:
    for fault in faults.FAULTS:
        healthy = window_of(faults, runs["healthy_base"])
        fault.prepare(healthy)
        faulty, before = healthy.copy(), text_of(healthy)
        try:
            fault.inject(faulty)
        except faults.Unfit:
            continue
        assert text_of(healthy) == before, fault.name
        assert faulty.vectors[: healthy.at] == healthy.vectors[: healthy.at], fault.name
        assert text_of(faulty) != before, fault.name


def test_changes_are_made_in_the_canonical_unit(faults: Any, runs: dict[str, Any]) -> None:
    healthy = window_of(faults, runs["healthy_base"])
    faulty = healthy.copy()
    fault_of(faults, "KL x5").inject(faulty)
    assert faulty.vectors[150].metrics["kl"] == pytest.approx(5 * healthy.vectors[150].metrics["kl"])
    fault_of(faults, "NaN in the loss").inject(faulty)
    assert all(math.isnan(vector.metrics["loss"]) for vector in faulty.vectors[150:])


def test_the_same_seed_makes_the_same_cases(faults: Any, runs: dict[str, Any]) -> None:
    fault = fault_of(faults, "model collapse")
    first, again = (list(faults.cases([runs["healthy_base"]], fault, 2, 7)) for _ in range(2))
    assert first == again
    assert first != list(faults.cases([runs["healthy_base"]], fault, 2, 8))


def test_a_run_without_the_metric_is_unfit(faults: Any, runs: dict[str, Any]) -> None:
    with pytest.raises(faults.Unfit, match="reports no"):
        fault_of(faults, "advantage equals reward").inject(window_of(faults, runs["healthy_base"]))


def test_a_fault_that_noise_hides_is_unfit(faults: Any, runs: dict[str, Any]) -> None:
    healthy = window_of(faults, runs["healthy_base"])
    with pytest.raises(faults.Unfit, match="within the noise"):
        healthy.copy().demand_visible("actor/grad_norm", healthy, 20)


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_runs_tell_of_it(faults: Any, runs: dict[str, Any], kind: str) -> None:
    fault = fault_of(faults, kind)
    outcome = faults.try_case(runs["healthy_base"], fault, random.Random(3))  # noqa: S311 - noise, not secrets
    assert outcome.right(fault), outcome
    if fault.tell == "page":
        assert outcome.pages
