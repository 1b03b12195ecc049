"""/metrics: what is firing, how the runs are doing, and how the service itself is doing, for Prometheus."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tocsin_detectors.alerts import Alert, Event, IncidentEvent
from tocsin_detectors.rules.incident import MODEL_COLLAPSE
from tocsin_service.firing import Labels, label, labels_by_run, read_firing
from tocsin_service.judging.stalled import TIMES, patience
from tocsin_service.store import RunSummary, Store, StoreUnavailable

__all__ = ["CONTENT_TYPE", "INTERVALS", "Exposition", "gauge", "step_interval"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
INTERVALS = 32  # latest vectors of a run from which its step interval is taken
LIMITS = ("token", "run", "connections", "head", "slow", "malformed")  # why a request is refused at the door
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Exposition:
    """The service's metrics. Counters live here; what is firing is read from the store at every scrape.

    Args:
        store: where the runs and their alerts are.
        max_runs: most runs shown, the latest first. The number left out is a metric of its own. 0: the process shows
            no runs nor anything else that another process tells of the same store, so that nothing is counted twice.
        clock: Unix time in seconds.
    """

    def __init__(self, store: Store, max_runs: int = 1_000, clock: Callable[[], float] = time.time) -> None:
        self._registry = _Registry()
        self.vectors = self._counter("tocsin_ingest_vectors", "Step vectors stored.")
        self.repeated = self._counter("tocsin_ingest_repeated", "Step vectors that were in the log already.")
        self.rejected = self._counter("tocsin_ingest_rejected", "Requests with step vectors refused.", "reason")
        self.tensor_requests = self._counter("tocsin_tensor_requests", "Requests with tensors answered.")
        self.tensor_rejected = self._counter("tocsin_tensor_rejected", "Requests with tensors refused.", "reason")
        self.tensor_bytes = self._counter("tocsin_tensor_bytes", "Bytes of tensors taken in.")
        self._limited = self._counter("tocsin_requests_limited", "Requests refused before they were looked at.", "what")
        for what in LIMITS:  # from the beginning: an increase from nothing would be none
            self._limited.labels(what)
        self.rollout_rows = self._counter("tocsin_rollout_rows", "Rollouts taken in.")
        self.rollout_rejected = self._counter("tocsin_rollout_rejected", "Requests with rollouts refused.", "reason")
        self.rollout_seconds = self._histogram("tocsin_rollout_seconds", "Time to store the rollouts of a request.")
        self._events = self._counter("tocsin_detection_events", "Changes of alerts.", "rule", "transition")
        self.deliveries = self._counter("tocsin_delivery", "Attempts to tell a receiver.", "receiver", "result")
        self.worker_errors = self._counter("tocsin_worker_errors", "Errors while folding the log.")
        self.claims = self._counter("tocsin_nudges_claimed", "Nudges taken over from a worker that didn't finish them.")
        self.reconnects = self._counter("tocsin_redis_reconnects", "Times that Redis was heard again after trouble.")
        self.ingest_seconds = self._histogram("tocsin_ingest_seconds", "Time to store the vectors of a request.")
        self.tensor_seconds = self._histogram("tocsin_tensor_seconds", "Time to answer a request with tensors.")
        self.fold_seconds = self._histogram("tocsin_fold_seconds", "Time to fold and commit a batch of entries.")
        self.lag_seconds = self._histogram("tocsin_lag_seconds", "Time from stored to folded and committed.")
        self._registry.register(_StoreCollector(store, max_runs, clock))

    def count_limited(self, what: str) -> None:
        """Counts a request that was refused because of a limit, one of ``LIMITS``."""
        self._limited.labels(what).inc()

    def count_events(self, events: Iterable[Event]) -> None:
        """Counts committed events: those of alerts, and those of collapses, which are no alert of their own."""
        for event in events:
            subject = event.incident if isinstance(event, IncidentEvent) else event.alert
            if isinstance(subject, Alert) or subject.rule == MODEL_COLLAPSE.name:
                self._events.labels(subject.rule, event.transition).inc()

    def render(self) -> bytes:
        """Everything in Prometheus' text format. While the store can't be read, only what the process itself knows."""
        return generate_latest(self._registry)

    def register(self, collector: Collector) -> None:
        """Shows what ``collector`` finds, too."""
        self._registry.register(collector)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=SECONDS, registry=self._registry)


class _Registry(CollectorRegistry):
    """Without the time of creation of every counter, which doubles the series and tells nothing."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _StoreCollector(Collector):
    """Gauges that are read from the store."""

    def __init__(self, store: Store, max_runs: int, clock: Callable[[], float]) -> None:
        self._store, self._max_runs, self._clock = store, max_runs, clock

    def describe(self) -> Iterable[Metric]:
        return ()  # the registry would read the store for it while it is being built

    def collect(self) -> Iterator[Metric]:
        try:
            found, up = self._read(), 1.0
        except StoreUnavailable:
            found, up = [], 0.0
        yield from found
        yield gauge("tocsin_store_up", "Whether this process can use the store: 1 or 0.", [((), up)])

    def _read(self) -> list[Metric]:
        if not self._max_runs:
            self._store.check()
            return []
        return list(self._gauges())

    def _gauges(self) -> Iterator[Metric]:
        runs = self._store.runs(self._max_runs)
        yield from self._alerts(labels_by_run(runs))
        yield _by_run("tocsin_run_last_step", "Latest step of the run.", ((run.run, run.step) for run in runs))
        yield from self._times([run for run in runs if not run.config.finished])
        yield from self._fullness(len(runs))
        yield _single(
            "tocsin_fold_pending",
            "Log entries of the exported runs that are not folded yet.",
            sum(summary.pending for summary in runs),
        )
        yield _single(
            "tocsin_outbox_pending", "Notifications waiting for their receiver.", self._store.pending_notifications()
        )
        refused = CounterMetricFamily("tocsin_dead_letters", "Entries written into a log past the API, and refused.")
        refused.add_metric((), float(self._store.dead_letters()))
        yield refused

    def _alerts(self, exported: Mapping[str, Mapping[str, str]]) -> Iterator[Metric]:
        now = self._clock()
        silences = [silence for silence in self._store.silences() if silence.active(now)]
        found = read_firing(self._store, exported)
        firing = dict.fromkeys(label(subject) for one in found for subject in one.subjects)
        silenced = set().union(*(one.silenced(silences, now) for one in found))
        for name, text, all_labels in (
            ("tocsin_alert", "1 for what is firing.", firing),
            ("tocsin_alert_silenced", "1 for what is firing and silenced.", silenced),
        ):
            yield gauge(name, text, ((labels, 1.0) for labels in all_labels), *Labels._fields)

    def _times(self, running: list[RunSummary]) -> Iterator[Metric]:
        """When runs were heard of and how often they should be. One that has ended has no more to say."""
        yield _by_run(
            "tocsin_run_last_step_timestamp_seconds",
            "Unix time at which the latest step vector of the run came in; none of runs that have ended.",
            ((run.run, run.last_seen) for run in running),
        )
        times = {run.run: self._store.recent_times(run.run, INTERVALS) for run in running}
        yield _by_run(
            "tocsin_run_step_interval_seconds",
            "Usual time between two steps of the run, the median of the latest; none of runs that have ended.",
            ((run, step_interval(latest)) for run, latest in times.items()),
        )
        yield _by_run(
            "tocsin_run_patience_seconds",
            "How long the run may be silent before that is an alert, by its own pace; none of runs that have ended.",
            ((run, patience(latest[:TIMES])) for run, latest in times.items()),
        )

    def _fullness(self, exported: int) -> Iterator[Metric]:
        usage = self._store.usage()
        yield _single("tocsin_store_used_bytes", "Bytes of the database files, or of Redis' memory.", usage.used)
        if usage.free is not None:
            yield _single("tocsin_store_free_bytes", "Bytes that the store may still take.", usage.free)
        yield _single("tocsin_runs", "Runs in the store.", usage.runs)
        yield _single("tocsin_runs_limit", "Most runs that the store takes (max_runs).", usage.most_runs)
        yield _single(
            "tocsin_runs_not_exported",
            "Runs left out of the metrics because of max_exported_runs.",
            max(0, usage.runs - exported),
        )


def step_interval(times: Sequence[tuple[int, float]]) -> float | None:
    """Usual seconds between two steps, the median of the latest; None if too little is known."""
    intervals = [
        (late - early) / (after - before)
        for (after, late), (before, early) in itertools.pairwise(times)
        if after > before and late > early
    ]
    return statistics.median(intervals) if intervals else None


def _by_run(name: str, text: str, samples: Iterable[tuple[str, float | None]]) -> Metric:
    return gauge(name, text, (((run,), float(value)) for run, value in samples if value is not None), "run")


def _single(name: str, text: str, value: float) -> Metric:
    return gauge(name, text, [((), float(value))])


def gauge(name: str, text: str, samples: Iterable[tuple[tuple[str, ...], float]], *labels: str) -> Metric:
    """A metric of samples (values of the labels, value)."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
