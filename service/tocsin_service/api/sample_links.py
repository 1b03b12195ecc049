"""Where an alert's samples are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tocsin_service.api.context import Context
from tocsin_service.rollouts.evidence import EVIDENCE

__all__ = ["with_samples"]


def with_samples(context: Context, alert: Mapping[str, Any]) -> dict[str, Any]:
    """The alert, as JSON, with the path of its samples if rollouts are kept and say something about it."""
    if context.rollouts is None or alert["family"] not in EVIDENCE:
        return dict(alert)
    return {**alert, "samples": f"/v1/runs/{quote(alert['run'], safe='')}/alerts/{alert['id']}/samples"}
