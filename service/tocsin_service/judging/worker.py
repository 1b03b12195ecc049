"""Takes the runs that have news, folds their log and commits: events, notifications and state together.

The engine in memory is a cache of the log: whenever it might differ from what is committed it is thrown away and made
again from the newest snapshot and the entries behind it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from tocsin_detectors.alerts import Event, IncidentEvent, Severity
from tocsin_detectors.engine import Engine
from tocsin_detectors.rules import RuleSet
from tocsin_service.exposition import Exposition
from tocsin_service.judging.turns import Folded, Tracked, Turn
from tocsin_service.store import Commit, Notification, Outcome, Progress, Store, Stored, StoreUnavailable

__all__ = ["Feed", "Worker"]

logger = logging.getLogger(__name__)

BATCH = 64  # entries folded before another run gets its turn; also the most that a restart has to fold again
IDLE_SECONDS = 5.0  # a run without news for so long is snapshotted
SWEEP_SECONDS = 30.0  # how often the store is asked for runs whose wake-up got lost
PAUSE_SECONDS = (0.5, 1.0, 2.0, 5.0, 15.0)  # waits while the store is unavailable


class Feed(Protocol):
    """Who tells a worker of news, beside :meth:`Worker.wake`, and hears when it is done with them."""

    def overlooked(self) -> Iterable[str]:
        """Runs with news that nobody may have told of: those of before the start, and those whose wake-up got lost."""
        ...

    def caught_up(self, run: str, since: float) -> None:
        """All that was in the log of ``run`` at ``since`` (:func:`time.monotonic`) is committed."""
        ...


class _Embedded:
    """The feed of a worker that has the store for itself: the log alone says what is to be done."""

    def __init__(self, store: Store) -> None:
        self.overlooked = store.news

    def caught_up(self, run: str, since: float) -> None:
        pass


class Worker:
    """One thread that folds.

    Args:
        store: the log it reads and the state it commits.
        exposition: where it counts.
        receivers: names of the receivers to notify of incidents.
        rules: what to judge by; the shipped rules if not given.
        notified: called after a commit that made notifications.
        clock: Unix time in seconds.
        feed: who knows of news; if not given, the worker has the store for itself.
        most_engines: engines kept in memory, those used last; another has to be restored from its snapshot.
    """

    def __init__(
        self,
        store: Store,
        exposition: Exposition,
        receivers: Sequence[str] = (),
        rules: RuleSet | None = None,
        notified: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        *,
        feed: Feed | None = None,
        most_engines: int = 1_000,
    ) -> None:
        self._store, self._exposition, self._receivers = store, exposition, tuple(receivers)
        self._rules, self._notified, self._clock = rules, notified, clock
        self._feed = _Embedded(store) if feed is None else feed
        self._most_engines = most_engines
        self._tracked: OrderedDict[str, Tracked] = OrderedDict()
        self._news: OrderedDict[str, float] = OrderedDict()  # run -> when its oldest news was stored (monotonic)
        self._changed = threading.Condition()
        self._busy = False
        self._swept = False  # the store has been asked what an earlier process left
        self._stopping = False
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._loop, name="tocsin-worker", daemon=True)

    def start(self) -> None:
        """Starts folding, first what an earlier process has left."""
        self._thread.start()

    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def wake(self, run: str) -> None:
        """Says that the log of ``run`` has grown."""
        with self._changed:
            self._news.setdefault(run, time.monotonic())
            self._changed.notify_all()

    def wait_idle(self, timeout: float) -> bool:
        """Waits until all that :meth:`wake` told of, and all that was left before the start, is committed.

        False if ``timeout`` seconds didn't do.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._swept and not self._news and not self._busy, timeout)

    def stop(self, timeout: float) -> None:
        """Folds what is stored, snapshots and ends; what isn't folded after ``timeout`` seconds waits in the log."""
        with self._changed:
            self._stopping, self._deadline = True, time.monotonic() + timeout
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    # The thread.

    def _loop(self) -> None:
        trouble, sweep = 0, 0.0
        while True:
            try:
                if time.monotonic() >= sweep:
                    self._sweep()
                    sweep = time.monotonic() + SWEEP_SECONDS
                if not self._work():
                    done = self._is_done()
                    self._save_idle(everything=done)
                    if done:
                        return
                trouble = 0
            except StoreUnavailable as error:
                self._exposition.worker_errors.inc()
                logger.warning("the worker waits for the store: %s", error)
                if self._pause(PAUSE_SECONDS[min(trouble, len(PAUSE_SECONDS) - 1)]):
                    return
                trouble += 1

    def _sweep(self) -> None:
        """Finds the runs whose wake-up got lost, at first those that an earlier process left."""
        left = self._feed.overlooked()
        with self._changed:
            for run in left:
                self._news.setdefault(run, time.monotonic())
            self._swept = True
            self._changed.notify_all()

    def _take(self, turns: Mapping[str, Turn]) -> tuple[str, float] | None:
        """The next run with news that isn't among ``turns``, and since when; waits for the first.

        None if there is none for a while, or none left and it is time to stop.
        """
        with self._changed:
            if not turns:
                self._changed.wait_for(lambda: self._news or self._stopping, IDLE_SECONDS)
            run = next((run for run in self._news if run not in turns), None)
            if run is None or time.monotonic() > self._deadline:
                return None
            self._busy = True
            return run, self._news.pop(run)

    def _is_done(self) -> bool:
        with self._changed:
            return self._stopping and (not self._news or time.monotonic() > self._deadline)

    def _pause(self, seconds: float) -> bool:
        """Waits, but no longer than until the worker is to stop; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopping, seconds)

    def _work(self) -> bool:
        """Folds the news of some runs and commits all that together; False if there are none."""
        turns: dict[str, Turn] = {}
        try:
            folded, trouble = 0, False
            # Not more runs than engines are kept: none may be put away before its fold is committed.
            most = min(BATCH, self._most_engines)
            while folded < BATCH and len(turns) < most and not trouble and (news := self._take(turns)):
                run, since = news
                turn = turns[run] = Turn(run, since)
                with self._guarded(turn):
                    self._prepare(turn)
                folded, trouble = folded + len(turn.entries), turn.trouble is not None
            self._commit(turns.values())
        finally:
            with self._changed:
                for run, turn in turns.items():
                    if turn.more:
                        self._news.setdefault(run, turn.since)
                self._busy = False
                self._changed.notify_all()
        for turn in turns.values():
            if turn.trouble is not None:
                raise turn.trouble
        return bool(turns)

    @contextmanager
    def _guarded(self, turn: Turn) -> Iterator[None]:
        """Whatever goes wrong with a run harms no other run."""
        try:
            yield
        except StoreUnavailable as error:
            self._tracked.pop(turn.run, None)
            turn.more, turn.trouble = True, error
        except Exception:
            # Not an entry that the engine chokes on (that is caught closer by) but e.g. a log entry that can't be read.
            self._tracked.pop(turn.run, None)
            turn.more = False
            self._exposition.worker_errors.inc()
            logger.exception("run %r can't be folded; it is tried again at its next vector", turn.run)

    def _prepare(self, turn: Turn) -> None:
        """Folds a batch of a run."""
        tracked = self._get(turn.run)
        turn.entries = self._store.read(turn.run, tracked.position, BATCH)
        if not turn.entries:
            self._feed.caught_up(turn.run, turn.started)
            return
        self._fold(turn.run, tracked, turn.entries, turn.found)
        turn.change = self._change(turn.run, tracked, turn.entries[-1].position, turn.found)

    def _commit(self, turns: Iterable[Turn]) -> None:
        folded = [(turn, turn.change) for turn in turns if turn.change is not None]
        try:
            outcomes = self._store.commit_all([(turn.run, change) for turn, change in folded])
        except Exception as error:  # noqa: BLE001 - it ends these turns, and not the thread
            outcomes = [error for _ in folded]
        for (turn, change), outcome in zip(folded, outcomes, strict=True):
            with self._guarded(turn):
                self._finish(turn, change, outcome)

    def _finish(self, turn: Turn, change: Commit, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        if not outcome:
            self._tracked.pop(turn.run, None)  # somebody else was faster: start again from what is committed
            turn.more = True
            return
        self._note(turn.run, change)
        turn.more = len(turn.entries) == BATCH
        ended = time.monotonic()
        self._exposition.fold_seconds.observe(ended - turn.started)
        self._exposition.lag_seconds.observe(ended - turn.since)
        self._exposition.count_events(turn.found.events)
        if not turn.more:
            self._feed.caught_up(turn.run, turn.started)

    def _fold(self, run: str, tracked: Tracked, entries: Sequence[Stored], found: Folded) -> None:
        """Feeds the entries; an entry that the engine chokes on is skipped, as it will be in every later fold."""
        for stored in entries:
            try:
                events = tracked.engine.feed(stored.entry)
            except Exception as error:
                self._exposition.worker_errors.inc()
                if found.problem is None:
                    logger.exception("run %r: log entry %d was skipped", run, stored.position)
                found.problem = f"log entry {stored.position} was skipped: {type(error).__name__}: {error}"
            else:
                found.events += events
                found.causes += [stored.position] * len(events)
        tracked.unsaved += len(entries)
        tracked.fed = time.monotonic()

    def _change(self, run: str, tracked: Tracked, position: int, found: Folded) -> Commit:
        engine = tracked.engine
        return Commit(
            expected=tracked.position,
            position=position,
            version=engine.version,
            time=self._clock(),
            events=found.events,
            causes=found.causes,
            notifications=self._notifications(found.events),
            state=self._snapshot(run, engine) if self._saves(tracked, position) else None,
            attempt=engine.attempt,
            config=engine.config,
            error=found.problem,
        )

    def _saves(self, tracked: Tracked, position: int) -> bool:
        """Whether a commit of what was folded up to ``position`` is to have a snapshot."""
        return tracked.unsaved >= BATCH or position == tracked.position

    def _note(self, run: str, change: Commit) -> None:
        """Takes note of a commit."""
        tracked = self._tracked[run]
        if self._saves(tracked, change.position):
            tracked.unsaved = 0
        tracked.position = change.position
        if change.notifications:
            self._notified()

    def _snapshot(self, run: str, engine: Engine) -> dict[str, Any] | None:
        """The engine's state; None if it can't tell it: then a restart folds more, and nobody misses an alert."""
        try:
            return engine.snapshot()
        except Exception:
            self._exposition.worker_errors.inc()
            logger.exception("run %r: no snapshot could be made", run)
            return None

    def _notifications(self, events: Sequence[Event]) -> list[Notification]:
        return [
            Notification(receiver, event.incident.id, event.id)
            for event in events
            if isinstance(event, IncidentEvent) and event.incident.severity is not Severity.INFO
            for receiver in self._receivers
        ]

    # Engines in memory.

    def _get(self, run: str) -> Tracked:
        tracked = self._tracked.get(run)
        if tracked is None:
            tracked = self._tracked[run] = self._load(run)
        self._tracked.move_to_end(run)
        while len(self._tracked) > self._most_engines:
            oldest = next(iter(self._tracked))
            self._save(oldest)
            self._tracked.pop(oldest, None)
        return tracked

    def _load(self, run: str) -> Tracked:
        progress = self._store.load(run)
        tracked = self._restore(run, progress)
        found, folded = Folded(), tracked.position
        while folded < progress.position:
            page = self._store.read(run, folded, BATCH)
            entries = [stored for stored in page if stored.position <= progress.position]
            if not entries:  # the log doesn't reach back so far any more
                break
            self._fold(run, tracked, entries, found)
            folded = entries[-1].position
        tracked.position = progress.position
        if progress.version not in {None, tracked.engine.version}:
            self._rewrite(run, tracked, found)
        return tracked

    def _restore(self, run: str, progress: Progress) -> Tracked:
        """An engine from the snapshot, or a fresh one if the snapshot is of another version or doesn't fit."""
        engine, snapshot = Engine(run, self._rules), progress.snapshot
        if snapshot is None or not snapshot.version == progress.version == engine.version:
            return Tracked(engine, 0)
        if snapshot.position > progress.position:
            return Tracked(engine, 0)
        try:
            return Tracked(Engine.restore(run, snapshot.state, self._rules), snapshot.position)
        except Exception:
            self._exposition.worker_errors.inc()
            logger.exception("run %r: the snapshot doesn't fit; the run is folded from the start of its log", run)
            return Tracked(Engine(run, self._rules), 0)

    def _rewrite(self, run: str, tracked: Tracked, found: Folded) -> None:
        """Replaces what another version of the rules had found. The past was told when it happened: nobody is paged."""
        logger.info("run %r was folded again with the present rules", run)
        engine = tracked.engine
        change = Commit(
            expected=tracked.position,
            position=tracked.position,
            version=engine.version,
            time=self._clock(),
            events=found.events,
            causes=found.causes,
            state=self._snapshot(run, engine),
            attempt=engine.attempt,
            config=engine.config,
            rewrite=True,
        )
        if not self._store.commit(run, change):
            raise StoreUnavailable(f"run {run!r} moved on while it was folded again")
        tracked.unsaved = 0

    def _save_idle(self, *, everything: bool) -> None:
        """Snapshots the runs that have been silent for a while (or all), so that a restart folds little."""
        before = time.monotonic() - IDLE_SECONDS
        for run, tracked in list(self._tracked.items()):
            if tracked.unsaved and (everything or tracked.fed < before):
                self._save(run)

    def _save(self, run: str) -> None:
        tracked = self._tracked[run]
        if tracked.unsaved:
            change = self._change(run, tracked, tracked.position, Folded())
            if self._store.commit(run, change):
                self._note(run, change)
            else:
                self._tracked.pop(run, None)
