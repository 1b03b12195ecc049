"""The metric catalogue: every metric known, and which of a trainer's own names means it.

Canonical names are verl's; where verl has no such metric the name is coined in its style. ``metrics.json`` describes
the metrics, ``aliases.json`` gives each framework's names for them, the preferred one first. An alias in another unit
or sign carries its transform; one that measures something else is a metric of its own.

The framework sources that definitions and names were read from stand at each metric (``Metric.source``).
"""

from tocsin_detectors.catalogue.metric import Family, Metric, Transform, lookup, metrics, version
from tocsin_detectors.catalogue.resolve import FRAMEWORKS, Catalogue, Resolved, guess_framework

__all__ = [
    "FRAMEWORKS",
    "Catalogue",
    "Family",
    "Metric",
    "Resolved",
    "Transform",
    "guess_framework",
    "lookup",
    "metrics",
    "version",
]
