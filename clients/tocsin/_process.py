"""What happens to the runs when the process forks or ends."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic

from tocsin._channel import Channel
from tocsin._settings import Settings
from tocsin._watch import Wishes

__all__ = ["Link"]


class Link:
    """A run's channel in whatever process asks for it.

    Attributes:
        settings: the run's settings, the same in every process.
        wishes: what is to happen when an incident fires.
        channel: the channel of the process that used it last; :meth:`here` is the one to put vectors into.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.wishes = Wishes()
        self.channel = Channel(settings, self.wishes)
        _links.append(self)

    def here(self) -> Channel:
        """This process's channel. The at-fork hook renews it; the check is for forks that run no hooks."""
        if self.channel.process != os.getpid():
            self.renew()
        return self.channel

    def renew(self) -> None:
        """Starts afresh: empty queue, counters at zero, another session."""
        self.channel.abandon()
        self.channel = Channel(self.settings, self.wishes)

    def describe(self, config: Mapping[str, object]) -> None:
        """Adds fields to the run's config; those that are set already stay."""
        new = {name: value for name, value in config.items() if name not in self.settings.config}
        self.settings = replace(self.settings, config={**self.settings.config, **new})
        self.here().describe(new)

    def watch(self, wishes: Wishes) -> None:
        """Replaces what is to happen when an incident fires."""
        self.wishes = wishes
        self.here().lookout.ask(wishes)

    def flush(self, timeout: float) -> None:
        """Waits for what this process hasn't sent, unless somebody has already waited in vain."""
        channel = self.channel
        if channel.process == os.getpid() and channel.unfinished and not channel.given_up:
            channel.close(timeout)


class _Exit:
    """Sees to it, once per process, that what was logged is flushed when the process ends."""

    def __init__(self) -> None:
        self._hooked: int | None = None

    def hook(self) -> None:
        if self._hooked == os.getpid():
            return
        if self._hooked is None:
            atexit.register(flush)
        self._hooked = os.getpid()
        # Forked children of multiprocessing skip atexit and run its finalizers instead.
        process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
        if process and util and process.parent_process() is not None:
            util.Finalize(None, flush, exitpriority=10)


def flush() -> None:
    """Waits for what the runs haven't sent, all together no longer than the longest ``exit_timeout``."""
    deadline = monotonic() + max((link.settings.options.exit_timeout for link in _links), default=0.0)
    for link in _links:
        link.flush(max(0.0, deadline - monotonic()))


def _after_fork() -> None:
    """Before a forked child does anything else: locks and connections of its parent are not its own."""
    for link in _links:
        link.renew()


_links: list[Link] = []
exit_hook = _Exit().hook
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
