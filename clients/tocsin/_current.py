"""The run that the module's own functions mean."""

from __future__ import annotations

from tocsin._run import Run

__all__ = ["current", "make_current"]

_runs: list[Run] = []


def make_current(run: Run) -> Run:
    """Makes ``run`` the one that ``tocsin.log`` means. An earlier one stays usable and is flushed at exit."""
    _runs[:] = [run]
    return run


def current() -> Run:
    """The current run; one from the environment if there is none yet."""
    try:
        return _runs[0]
    except IndexError:
        return make_current(Run())
