"""Tocsin's client: what a trainer imports. Standard library only, never in the trainer's way.

    import tocsin

    tocsin.init("my-run", url="http://tocsin:8765", config={"algorithm": "grpo", "framework": "verl"})
    tocsin.log({"actor/kl_loss": 0.01, "actor/entropy": 0.6}, step=1)
    tocsin.finish()

Environment, where no argument is given: TOCSIN_URL, TOCSIN_RUN, TOCSIN_TOKEN or TOCSIN_TOKEN_FILE; TOCSIN_SPOOL, a
directory for vectors until the server has them, and TOCSIN_SPOOL_BYTES; TOCSIN_EXIT_TIMEOUT, the seconds that the end
of the process may wait for unsent vectors (5); TOCSIN_DISABLED=1 turns everything off (say, on all ranks but one);
TOCSIN_DEBUG=1 raises errors instead of logging them (in tests); http_proxy, https_proxy, no_proxy and SSL_CERT_FILE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tocsin._current import current, make_current, open_run
from tocsin._run import Run

__all__ = ["Run", "finish", "init", "log", "log_rollouts", "log_tensors", "should_checkpoint", "should_stop"]


def init(
    run: str | None = None,
    *,
    url: str | None = None,
    config: Mapping[str, Any] | None = None,
    token: str | None = None,
    stop_on: str | None = None,
    checkpoint_on: str | None = None,
    on_alert: Callable[[Mapping[str, Any]], object] | None = None,
    embedded: bool = False,
    **options: Any,
) -> Run:
    """Names the run that :func:`log` and :func:`finish` mean. Never raises, and waits for nobody
    but a service of its own (``embedded``).

    Args:
        run: the run's id; without it TOCSIN_RUN, else one from host, start time and process.
        url: the service, or a Redis that it reads from (redis://, rediss://, unix://); without it TOCSIN_URL, else
            http://127.0.0.1:8765.
        config: what the rules should know of the run: algorithm, framework, group_size, target_kl, ...
        token: sent as a bearer token, or the password of the Redis; without it TOCSIN_TOKEN.
        stop_on: severity of an incident from which :func:`should_stop` is True; see :meth:`Run.watch`.
        checkpoint_on: severity of an incident from which :func:`should_checkpoint` is True.
        on_alert: called in a background thread with every alert that fires.
        embedded: start a service on ./tocsin.db (TOCSIN_DB) that ends with this process, or use one that runs there;
            takes two seconds, needs tocsin[service]. Also TOCSIN_EMBEDDED=1.
        **options: spool, spool_bytes, token_file, attempt, max_vectors, max_bytes, timeout, exit_timeout, ...: see
            docs/client.md.
    """
    made = open_run(run, url=url, config=config, token=token, embedded=embedded, **options)
    if stop_on or checkpoint_on or on_alert:
        made.watch(stop_on=stop_on, checkpoint_on=checkpoint_on, on_alert=on_alert)
    return make_current(made)


def log(metrics: Mapping[str, Any], step: int | None = None, *, time: float | None = None) -> None:
    """:meth:`Run.log` of the current run, which is made from the environment if there is none."""
    current().log(metrics, step, time=time)


def log_tensors(tensors: Mapping[str, Any], step: int, *, time: float | None = None, **options: Any) -> None:
    """:meth:`Run.log_tensors` of the current run."""
    current().log_tensors(tensors, step, time=time, **options)


def log_rollouts(
    rows: Iterable[Mapping[str, Any]] | Mapping[str, Any], step: int, *, time: float | None = None, **options: Any
) -> None:
    """:meth:`Run.log_rollouts` of the current run."""
    current().log_rollouts(rows, step, time=time, **options)


def should_stop() -> bool:
    """:meth:`Run.should_stop` of the current run."""
    return current().should_stop()


def should_checkpoint() -> bool:
    """:meth:`Run.should_checkpoint` of the current run."""
    return current().should_checkpoint()


def finish(timeout: float | None = None) -> bool:
    """:meth:`Run.finish` of the current run."""
    return current().finish(timeout)
