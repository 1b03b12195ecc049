"""All runs at a glance: where each stands, how quickly it goes on, what is worst, and the curve of its reward."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tocsin_detectors.alerts import Incident, Severity, State
from tocsin_detectors.catalogue import Catalogue
from tocsin_detectors.entries import StepVector, number_to_json
from tocsin_service.exposition import INTERVALS, step_interval
from tocsin_service.judging.stalled import TIMES, patience
from tocsin_service.presentation import Presentation
from tocsin_service.store import RunSummary, Store

__all__ = ["POINTS", "Overview"]

POINTS = 60  # of the small curve: the latest
HEADLINES = (  # the first of them that a run has is its small curve
    "critic/rewards/mean",
    "critic/score/mean",
    "actor/entropy",
    "actor/kl_loss",
    "actor/pg_loss",
    "actor/grad_norm",
)
MOST_KEPT = 2_000  # small curves remembered
MOST_INCIDENTS = 10_000

RunState = Literal["running", "silent", "finished"]


@dataclass(frozen=True, slots=True)
class _Small:
    """A small curve as far as the log was read."""

    vectors: int
    position: int
    metric: str | None
    values: tuple[float, ...]


class Overview:
    """Reads what all runs have to show. It remembers the small curves: only what is new in a log is read again.

    Args:
        store: has the runs.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._catalogue = store, Catalogue()
        self._small: OrderedDict[str, _Small] = OrderedDict()
        self._gate = threading.Lock()  # one look at a time: the others then find the curves remembered

    def read(self, limit: int, now: float, shown: Presentation) -> list[dict[str, Any]]:
        """The ``limit`` runs heard of last, latest first, as strict JSON.

        Args:
            limit: most runs.
            now: Unix time in seconds.
            shown: language of the titles.
        """
        with self._gate:
            worst = _worst(self._store.incidents(None, State.FIRING, None, MOST_INCIDENTS))
            acknowledged = self._store.acknowledgements()
            told = []
            for summary in self._store.runs(limit):
                incident, small = worst.get(summary.run), self._curve(summary)
                times = self._store.recent_times(summary.run, INTERVALS)
                told.append(
                    {
                        **_facts(summary),
                        "state": _state(summary, times, now),
                        "interval": step_interval(times),
                        "worst": None if incident is None else _told(incident, shown, incident.id in acknowledged),
                        "metric": small.metric,
                        "values": [number_to_json(value) for value in small.values],
                    }
                )
            return told

    def _curve(self, summary: RunSummary) -> _Small:
        run, known = summary.run, self._small.get(summary.run)
        if known is None or known.vectors > summary.vectors or summary.vectors - known.vectors > POINTS:
            position = self._store.seek(run, None, POINTS)
            known = _Small(summary.vectors, position, None, ())
        elif known.vectors == summary.vectors:
            return known
        entries = self._store.read(run, known.position, 2 * POINTS)
        vectors = [one.entry for one in entries if isinstance(one.entry, StepVector)]
        metric = known.metric or self._headline(vectors, summary.config.framework)
        new = [] if metric is None else self._values(vectors, metric, summary.config.framework)
        position = entries[-1].position if entries else known.position
        small = _Small(summary.vectors, position, metric, (*known.values, *new)[-POINTS:])
        self._small[run] = small
        self._small.move_to_end(run)
        if len(self._small) > MOST_KEPT:
            self._small.popitem(last=False)
        return small

    def _headline(self, vectors: Sequence[StepVector], framework: str | None) -> str | None:
        names = {name for vector in vectors for name in vector.metrics}
        canonical = {self._catalogue.resolve(name, framework).canonical for name in names}
        return next((one for one in HEADLINES if one in canonical), min(canonical, default=None))

    def _values(self, vectors: Sequence[StepVector], metric: str, framework: str | None) -> list[float]:
        values = []
        for vector in vectors:
            for name, value in vector.metrics.items():
                resolved = self._catalogue.resolve(name, framework)
                if resolved.canonical == metric:
                    values.append(resolved.apply(value))
                    break
        return values


def _facts(summary: RunSummary) -> dict[str, Any]:
    config = summary.config
    return {
        "run": summary.run,
        "step": summary.step,
        "attempt": summary.attempt,
        "created": summary.created,
        "last_seen": summary.last_seen,
        "vectors": summary.vectors,
        "firing": dict(summary.firing),
        "algorithm": config.algorithm,
        "framework": config.framework,
        "labels": dict(config.labels),
        "error": summary.error,
    }


def _state(summary: RunSummary, times: Sequence[tuple[int, float]], now: float) -> RunState:
    if summary.config.finished:
        return "finished"
    allowed = patience(times[:TIMES])
    late = allowed is not None and summary.last_seen is not None and now > summary.last_seen + allowed
    return "silent" if late else "running"


def _worst(incidents: Sequence[Incident]) -> Mapping[str, Incident]:
    """The most severe open incident of each run; of equal ones the newest. They come newest first."""
    found: dict[str, Incident] = {}
    for incident in incidents:
        known = found.get(incident.run)
        if known is None or Severity(incident.severity).rank > Severity(known.severity).rank:
            found[incident.run] = incident
    return found


def _told(incident: Incident, shown: Presentation, acknowledged: bool) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "severity": str(incident.severity),
        "title": shown.incident(incident)["title"],
        "onset_step": incident.onset_step,
        "acknowledged": acknowledged,
    }
