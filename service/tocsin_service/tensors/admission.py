"""How much of what may be in the house at once: bodies that are received, that wait, and the one being computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Admission", "Full"]


class Full(RuntimeError):  # noqa: N818 - reads as what happened: "except Full"
    """There is no place now; there will be, a little later."""


class Admission:
    """Counts requests and their bytes; used from one thread.

    Args:
        max_requests: most requests at a time.
        max_bytes: most bytes at a time; a request is only let in if all of its bytes fit.
        what: is in the bodies, for the texts.
    """

    def __init__(self, max_requests: int, max_bytes: int, what: str = "tensors") -> None:
        self._max_requests, self._max_bytes, self._what = max_requests, max_bytes, what
        self.requests = 0
        self.bytes = 0

    @contextmanager
    def place(self, size: int) -> Iterator[None]:
        """Holds a place for a body of ``size`` bytes while the block runs.

        Raises:
            Full: there is none.
        """
        if self.requests >= self._max_requests:
            raise Full(f"{self.requests} requests with {self._what} are under way, which is as many as may be")
        if self.bytes + size > self._max_bytes:
            raise Full(f"the requests under way hold {self.bytes} bytes of {self._what}; {size} more don't fit now")
        self.requests += 1
        self.bytes += size
        try:
            yield
        finally:
            self.requests -= 1
            self.bytes -= size
