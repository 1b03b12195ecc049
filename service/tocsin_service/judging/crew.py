"""How the workers of a shared store do, for /metrics: how many live, what each serves, and what waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from redis import Redis, RedisError

from tocsin_service.exposition import gauge
from tocsin_service.judging.membership import alive
from tocsin_service.judging.nudges import lag

__all__ = ["CrewCollector"]


class CrewCollector(Collector):
    """Gauges that are read from Redis at every scrape; none while it is away.

    Every process that can tell exports them, so they are the same numbers from several sources: take the maximum by
    ``partition``, not the sum.

    Args:
        client: answers in bytes.
        partitions: those to tell of.
        serves: the process serves those partitions itself: then their number is a metric of its own.
    """

    def __init__(self, client: Redis, partitions: Callable[[], Iterable[int]], *, serves: bool = False) -> None:
        self._client, self._partitions, self._serves = client, partitions, serves

    def describe(self) -> Iterable[Metric]:
        return ()  # the registry would ask Redis for it while it is being built

    def collect(self) -> Iterator[Metric]:
        partitions = sorted(self._partitions())
        if self._serves:
            text = "Partitions of runs that this worker serves, of 16."
            yield gauge("tocsin_worker_partitions", text, [((), float(len(partitions)))])
        try:
            workers, found = alive(self._client), lag(self._client, partitions)
        except RedisError:
            return
        yield gauge("tocsin_workers", "Workers that are alive.", [((), float(len(workers)))])
        lags = [((str(partition),), one) for partition, one in found.items()]
        yield gauge(
            "tocsin_nudges_pending",
            "News of runs that no worker has finished yet.",
            [(labels, float(one.nudges)) for labels, one in lags],
            "partition",
        )
        yield gauge(
            "tocsin_nudges_oldest_seconds",
            "Age of the oldest of them; 0 without any.",
            [(labels, one.oldest) for labels, one in lags],
            "partition",
        )
