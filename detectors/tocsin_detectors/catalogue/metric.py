"""What the catalogue knows of one metric, and the transforms that bring an alias to its unit."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args

from tocsin_detectors.catalogue.pattern import Pattern
from tocsin_detectors.scale import Scale

__all__ = ["Family", "Metric", "Transform", "lookup", "metrics", "version"]

Family = Literal[
    "kl",
    "entropy",
    "reward",
    "length",
    "actor",
    "critic",
    "advantage",
    "gradient",
    "ratio",
    "mismatch",
    "throughput",
    "validation",
    "progress",
    "data",
]
FAMILIES: tuple[Family, ...] = get_args(Family)

# Sums in low precision overshoot a bound of the formula by a rounding error: that is no violation.
ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, by its canonical name (verl's where verl has it).

    Attributes:
        name: canonical name; in a pattern ``{placeholder}`` stands for the part that varies ("timing_s/{stage}").
        family: what it tells about.
        unit: of its values; "1" is a pure number, "share" one between 0 and 1.
        low: least possible value by the formula; None means unbounded.
        high: greatest possible value by the formula; None means unbounded.
        formula: how it is computed, in short.
        healthy: the shape it has in a healthy run.
        scale: the scale on which detectors look at it.
        source: the framework and file that define it.
    """

    name: str
    family: Family
    unit: str
    low: float | None
    high: float | None
    formula: str
    healthy: str
    scale: Scale
    source: str

    @property
    def is_pattern(self) -> bool:
        """True if the name has placeholders and so stands for many metrics."""
        return "{" in self.name

    def allows(self, value: float) -> bool:
        """True if the formula can give ``value`` (up to rounding); always False for NaN."""
        low_enough = self.high is None or value <= self.high + ROUNDING
        return value >= (self.low - ROUNDING if self.low is not None else float("-inf")) and low_enough


@dataclass(frozen=True, slots=True)
class Transform:
    """An affine map from an alias' unit or sign to the canonical one: ``offset + factor * x``."""

    name: str
    factor: float
    offset: float = 0.0

    def apply(self, value: float) -> float:
        """The value in the canonical unit. NaN and infinities pass through."""
        return self.offset + self.factor * value


TRANSFORMS: Mapping[str, Transform] = {
    transform.name: transform
    for transform in (
        Transform("-x", -1.0),
        Transform("1-x", -1.0, 1.0),
        Transform("x/100", 0.01),
        Transform("x*1e-4", 1e-4),
    )
}


def read_data(name: str) -> Any:
    """One of the package's own data files, as JSON."""
    return json.loads(resources.files("tocsin_detectors.catalogue").joinpath(name).read_text(encoding="utf-8"))


@functools.cache
def version() -> str:
    """Digest of all that the catalogue says: a state made with another catalogue may have read names otherwise."""
    digest = hashlib.blake2b(digest_size=6)
    for name in ("metrics.json", "aliases.json"):
        digest.update(resources.files("tocsin_detectors.catalogue").joinpath(name).read_bytes())
    return digest.hexdigest()


@functools.cache
def metrics() -> Mapping[str, Metric]:
    """Every metric and pattern by its name, in the order of the data file. Read once, when first needed."""
    return {row["name"]: _metric(row) for row in read_data("metrics.json")}


def lookup(name: str) -> Metric | None:
    """The metric with this canonical name; a name that a pattern covers gives the pattern. None if unknown."""
    exact = metrics().get(name)
    if exact is not None:
        return exact
    for pattern, metric in _patterns():
        if pattern.match(name) is not None:
            return metric
    return None


@functools.cache
def _patterns() -> tuple[tuple[Pattern, Metric], ...]:
    patterns = [(Pattern(name), metric) for name, metric in metrics().items() if metric.is_pattern]
    return tuple(sorted(patterns, key=lambda entry: entry[0].rank))


def _metric(row: Mapping[str, Any]) -> Metric:
    low, high = row["range"]
    scale = Scale(**row["scale"])
    return Metric(
        row["name"], row["family"], row["unit"], low, high, row["formula"], row["healthy"], scale, row["source"]
    )
