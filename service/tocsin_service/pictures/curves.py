"""The curves of alerting metrics: what a report shows beside the words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tocsin_detectors.alerts import Alert
from tocsin_detectors.catalogue import FRAMEWORKS, Catalogue, Resolved
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_detectors.expressions import Expression, ExpressionError

__all__ = ["Curve", "curve_of", "curves_of"]

_STEEP = 20.0


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of one metric in one attempt, in the catalogue's unit.

    Attributes:
        steps: in the order in which they came.
        values: one for each step; NaN and infinities are kept.
    """

    steps: Sequence[int]
    values: Sequence[float]

    @property
    def finite(self) -> list[float]:
        """The values that are numbers."""
        return [value for value in self.values if math.isfinite(value)]

    @property
    def is_steep(self) -> bool:
        """Whether values that are all positive rise so far that a linear scale would show nothing of the others."""
        finite = self.finite
        return bool(finite) and min(finite) > 0 and max(finite) / _STEEP > median(finite)

    def at(self, step: int) -> float | None:
        """The value of a step; None if it has none."""
        return next((value for one, value in zip(self.steps, self.values, strict=True) if one == step), None)

    def around(self, onset: int, before: int, after: int) -> Curve:
        """Up to so many of its points before and from the onset on."""
        begin = sum(1 for step in self.steps if step < onset)
        cut = slice(max(0, begin - before), begin + after)
        return Curve(self.steps[cut], self.values[cut])


def curves_of(
    alerts: Iterable[Alert], vectors: Sequence[StepVector], starts: Sequence[int], config: RunConfig
) -> dict[str, Curve]:
    """The curve of each alert by its id; none for alerts that are about steps rather than about a metric.

    Args:
        alerts: of one run.
        vectors: all of the run's.
        starts: the index of the vector that opened each attempt but the first.
        config: what is known of the run.
    """
    borders = [0, *starts, len(vectors)]
    catalogue = Catalogue()
    known: dict[tuple[str, str, int], Curve] = {}
    found: dict[str, Curve] = {}
    for alert in alerts:
        key = (alert.metric, alert.source, alert.attempt)
        if key not in known:
            part = vectors[borders[alert.attempt] : borders[alert.attempt + 1]]
            known[key] = curve_of(alert, part, config, catalogue)
        if known[key].steps:
            found[alert.id] = known[key]
    return found


def curve_of(
    alert: Alert, vectors: Sequence[StepVector], config: RunConfig, catalogue: Catalogue | None = None
) -> Curve:
    """The curve of an alert's metric in ``vectors``, which are of one attempt; it may have no points."""
    catalogue = catalogue or Catalogue()
    if "{" in alert.source:
        try:
            return _computed(Expression(alert.source), vectors, catalogue, config)
        except ExpressionError:
            pass
    resolved = _resolve(alert, catalogue, config)
    points: dict[int, float] = {}
    for vector in vectors:
        if alert.source in vector.metrics:
            points.setdefault(vector.step, resolved.apply(vector.metrics[alert.source]))
    return _sorted(points)


def _resolve(alert: Alert, catalogue: Catalogue, config: RunConfig) -> Resolved:
    """How the trainer's name became the alert's metric, whatever framework the engine took it for."""
    names = (config.framework, None, *FRAMEWORKS)
    readings = [catalogue.resolve(alert.source, framework) for framework in names]
    return next((reading for reading in readings if reading.canonical == alert.metric), readings[0])


def _computed(expression: Expression, vectors: Sequence[StepVector], catalogue: Catalogue, config: RunConfig) -> Curve:
    told = {f"config.{name}": value for name, value in _numbers(config).items()}
    rows: dict[int, dict[str, float]] = {}
    for vector in vectors:
        row = rows.setdefault(vector.step, dict(told))
        for name, value in vector.metrics.items():
            resolved = catalogue.resolve(name, config.framework)
            if resolved.canonical in expression.names:
                row.setdefault(resolved.canonical, resolved.apply(value))
    points = {step: expression(row) for step, row in rows.items() if row.keys() >= {*expression.names}}
    return _sorted({step: value for step, value in points.items() if not math.isnan(value)})


def _numbers(config: RunConfig) -> Mapping[str, float]:
    fields: Mapping[str, Any] = {name: getattr(config, name) for name in config.__slots__}
    return {name: float(value) for name, value in fields.items() if isinstance(value, (int, float))}


def _sorted(points: Mapping[int, float]) -> Curve:
    steps = sorted(points)
    return Curve(steps, [points[step] for step in steps])
