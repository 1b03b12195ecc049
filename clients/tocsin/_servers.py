"""Which kind of server an address means."""

from __future__ import annotations

from tocsin._courier import Courier
from tocsin._http import HttpCourier
from tocsin._redis import RedisAddress, RedisCourier
from tocsin._settings import Settings

__all__ = ["open_courier"]


def open_courier(settings: Settings, timeout: float) -> Courier:
    """The courier for the run of ``settings``. Connects to nobody yet.

    Args:
        settings: names the run and its server.
        timeout: seconds that connecting, and every wait for bytes, may take.
    """
    if isinstance(settings.address, RedisAddress):
        return RedisCourier(settings.address, settings.run, timeout)
    return HttpCourier(settings.address, settings.path, timeout)
