"""A run's curves for the page: by family, thinned out to what a screen can show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tocsin_detectors.catalogue import Resolved, metrics
from tocsin_detectors.entries import number_to_json
from tocsin_detectors.texts import Language, families
from tocsin_service.dashboard.downsample import thin
from tocsin_service.dashboard.history import Curves
from tocsin_service.dashboard.reading import Part
from tocsin_service.words import Words

__all__ = ["FAMILIES", "Window", "charts_to_json"]

OTHER = "other"
# In the order in which people look at them.
FAMILIES = (
    "reward",
    "kl",
    "entropy",
    "length",
    "gradient",
    "actor",
    "ratio",
    "mismatch",
    "critic",
    "advantage",
    "validation",
    "data",
    "throughput",
    "progress",
    OTHER,
)


@dataclass(frozen=True, slots=True)
class Window:
    """What is shown of every curve.

    Attributes:
        points: most points of a metric in an attempt.
        first, last: the steps shown, both included; None: from the beginning, to the end.
        family: this one alone; None: all.
        metrics: these alone, by canonical name; empty: all.
    """

    points: int
    first: int | None = None
    last: int | None = None
    family: str | None = None
    metrics: frozenset[str] = frozenset()

    def has(self, metric: str, family: str) -> bool:
        """Whether the metric is shown."""
        return self.family in {None, family} and (not self.metrics or metric in self.metrics)


def charts_to_json(curves: Curves, window: Window, lang: Language) -> list[dict[str, Any]]:
    """The families that have metrics, each with its curves, as strict JSON."""
    names = {**families(lang), "progress": Words(lang)("Progress"), OTHER: Words(lang)("Other metrics")}
    found: dict[str, list[dict[str, Any]]] = {}
    for name, (source, resolved, parts) in sorted(curves.columns.items(), key=_rank):
        family = OTHER if resolved.metric is None else resolved.metric.family
        shown = list(_parts(parts, window, curves.earlier)) if window.has(name, family) else []
        if shown:
            found.setdefault(family, []).append({**_described(name, source, resolved), "parts": shown})
    return [{"family": one, "title": names.get(one, one), "metrics": found[one]} for one in _ordered(found)]


def _rank(column: tuple[str, tuple[str, Resolved, list[Part]]]) -> tuple[int, str]:
    """In the catalogue's order, which puts first what tells most; then by name."""
    name, (_, resolved, _) = column
    return _places()[resolved.metric.name] if resolved.metric is not None else 0, name


@cache
def _places() -> Mapping[str, int]:
    return {name: place for place, name in enumerate(metrics())}


def _described(name: str, source: str, resolved: Resolved) -> dict[str, Any]:
    known = resolved.metric
    unit, healthy = ("", "") if known is None else (known.unit, known.healthy)
    return {"metric": name, "source": source, "unit": unit, "healthy": healthy}


def _parts(parts: Iterable[Part], window: Window, earlier: int) -> Iterable[dict[str, Any]]:
    for part in parts:
        steps, values = part.arrays()
        begin = 0 if window.first is None else int(np.searchsorted(steps, window.first))
        end = len(steps) if window.last is None else int(np.searchsorted(steps, window.last, "right"))
        if begin < end:
            kept = thin(values[begin:end], window.points) + begin
            numbers = [number_to_json(value) for value in values[kept].tolist()]
            yield {"attempt": part.attempt + earlier, "steps": steps[kept].tolist(), "values": numbers}


def _ordered(found: Collection[str]) -> list[str]:
    return sorted(found, key=lambda one: FAMILIES.index(one) if one in FAMILIES else len(FAMILIES))
