"""The guard between Tocsin and the trainer: an error of ours is logged once and goes no further."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["Mistake", "debugging", "guarded", "logger", "say"]

logger = logging.getLogger("tocsin")

P = ParamSpec("P")
T = TypeVar("T")

_said: set[tuple[str, type[Exception]]] = set()


class Mistake(ValueError):  # noqa: N818 the caller's, and no error of ours
    """A mistake of the caller or in the settings: its text says what to do, a traceback would add nothing."""


def debugging() -> bool:
    """Whether TOCSIN_DEBUG asks for errors to be raised (in tests) instead of logged."""
    return os.environ.get("TOCSIN_DEBUG", "0") not in {"", "0"}


def say(text: str, *args: object, traceback: bool = False) -> None:
    """Logs a warning. The trainer's logging handlers are foreign code: what they raise goes no further."""
    try:
        logger.warning(text, *args, exc_info=traceback)
    except Exception:
        if debugging():
            raise


def guarded(default: Callable[[], T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a hook that a trainer calls: it never raises, and returns ``default()`` where it would have.

    Every kind of error is logged once per hook, with its traceback. ``KeyboardInterrupt`` and ``SystemExit`` are the
    trainer's own and pass. With TOCSIN_DEBUG=1 everything is raised.
    """

    def decorate(hook: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(hook)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return hook(*args, **kwargs)
            except Exception as error:
                if debugging():
                    raise
                kind = (hook.__qualname__, type(error))
                if kind not in _said:
                    _said.add(kind)
                    text = "%s: %s (training goes on; said once)"
                    say(text, hook.__qualname__, _text(error), traceback=not isinstance(error, Mistake))
                return default()

        return call

    return decorate


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 the text of a foreign error is foreign code too
        return type(error).__name__
