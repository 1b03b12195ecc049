"""The curves of an incident's alerts, read from the run's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from tocsin_detectors.alerts import Alert
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.pictures.curves import Curve, curve_of
from tocsin_service.store import Store

__all__ = ["AFTER", "BEFORE", "read_curves"]

BEFORE, AFTER = 240, 120  # rows of a curve before and from the onset on
SPANS = (1, 10, 100)  # steps between two rows that are thought of: a trainer may log every hundredth
FEW = 30  # rows before the onset with which nobody is content
MOST_ENTRIES = 10_000  # of the log that are looked at
PAGE = 256


def read_curves(
    store: Store, run: str, alerts: Sequence[Alert], config: RunConfig, attempt: int | None
) -> dict[str, Curve]:
    """The curve of each alert by its id, around its onset and in its attempt.

    None for alerts that are about steps rather than about a metric, and for those whose part of the log is gone.

    Args:
        store: has the log.
        run: its id.
        alerts: of one incident.
        config: what is known of the run.
        attempt: the run's latest.
    """
    if not alerts:
        return {}
    onset, last = min(one.onset_step for one in alerts), max(one.fired_step for one in alerts)
    later = max(0, (attempt or 0) - alerts[0].attempt)  # attempts that came after that of the alerts
    found: dict[str, Curve] = {}
    for span in SPANS:
        window = range(max(0, onset - BEFORE * span), last + AFTER * span)
        parts = list(_attempts(store, run, window)) if attempt else [_one_attempt(store, run, window)]
        vectors = parts[-1 - later] if later < len(parts) else parts[0]
        found = {one.id: curve for one in alerts if (curve := curve_of(one, vectors, config)).steps}
        rows = max((sum(step < onset for step in curve.steps) for curve in found.values()), default=0)
        if rows >= FEW or not window.start:
            break
    return {name: curve.around(onset, BEFORE, AFTER) for name, curve in found.items()}


def _one_attempt(store: Store, run: str, window: range) -> list[StepVector]:
    """The vectors in the window, of a run that never went back; what was sent again is there again."""
    ahead = takewhile(lambda vector: vector.step < window.stop, _vectors(store, run, window.start))
    return [vector for vector in ahead if vector.step in window]


def _attempts(store: Store, run: str, window: range) -> Iterator[list[StepVector]]:
    """The vectors in the window, one list for each attempt that began behind the first of them."""
    part: list[StepVector] = []
    newest: dict[str, int] = {}  # metric to the latest step at which it came
    for vector in _vectors(store, run, window.start):
        # Vectors of an earlier step whose metrics are new are late; others tell of a restart.
        if any(newest.get(name, -1) > vector.step for name in vector.metrics):
            yield part
            part, newest = [], {}
        newest.update(dict.fromkeys(vector.metrics, vector.step))
        if vector.step in window:
            part.append(vector)
    yield part


def _vectors(store: Store, run: str, first: int) -> Iterator[StepVector]:
    """From the first vector of a step from ``first`` on."""
    seen, position = 0, store.seek(run, first - 1, 0)
    while seen < MOST_ENTRIES and (page := store.read(run, position, PAGE)):
        yield from (stored.entry for stored in page if isinstance(stored.entry, StepVector))
        seen, position = seen + len(page), page[-1].position
