"""How many requests a second are taken, with one token and for one run."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

__all__ = ["BURST_SECONDS", "Rates"]

BURST_SECONDS = 10.0  # who was quiet for so long may send what they missed at once
MOST_KEYS = 10_000


class Rates:
    """A bucket for each key: it holds what ``BURST_SECONDS`` bring, fills at the rate, and a request takes one out.

    Only the time at which a bucket will be full again is kept of it. At most ``most`` are remembered, those used last:
    whoever makes up new keys all the time forgets nothing but idle ones, as long as a busy one is used in between.

    Args:
        rate: requests a second, in the long run; 0: as many as come.
        most: most buckets remembered.
        clock: seconds that only grow.
    """

    def __init__(self, rate: float, most: int = MOST_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._cost = 1.0 / rate if rate else 0.0  # seconds that a request takes to make good
        self._most, self._clock = most, clock
        self._full: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, key: Hashable) -> float:
        """Takes a request out of the key's bucket: 0.0. If it is empty: the seconds until there is one in it."""
        if not self._cost:
            return 0.0
        now = self._clock()
        full = self._full.pop(key, now)
        wait = full - now - BURST_SECONDS
        self._full[key] = full if wait > 0.0 else max(full, now) + self._cost
        if len(self._full) > self._most:
            self._full.popitem(last=False)
        return max(0.0, wait)

    def __len__(self) -> int:
        """Buckets remembered."""
        return len(self._full)
