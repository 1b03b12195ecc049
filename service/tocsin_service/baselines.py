"""Which metrics of an incident can have a new normal."""

from __future__ import annotations

from collections.abc import Iterable

from tocsin_detectors.alerts import Alert, State

__all__ = ["learnt"]


def learnt(alerts: Iterable[Alert]) -> list[str]:
    """The metrics, by the trainer's names, whose firing alerts end when what was normal is forgotten.

    A check of data has no normal: NaN stays wrong. Nor has what is about steps rather than about a metric.
    """
    return sorted(
        {
            one.source
            for one in alerts
            if one.state is State.FIRING and one.family != "data" and one.rule != "run_stalled"
        }
    )
