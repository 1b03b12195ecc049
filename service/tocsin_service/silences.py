"""Silences: for a while nobody is told of what matches. What is silenced still fires, and shows everywhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from typing import Any, Literal

from tocsin_detectors.alerts import Severity

__all__ = [
    "MOST_KEPT",
    "MOST_SILENCES",
    "Matchers",
    "Silence",
    "expired",
    "find",
    "silence_from_json",
    "silence_to_json",
    "superfluous",
]

MOST_SILENCES = 1000  # that are not over
MOST_KEPT = 2 * MOST_SILENCES  # with those that are


@dataclass(frozen=True, slots=True)
class Matchers:
    """What a silence is about; all of it has to match.

    Patterns are those of shells: ``*`` is any text, ``?`` any character, ``[ab]`` one of those; case matters.

    Attributes:
        run: pattern of run ids.
        rule: pattern of rule names.
        severity: this one alone; None: any.
        labels: name of a run's label to the pattern of its value; a run without the label doesn't match.
    """

    run: str = "*"
    rule: str = "*"
    severity: Severity | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def match(self, run: str, rule: str, severity: Severity, labels: Mapping[str, str]) -> bool:
        """Whether an alert or incident of this run, rule and severity is meant."""
        return (
            self.severity in {None, severity}
            and _fits(self.rule, rule)
            and self.match_run(run)
            and all(name in labels and _fits(pattern, labels[name]) for name, pattern in self.labels.items())
        )

    def match_run(self, run: str) -> bool:
        """Whether this run may be meant, if rule, severity and labels fit too."""
        return _fits(self.run, run)


def _fits(pattern: str, text: str) -> bool:
    return pattern == "*" or _compiled(pattern).match(text) is not None


@lru_cache(maxsize=4 * MOST_SILENCES)  # the library's own memory is smaller than what is matched again and again
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which nobody wants to hear of something.

    Attributes:
        id: chosen by who makes it.
        starts: Unix time in seconds; from then on it counts.
        ends: Unix time in seconds; from then on it doesn't.
        author: who wants it.
        comment: why.
    """

    id: str
    matchers: Matchers
    starts: float
    ends: float
    author: str = ""
    comment: str = ""

    def active(self, now: float) -> bool:
        """Whether it counts at ``now``."""
        return self.starts <= now < self.ends

    def state(self, now: float) -> Literal["pending", "active", "expired"]:
        """Whether it has yet to begin, counts, or is over."""
        if now >= self.ends:
            return "expired"
        return "active" if now >= self.starts else "pending"


def find(
    silences: Iterable[Silence], now: float, *, run: str, rule: str, severity: Severity, labels: Mapping[str, str]
) -> Silence | None:
    """The silence that lasts longest among those that count now for such an alert; None if nothing silences it."""
    fitting = [one for one in silences if one.active(now) and one.matchers.match(run, rule, severity, labels)]
    return max(fitting, key=lambda one: one.ends, default=None)


def expired(silence: Silence, now: float) -> Silence:
    """The silence, over at ``now`` at the latest."""
    return replace(silence, ends=min(silence.ends, now))


def superfluous(silences: Iterable[Silence]) -> list[Silence]:
    """Those beyond the most that are kept: that end first."""
    return sorted(silences, key=lambda one: (-one.ends, one.id))[MOST_KEPT:]


def silence_to_json(silence: Silence) -> dict[str, Any]:
    """A silence as a strict-JSON mapping; inverse of :func:`silence_from_json`."""
    return asdict(silence)


def silence_from_json(data: Mapping[str, Any]) -> Silence:
    """The silence that :func:`silence_to_json` wrote."""
    matchers = dict(data["matchers"])
    severity = matchers.pop("severity")
    return Silence(
        **{**data, "matchers": Matchers(**matchers, severity=None if severity is None else Severity(severity))}
    )
