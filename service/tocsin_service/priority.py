"""How important a thread is."""

from __future__ import annotations

import os
import sys
import threading

__all__ = ["give_way"]

NICENESS = 10


def give_way() -> None:
    """Lets the event loop and the worker go before this thread where there are too few cores for all of them."""
    if sys.platform == "linux":  # elsewhere a thread has no priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
