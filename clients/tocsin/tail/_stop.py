"""A wait that a signal ends at once, without a lock: its handler runs between any two steps of the waiting thread."""

from __future__ import annotations

import os
import select

__all__ = ["Stop"]


class Stop:
    """Set once, from a signal handler or a thread."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self.is_set = False

    def set(self) -> None:
        """Ends every wait, now and later."""
        if not self.is_set:
            self.is_set = True
            os.write(self._writer, b"\0")

    def wait(self, seconds: float) -> None:
        """Returns after so many seconds, or when it is set."""
        select.select([self._reader], [], [], seconds)
