"""The run that the module's own functions mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tocsin._run import Run

__all__ = ["current", "make_current", "open_run"]

_runs: list[Run] = []


def open_run(
    run: str | None = None,
    *,
    url: str | None = None,
    config: Mapping[str, Any] | None = None,
    token: str | None = None,
    embedded: bool = False,
    **options: Any,
) -> Run:
    """A run, and the service that it goes to if it is to have one of its own; arguments as of :func:`tocsin.init`."""
    if embedded or (url is None and not os.environ.get("TOCSIN_URL") and _is_set("TOCSIN_EMBEDDED")):
        # Imported by those who use it alone: starting processes takes modules that are slow to import.
        url = import_module("tocsin._embedded").start() or url
    return Run(run, url=url, config=config, token=token, **options)


def make_current(run: Run) -> Run:
    """Makes ``run`` the one that ``tocsin.log`` means. An earlier one stays usable and is flushed at exit."""
    _runs[:] = [run]
    return run


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in {"", "0"}


def current(name: str | None = None) -> Run:
    """The current run; one from the environment if there is none yet.

    Args:
        name: id of the one that is made, unless TOCSIN_RUN names it.
    """
    try:
        return _runs[0]
    except IndexError:
        return make_current(open_run(None if os.environ.get("TOCSIN_RUN") else name))
