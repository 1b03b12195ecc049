"""What all integrations do alike: find the host, listen to one of its functions, hand on what may be numbers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tocsin._current import current
from tocsin._guard import guarded
from tocsin._run import Run
from tocsin._values import Refused, hold_value

__all__ = ["DidNotEnable", "follow", "host", "measured", "nothing", "of", "tap"]

_MARK = "_tocsin_taps"


class DidNotEnable(RuntimeError):  # noqa: N818 what happened rather than an error of ours
    """The host of an integration is missing or too old; the text says what to do."""


def nothing() -> None:
    """What a guarded hook returns where it failed."""


def host(module: str, todo: str) -> Any:
    """A module of the host.

    Args:
        module: its full name.
        todo: what to do if it can't be had.

    Raises:
        DidNotEnable: it can't be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DidNotEnable(f"{module} can't be imported ({error}): {todo}") from error


def tap(owner: Any, name: str, hook: Callable[..., None], todo: str, key: object = None) -> None:
    """From now on ``hook`` gets the arguments of every call of ``owner.name``, before the call itself.

    Args:
        owner: a class, a module or another object of the host.
        name: of its function.
        hook: what is to hear of the calls; what it raises goes no further.
        todo: what to do if there is no such function.
        key: tapping again with the same one changes nothing; the run that the hook serves, say.

    Raises:
        DidNotEnable: the owner has no such function.
    """
    original = getattr(owner, name, None)
    if not callable(original):
        raise DidNotEnable(f"{getattr(owner, '__name__', owner)} has no {name}(): {todo}")
    taps: tuple[object, ...] = getattr(original, _MARK, ())
    if key in taps:
        return
    hear = guarded(nothing)(hook)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        hear(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(call, _MARK, (*taps, key))
    setattr(owner, name, call)


def follow(run: Run | None, name: str | None = None) -> Run:
    """The run that is meant.

    Args:
        run: the one that the user has given.
        name: without it and without a current run: the id of the one that is made, if TOCSIN_RUN names none.
    """
    return current(name) if run is None else run


def measured(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Those of ``metrics`` that are single numbers. Hosts log texts, tables and lists beside them: they are left out.

    Args:
        metrics: as the host logs them; None stands for a value that is not finite.
        prefix: put before every name, with a "/".
    """
    begin = f"{prefix}/" if prefix else ""
    found = {}
    for name, value in metrics.items():
        if isinstance(value, (str, bytes, Mapping)):
            continue
        held = hold_value(value)
        if not isinstance(held, Refused):
            found[f"{begin}{name}"] = held
    return found


def of(settings: object, *names: str) -> Any:
    """The value that is found when ``names`` are followed inward, by key or by attribute; None if there is none."""
    for name in names:
        if isinstance(settings, Mapping):
            settings = settings.get(name)
        else:
            # Configuration objects such as OmegaConf's are mappings in all but name.
            get = getattr(settings, "get", None)
            settings = get(name) if callable(get) else getattr(settings, name, None)
        if settings is None:
            return None
    return settings
