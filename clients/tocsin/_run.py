"""A run, as the trainer sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Self

from tocsin._guard import Mistake, guarded
from tocsin._parcels import ParcelChannel
from tocsin._process import Link, exit_hook
from tocsin._redis import RedisAddress
from tocsin._rollouts import Rows
from tocsin._settings import settings
from tocsin._transport import Transport
from tocsin._watch import Told, rank_of

__all__ = ["Run"]


def _nothing() -> None:
    return None


def _false() -> bool:
    return False


def _no_alerts() -> list[dict[str, Any]]:
    return []


def _stats(channel: ParcelChannel) -> dict[str, Any]:
    return {
        "logged": channel.logged,
        "delivered": channel.delivered,
        "waiting": channel.waiting,
        "dropped": dict(channel.dropped),
    }


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
    def log(
        self,
        metrics: Mapping[str, Any],
        step: int | None = None,
        *,
        time: float | None = None,
        sequence: str | None = None,
    ) -> None:
        """Hands the metrics of one step over; they are sent in the background, in order.

        Several calls may carry one step: the server merges them. Values that are no single number are skipped,
        counted, and named once. Tensors of one element are read by the background thread, so the caller doesn't wait
        for its device; while CUDA graphs are captured in global mode, pass plain numbers instead.

        Args:
            metrics: number by name; NaN and infinities are welcome. Nested mappings are flattened with "/".
            step: the trainer's step, >= 0; without it, one more than the last call's.
            time: Unix time in seconds; without it, now.
            sequence: 1 to 128 printable characters, for those who may hand the same vector over again, say after a
                restart: the server takes one with the same step, time and sequence once.
        """
        if self._link.settings.disabled:
            return
        channel = self._link.here()
        if self._link.settings.faulty:
            channel.tally.log()
            channel.tally.drop("misconfigured")
            return
        exit_hook()
        channel.put(metrics, step, time, sequence)

    @guarded(_nothing)
    def log_tensors(self, tensors: Mapping[str, Any], step: int, *, time: float | None = None, **options: Any) -> None:
        """Hands a batch's tensors over: the server computes their metrics, which join the step's vector.

        They are copied before this returns (from a CUDA device: the copy is queued on a stream of its own), and sent in
        the background. At most two batches wait; when the server is slower than that, the oldest gives way and is
        counted as dropped. Call it on one rank, with the whole batch.

        Args:
            tensors: torch tensors or numpy arrays by name, as in verl's batches: ``old_log_probs``,
                ``rollout_log_probs``, ... ``[B, T]`` with ``response_mask``, or flat ``[N]`` with ``response_lengths``
                ``[B]``. Others that a batch may hold are not sent.
            step: the trainer's step, >= 0.
            time: Unix time in seconds; without it, now.
            **options: what to compute and with which thresholds: ``compat``, ``metrics``, ``rollout_is``, ...; names of
                ``domains`` for the tensor ``domain``.
        """
        known = self._link.settings
        if known.disabled or known.faulty:
            return
        exit_hook()
        channel = self._link.here()
        channel.given_up = False
        channel.tensors.put(tensors, step, time, options)

    @guarded(_nothing)
    def log_rollouts(self, rows: Rows, step: int, *, time: float | None = None, **options: Any) -> None:
        """Hands a step's rollouts over: the server keeps them, and metrics made of them join the step's vector.

        They are held before this returns (texts aren't copied: they can't change) and sent in the background. As with
        tensors, at most two steps wait, and the oldest gives way. Call it on one rank, with the whole batch.

        Args:
            rows: a mapping for each rollout, or one mapping of columns (lists or arrays): ``response``, and what is
                known of ``prompt``, ``reward`` (final, after penalties), ``scores`` (a mapping: of each reward model
                or rule), ``group`` (the same for the rollouts of one prompt), ``domain``, ``length`` (of the response
                in tokens), ``finish_reason``, ``advantage``, ``ground_truth``, ``index``. Others are not sent.
            step: the trainer's step, >= 0.
            time: Unix time in seconds; without it, now.
            **options: ``response_limit``: the longest possible response in tokens; ``measure=False``: keep, don't
                measure.
        """
        known = self._link.settings
        if known.disabled or known.faulty:
            return
        exit_hook()
        channel = self._link.here()
        channel.given_up = False
        channel.rollouts.put(rows, step, time, options)

    @guarded(_false)
    def finish(self, timeout: float | None = None) -> bool:
        """Sends what is left, says in one log line what couldn't be delivered, and tells the server that it ended.

        With a spool it also sends what earlier processes of the run have left there, even if nothing was logged.

        A process that ends without it, or by an exception in the run's ``with`` block, is missed by the server after
        a while: its run has stalled.

        Args:
            timeout: seconds to wait at most; without it, the option ``exit_timeout``. What isn't sent by then is
                still tried in the background as long as the process lives.

        Returns:
            True if everything logged so far in this process was delivered.
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

    @guarded(_nothing)
    def describe(self, config: Mapping[str, Any]) -> None:
        """Tells the server more of the run; fields that it was told before stay as they are.

        Args:
            config: as for :func:`tocsin.init`; sent before the next vectors.
        """
        if config and not self._link.settings.disabled and not self._link.settings.faulty:
            self._link.describe(config)

    @guarded(_nothing)
    def watch(
        self,
        *,
        stop_on: str | None = None,
        checkpoint_on: str | None = None,
        on_alert: Callable[[Told], object] | None = None,
    ) -> None:
        """From now on the server is asked, in the background, what fires. What is left out keeps its value.

        Args:
            stop_on: severity ("info", "warning", "critical") of an incident from which :meth:`should_stop` is True.
            checkpoint_on: severity of an incident from which :meth:`should_checkpoint` is True.
            on_alert: called in a background thread with every alert that fires, as :meth:`alerts` has it, and again
                when it has become more severe. What it raises is logged.
        """
        if not self._link.settings.disabled and not self._link.settings.faulty:
            self._link.watch(self._link.wishes.updated(stop_on, checkpoint_on, on_alert))

    @guarded(_false)
    def should_stop(self) -> bool:
        """Whether the training is to stop: an incident as severe as ``stop_on`` has fired. Stays True; never waits."""
        self._expect("stop_on", self._link.wishes.stop_on)
        return self._link.here().lookout.should_stop()

    @guarded(_false)
    def should_checkpoint(self) -> bool:
        """Whether a checkpoint is to be saved now; True once for each incident. Never waits."""
        self._expect("checkpoint_on", self._link.wishes.checkpoint_on)
        return self._link.here().lookout.take_checkpoint()

    @guarded(_false)
    def firing(self, severity: str = "critical") -> bool:
        """Whether an incident at least this severe fires, as last seen; False again when it is over. Never waits.

        The first call begins to watch: until the server has been asked, nothing fires.
        """
        if not self._link.wishes.watching:
            self.watch()
        return self._link.here().lookout.fires(rank_of(severity))

    def _expect(self, wish: str, value: str | None) -> None:
        """Says it if somebody waits for what nobody has asked for."""
        known = self._link.settings
        if value is None and not known.disabled and not known.faulty:
            self._link.here().tally.warn(wish, f"nothing ever asks for it: give {wish}= to init() or watch()", "")

    def stats(self) -> dict[str, Any]:
        """Counts of this process.

        Returns:
            ``logged``, ``delivered`` and ``waiting`` vectors, ``spooled``: how many of the waiting lie on disk,
            ``dropped`` ones by reason, ``skipped`` values, and ``recovered``: vectors of earlier processes that were
            delivered out of the spool.
        """
        channel = self._link.channel
        return {
            "logged": channel.tally.logged,
            "delivered": channel.tally.delivered,
            "waiting": channel.waiting,
            "spooled": channel.spooled,
            "dropped": dict(channel.tally.dropped),
            "skipped": channel.tally.skipped,
            "recovered": channel.tally.recovered,
        }

    def tensor_stats(self) -> dict[str, Any]:
        """Counts of this process.

        Returns:
            ``logged``, ``delivered`` and ``waiting`` batches of tensors, and ``dropped`` ones by reason.
        """
        return _stats(self._link.channel.tensors)

    def rollout_stats(self) -> dict[str, Any]:
        """Counts of this process, as :meth:`tensor_stats`; of calls of :meth:`log_rollouts`."""
        return _stats(self._link.channel.rollouts)

    @guarded(_no_alerts)
    def alerts(self) -> list[dict[str, Any]]:
        """The run's alerts as the server has them now; an empty list if it can't be asked.

        Waits for the server, but for none of its bytes longer than the option ``timeout``. Over Redis there are none.
        """
        known = self._link.settings
        if known.disabled or known.faulty:
            return []
        if isinstance(known.address, RedisAddress):
            self._link.here().tally.warn("alerts", "alerts() asks the service, which a Redis isn't", "")
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
