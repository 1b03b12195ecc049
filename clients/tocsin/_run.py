"""A run, as the trainer sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Self

from tocsin._guard import Mistake, guarded
from tocsin._process import Link, exit_hook
from tocsin._settings import settings
from tocsin._transport import Transport

__all__ = ["Run"]


def _nothing() -> None:
    return None


def _false() -> bool:
    return False


def _no_alerts() -> list[dict[str, Any]]:
    return []


class Run:
    """A training run whose metrics go to a Tocsin server. Takes the arguments of :func:`tocsin.init`.

    Nothing here raises, and only :meth:`finish` and :meth:`alerts` wait for the network, for a bounded time.
    As a context manager it finishes at the end of the block.
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        url: str | None = None,
        config: Mapping[str, Any] | None = None,
        token: str | None = None,
        **options: Any,
    ) -> None:
        self._link = Link(settings(run, url, config, token, options))

    @property
    def id(self) -> str:
        """The run's id as the server knows it."""
        return self._link.settings.run

    @property
    def url(self) -> str:
        """The server's address, without credentials."""
        return str(self._link.settings.address)

    @property
    def dropped(self) -> int:
        """How many vectors of this process were lost; :meth:`stats` tells why."""
        return self._link.channel.tally.dropped.total()

    @guarded(_nothing)
    def log(self, metrics: Mapping[str, Any], step: int | None = None, *, time: float | None = None) -> None:
        """Hands the metrics of one step over; they are sent in the background, in order.

        Several calls may carry one step: the server merges them. Values that are no single number are skipped,
        counted, and named once. Tensors of one element are read by the background thread, so the caller doesn't wait
        for its device; while CUDA graphs are captured in global mode, pass plain numbers instead.

        Args:
            metrics: number by name; NaN and infinities are welcome. Nested mappings are flattened with "/".
            step: the trainer's step, >= 0; without it, one more than the last call's.
            time: Unix time in seconds; without it, now.
        """
        if self._link.settings.disabled:
            return
        channel = self._link.here()
        if self._link.settings.faulty:
            channel.tally.log()
            channel.tally.drop("misconfigured")
            return
        exit_hook()
        channel.put(metrics, step, time)

    @guarded(_false)
    def finish(self, timeout: float | None = None) -> bool:
        """Sends what is left, says in one log line what couldn't be delivered, and tells the server that it ended.

        A process that ends without it, or by an exception in the run's ``with`` block, is missed by the server after
        a while: its run has stalled.

        Args:
            timeout: seconds to wait at most; without it, the option ``exit_timeout``. What isn't sent by then is
                still tried in the background as long as the process lives.

        Returns:
            True if every vector logged so far in this process was delivered.
        """
        return self._close(timeout, ended=True)

    def _close(self, timeout: float | None, *, ended: bool) -> bool:
        options = self._link.settings.options
        limit = options.exit_timeout if timeout is None else max(0.0, timeout)
        begin = monotonic()
        channel = self._link.here()
        delivered = channel.close(limit)
        if ended and delivered:
            channel.say_finished(min(options.timeout, limit - (monotonic() - begin)))
        return delivered

    def stats(self) -> dict[str, Any]:
        """Counts of this process.

        Returns:
            ``logged``, ``delivered`` and ``waiting`` vectors, ``dropped`` ones by reason, and ``skipped`` values.
        """
        channel = self._link.channel
        return {
            "logged": channel.tally.logged,
            "delivered": channel.tally.delivered,
            "waiting": channel.waiting,
            "dropped": dict(channel.tally.dropped),
            "skipped": channel.tally.skipped,
        }

    @guarded(_no_alerts)
    def alerts(self) -> list[dict[str, Any]]:
        """The run's alerts as the server has them now; an empty list if it can't be asked.

        Waits for the server, but for none of its bytes longer than the option ``timeout``.
        """
        known = self._link.settings
        if known.disabled or known.faulty:
            return []
        transport = Transport(known.address, known.options.timeout)
        try:
            answer = transport.request("GET", f"{known.path}/alerts", None, {"User-Agent": "tocsin"})
        finally:
            transport.close()
        if answer.status != 200:
            raise Mistake(f"the server did not tell the run's alerts: {answer.told()}")
        listed = json.loads(answer.body)
        return list(listed["alerts"] if isinstance(listed, dict) else listed)

    def __enter__(self) -> Self:
        return self

    @guarded(_nothing)
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(None, ended=kind is None)
