"""The process that :mod:`tocsin._embedded` starts: a service that ends when its standard input does."""

from __future__ import annotations

import logging
import sys
from importlib import import_module

__all__ = ["serve"]


def serve() -> None:
    """Says its address on standard output, or why it can't start, and serves until nobody holds the pipe."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        # By name: the client depends on nothing but the standard library, and this is a program of its own.
        app, settings = import_module("tocsin_service.app"), import_module("tocsin_service.settings")
    except ModuleNotFoundError as error:
        _say(f"{error.name} is not installed; pip install 'tocsin[service]'")
        return
    try:
        service = app.Service(settings.load())
        service.start()
    except (settings.SettingsError, app.StartError) as error:
        _say(" ".join(str(error).split()))
        return
    _say(service.address)
    sys.stdin.buffer.read()
    service.stop()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
