"""Pictures of incidents: drawn one after the other, beside the event loop, and kept for those who ask again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tocsin_detectors.texts import Language
from tocsin_service.priority import give_way

__all__ = ["Pictures", "PicturesBusy", "drawn", "installed", "spoken"]

MOST_WAITING = 16  # a few seconds of drawing: whoever shows pictures doesn't wait longer
MOST_KEPT = 32


class PicturesBusy(RuntimeError):  # noqa: N818 - reads as what happened
    """As many pictures wait to be drawn as may."""


def installed() -> bool:
    """Whether there is a matplotlib to draw with; doesn't load it."""
    return find_spec("matplotlib") is not None


def spoken(lang: Language) -> Language:
    """The language in which a picture can be, of one that is asked for. The first call loads matplotlib: seconds."""
    found: Language = import_module("tocsin_service.pictures.drawing").spoken(lang)
    return found


def drawn(*what: Any) -> bytes:
    """What :func:`~tocsin_service.pictures.drawing.draw` makes of it. The first call loads matplotlib: seconds."""
    picture: bytes = import_module("tocsin_service.pictures.drawing").draw(*what)
    return picture


class Pictures:
    """One thread that draws, with a bounded queue and a small memory. For use from one event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "tocsin-pictures", initializer=give_way)
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._waiting: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(self, key: Hashable, draw: Callable[[], bytes]) -> bytes:
        """The picture of this key; ``draw`` makes it, in the thread, unless it is known or being made.

        Raises:
            PicturesBusy: too many wait already.
        """
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._waiting:
            if len(self._waiting) >= MOST_WAITING:
                raise PicturesBusy("too many pictures are asked for at once")
            self._waiting[key] = asyncio.create_task(self._draw(key, draw))
        # Whoever goes away must not take the picture from the others who wait for it.
        return await asyncio.shield(self._waiting[key])

    async def _draw(self, key: Hashable, draw: Callable[[], bytes]) -> bytes:
        try:
            picture = await asyncio.get_running_loop().run_in_executor(self._executor, draw)
        finally:
            del self._waiting[key]
        self._kept[key] = picture
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return picture

    def stop(self) -> None:
        """Drops what waits."""
        self._executor.shutdown(wait=False, cancel_futures=True)
