"""Runs that have fallen silent: the one alert that needs a clock, derived from the store beside the fold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from tocsin_detectors.alerts import (
    AFTER,
    Alert,
    AlertEvent,
    Evidence,
    Incident,
    IncidentEvent,
    State,
    Transition,
    derive_id,
    summarise,
)
from tocsin_detectors.rules import RuleSet, shipped_rules
from tocsin_detectors.rules.throughput import RUN_STALLED
from tocsin_detectors.sentences import Form
from tocsin_service.store import Commit, Notification, RunSummary, Store, StoreUnavailable

__all__ = ["Watchdog", "patience"]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 15.0
LEAST_PATIENCE = 300.0  # seconds; a validation or a checkpoint between quick steps takes as long
USUAL_STEPS = 10  # so many usual steps of silence are too many
LONGEST_STEPS = 3  # and so many of the longest step of late
FORGOTTEN = 7 * 86400.0  # seconds of silence after which nobody wants to hear of a run any more
MOST_RUNS = 10_000
TIMES = 17  # vectors looked at for the usual distance of steps

_SILENT = Form("nothing for {silent:.0f} s after step {step:d}; allowed are {allowed:.0f} s at this run's pace")


def patience(times: Sequence[tuple[int, float]]) -> float | None:
    """How long a run may be silent, in seconds; None if too little is known of its pace.

    Args:
        times: (step, Unix time) of its latest vectors, latest first.
    """
    between = (newer[1] - older[1] for newer, older in pairwise(times) if newer[0] != older[0])
    gaps = sorted(gap for gap in between if gap >= 0)
    if len(gaps) < 3:
        return None
    return max(LEAST_PATIENCE, USUAL_STEPS * gaps[len(gaps) // 2], LONGEST_STEPS * gaps[-1])


class Watchdog:
    """Looks every few seconds for runs that have fallen silent, and for those that speak again.

    Args:
        store: where it looks, and where it stores what it says.
        receivers: names of the receivers to notify.
        notified: called after a commit that made notifications.
        clock: Unix time in seconds.
        rules: the rules in force: the rule may be turned off, or be of another severity.
        serves: whether a run is this watchdog's to look after; None: all are.
    """

    def __init__(
        self,
        store: Store,
        receivers: Sequence[str],
        notified: Callable[[], None],
        clock: Callable[[], float],
        rules: RuleSet | None = None,
        serves: Callable[[str], bool] | None = None,
    ) -> None:
        self._store, self._receivers, self._notified, self._clock = store, tuple(receivers), notified, clock
        self._serves = serves
        rules = shipped_rules() if rules is None else rules
        self._rule = next((rule for rule in rules if rule.name == RUN_STALLED.name), None)
        self._since = clock()  # while the service itself or its store was away, nobody could be heard
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tocsin-watchdog", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; a look that goes on is finished."""
        self._stopping.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.look()
            except StoreUnavailable as error:
                self._since = self._clock()
                logger.warning("silent runs can't be looked for: %s", error)
            except Exception:
                logger.exception("silent runs can't be looked for")

    def look(self) -> None:
        """One look at every run that has been heard of lately."""
        if self._rule is None:
            return
        firing = {
            alert.run: alert
            for alert in self._store.alerts(None, State.FIRING, None, MOST_RUNS)
            if alert.rule == self._rule.name
        }
        for run in self._store.runs(MOST_RUNS):
            if self._serves is not None and not self._serves(run.run):
                continue
            stalled = self._silence(run)
            alert = firing.get(run.run)
            if alert is None and stalled is not None:
                self._fire(run, *stalled)
            elif alert is not None and stalled is None:
                self._resolve(run, alert)

    def _silence(self, run: RunSummary) -> tuple[float, float] | None:
        """Seconds of silence and the patience that they exceed; None while all is well."""
        if run.last_seen is None or run.step is None or run.pending or run.config.finished:
            return None
        silent = self._clock() - max(run.last_seen, self._since)
        if not LEAST_PATIENCE < silent < FORGOTTEN:
            return None
        allowed = patience(self._store.recent_times(run.run, TIMES))
        return (silent, allowed) if allowed is not None and silent > allowed else None

    def _fire(self, run: RunSummary, silent: float, allowed: float) -> None:
        rule = self._rule
        assert rule is not None  # noqa: S101 - look() goes no further without
        step, attempt = run.step or 0, run.attempt or 0
        detail = str(_SILENT(silent=silent, step=step, allowed=allowed))
        alert = Alert(
            id=derive_id(run.run, attempt, rule.name, rule.metrics[0], step),
            run=run.run,
            attempt=attempt,
            rule=rule.name,
            family=rule.family,
            severity=rule.severity,
            metric=rule.metrics[0],
            source=rule.metrics[0],
            onset_step=step,
            fired_step=step,
            evidence=Evidence(silent, limit=allowed, detail=detail),
            summary="",
            meaning=rule.meaning,
            remedies=rule.remedies,
        )
        alert = replace(alert, summary=summarise(alert, AFTER))
        incident = Incident(
            id=derive_id(run.run, attempt, "incident", alert.id),
            run=run.run,
            attempt=attempt,
            rule=rule.name,
            title=rule.title,
            severity=rule.severity,
            onset_step=step,
            first_sign=alert.id,
            last_good_step=step,
            members=(alert.id,),
            meaning=rule.meaning,
            remedies=rule.remedies,
            opened_step=step,
        )
        self._tell(run, Transition.FIRED, replace(alert, incident=incident.id), incident)

    def _resolve(self, run: RunSummary, alert: Alert) -> None:
        step = run.step or 0
        told = self._store.incidents(run.run, None, None, MOST_RUNS)
        incident = next((one for one in told if one.id == alert.incident), None)
        if incident is None:
            return
        reason = "finished" if run.config.finished else "recovered"
        over = replace(alert, state=State.RESOLVED, resolved_step=step, reason=reason)
        self._tell(run, Transition.RESOLVED, over, replace(incident, state=State.RESOLVED, resolved_step=step))

    def _tell(self, run: RunSummary, transition: Transition, alert: Alert, incident: Incident) -> None:
        """Store it beside the fold; if the fold moves on meanwhile, the next look decides anew."""
        now = self._clock()
        progress = self._store.load(run.run)
        if progress.version is None:
            return
        event = IncidentEvent(transition, incident, alert.fired_step, now)
        notifications = [Notification(receiver, incident.id, event.id) for receiver in self._receivers]
        change = Commit(
            expected=progress.position,
            position=progress.position,
            version=progress.version,
            time=now,
            events=(AlertEvent(transition, alert, alert.fired_step, now), event),
            notifications=notifications,
        )
        if self._store.commit(run.run, change) and notifications:
            self._notified()
