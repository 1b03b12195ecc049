"""What is marked in the plot of an alert."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin_detectors.entries import number_from_json
from tocsin_service.terminal import printable
from tocsin_service.words import Words

__all__ = ["Marks", "marks_of"]


@dataclass(frozen=True, slots=True)
class Marks:
    """What is marked in a plot, with the words to say so.

    Attributes:
        onset: step of the first sign.
        fired: step at which it was said.
        baseline: what was normal, None if unknown.
        limit: beyond which a value is abnormal, None if unknown.
        words: for "onset", "said", "baseline" and "limit".
        title: says what is drawn, for those who can't see it.
    """

    onset: int
    fired: int
    baseline: float | None
    limit: float | None
    words: dict[str, str]
    title: str


def marks_of(alert: Mapping[str, Any], say: Words) -> Marks:
    """What is marked in the plot of an alert."""
    words = {"onset": say("onset"), "said": say("said"), "baseline": say("baseline"), "limit": say("limit")}
    title = f"{alert['metric']}{say(': ')}{alert['evidence']['detail']}"
    baseline, limit = (_level(alert["evidence"][name]) for name in ("baseline", "limit"))
    return Marks(alert["onset_step"], alert["fired_step"], baseline, limit, words, printable(title))


def _level(value: object) -> float | None:
    level = math.nan if value is None else number_from_json(value)
    return level if math.isfinite(level) else None
