"""Recorded training runs for every test that asks for a ``recording`` or a ``collapse``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tocsin import readers
from tocsin_detectors.entries import RunConfig, StepVector

# Everywhere else each run of the property tests looks at new examples; CI looks at the same ones, and stays quiet about
# what a change has nothing to do with.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

RUNS = Path(__file__).parent / "data" / "runs"


@dataclass(frozen=True)
class Recording:
    """A run of a real trainer, healthy or sabotaged at a known step (see tests/data/runs/README.md)."""

    name: str
    path: Path
    label: str
    onset: int | None
    told: dict[str, Any]

    @property
    def config(self) -> RunConfig:
        return RunConfig(**self.told)

    @property
    def vectors(self) -> list[StepVector]:
        return [StepVector(vector.step, vector.metrics, vector.time) for vector in readers.read(self.path)]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The vectors as a trainer posts them."""
        return [{"step": vector.step, "metrics": dict(vector.metrics), "time": vector.time} for vector in self.vectors]


@cache
def recordings() -> tuple[Recording, ...]:
    index = json.loads((RUNS / "index.json").read_text())
    return tuple(
        Recording(row["name"], (RUNS / row["file"]).resolve(), row["label"], row["onset_step"], row["config"])
        for row in index
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``recording``: each recorded run; ``healthy`` and ``collapse``: those with that label."""
    for name in ("recording", "healthy", "collapse"):
        if name in metafunc.fixturenames:
            wanted = [run for run in recordings() if name in ("recording", run.label)]
            metafunc.parametrize(name, wanted, ids=[run.name for run in wanted])
