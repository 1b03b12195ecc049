"""Tocsin's client: what a trainer imports. Standard library only, never in the trainer's way.

    import tocsin

    tocsin.init("my-run", url="http://tocsin:8765", config={"algorithm": "grpo", "framework": "verl"})
    tocsin.log({"actor/kl_loss": 0.01, "actor/entropy": 0.6}, step=1)
    tocsin.finish()

Environment, where no argument is given: TOCSIN_URL, TOCSIN_RUN, TOCSIN_TOKEN; TOCSIN_EXIT_TIMEOUT, the seconds that the
end of the process may wait for unsent vectors (5); TOCSIN_DISABLED=1 turns everything off (say, on all ranks but one);
TOCSIN_DEBUG=1 raises errors instead of logging them (in tests); http_proxy, https_proxy, no_proxy and SSL_CERT_FILE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin._current import current, make_current
from tocsin._run import Run

__all__ = ["Run", "finish", "init", "log"]


def init(
    run: str | None = None,
    *,
    url: str | None = None,
    config: Mapping[str, Any] | None = None,
    token: str | None = None,
    **options: Any,
) -> Run:
    """Names the run that :func:`log` and :func:`finish` mean. Contacts nobody; never raises.

    Args:
        run: the run's id; without it TOCSIN_RUN, else one from host, start time and process.
        url: the server; without it TOCSIN_URL, else http://127.0.0.1:8765.
        config: what the rules should know of the run: algorithm, framework, group_size, target_kl, ...
        token: sent as a bearer token; without it TOCSIN_TOKEN.
        **options: attempt, max_vectors, max_bytes, timeout, exit_timeout.
    """
    return make_current(Run(run, url=url, config=config, token=token, **options))


def log(metrics: Mapping[str, Any], step: int | None = None, *, time: float | None = None) -> None:
    """:meth:`Run.log` of the current run, which is made from the environment if there is none."""
    current().log(metrics, step, time=time)


def finish(timeout: float | None = None) -> bool:
    """:meth:`Run.finish` of the current run."""
    return current().finish(timeout)
