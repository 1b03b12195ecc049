"""The HTTP server of a process: a listener, and uvicorn in a thread that leaves the process's signals alone."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

__all__ = ["Server", "StartError", "address_of", "listen"]

logger = logging.getLogger(__name__)


class StartError(RuntimeError):
    """The process can't start; the message says why and what to do."""


class Server:
    """Serves ``app`` on ``listener`` until it is stopped; ``ended`` is called when it ends, for whatever reason."""

    def __init__(self, app: ASGIApp, listener: socket.socket, stop_seconds: float, ended: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=max(1, round(stop_seconds)),
        )
        self._server = uvicorn.Server(config)
        self._listener, self._ended = listener, ended
        self._thread = threading.Thread(target=self._run, name="tocsin-http", daemon=True)

    def start(self) -> None:
        # The listener queues connections from the beginning, so nobody has to wait for the loop to come up.
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            self._server.run([self._listener])
        except (Exception, SystemExit):
            logger.exception("the HTTP server failed")
        finally:
            self._ended()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        StartError: the address can't be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise StartError(f"host {host!r} can't be listened on ({error}); choose an address of this machine") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise StartError(
            f"{host}:{port} can't be listened on ({error.strerror}); stop what listens there, or choose another port"
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """How this machine reaches ``listener``, e.g. ``http://127.0.0.1:8765``."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
