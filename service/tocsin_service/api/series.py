"""A run's metrics as series, read from the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tocsin_detectors.catalogue import Catalogue
from tocsin_detectors.entries import StepVector, number_to_json
from tocsin_service.store import Store

__all__ = ["read_series"]

PAGE = 256  # log entries held in memory at once


def read_series(
    store: Store, run: str, metrics: Sequence[str], *, after: int | None, limit: int, framework: str | None
) -> list[dict[str, Any]]:
    """The points of each metric, in the order of the log; steps may repeat after a restart of the trainer.

    Args:
        store: has the log.
        run: a known run.
        metrics: the trainer's own names, or canonical ones (then values are in the canonical unit).
        after: only steps beyond this one, the earliest first; None: what the latest entries say.
        limit: most points of a metric; without ``after`` most entries looked at.
        framework: of the run, for names that mean different things in different frameworks.
    """
    names = list(dict.fromkeys(metrics))
    found: dict[str, tuple[list[int], list[float | str]]] = {name: ([], []) for name in names}
    catalogue = Catalogue()
    for vector in _vectors(store, run, store.seek(run, after, limit)):
        if after is not None and vector.step <= after:
            continue
        for name in names:
            steps, values = found[name]
            value = _value(vector, name, catalogue, framework)
            if value is not None and len(steps) < limit:
                steps.append(vector.step)
                values.append(number_to_json(value))
        if all(len(steps) >= limit for steps, _ in found.values()):
            break
    return [{"metric": name, "steps": steps, "values": values} for name, (steps, values) in found.items()]


def _vectors(store: Store, run: str, position: int) -> Iterator[StepVector]:
    while page := store.read(run, position, PAGE):
        yield from (stored.entry for stored in page if isinstance(stored.entry, StepVector))
        position = page[-1].position


def _value(vector: StepVector, name: str, catalogue: Catalogue, framework: str | None) -> float | None:
    if name in vector.metrics:
        return vector.metrics[name]
    for source, value in vector.metrics.items():
        resolved = catalogue.resolve(source, framework)
        if resolved.canonical == name:
            return resolved.apply(value)
    return None
