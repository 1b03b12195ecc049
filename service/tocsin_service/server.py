"""The HTTP server of a process: a listener, and uvicorn in a thread that leaves the process's signals alone."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tocsin_service.access.certificates import Certificate, CertificateError
from tocsin_service.access.connections import BoundedProtocol, Bounds, quieten
from tocsin_service.settings import Settings

__all__ = ["Server", "StartError", "address_of", "listen"]

logger = logging.getLogger(__name__)


class StartError(RuntimeError):
    """The process can't start; the message says why and what to do."""


SPARE_FILES = 200  # open files beside the connections: the store, receivers, libraries


class Server:
    """Serves ``app`` on ``listener`` until it is stopped.

    Args:
        app: answers the requests.
        listener: where they come in.
        settings: certificate, bounds, and how long a stop may take.
        refused: counts what is refused before it reaches ``app``, see :class:`~tocsin_service.access.connections.
            BoundedProtocol`.
        ended: called when it ends, for whatever reason.
        bounds: what clients may do, if not what ``settings`` say.

    Raises:
        StartError: the certificate can't be used.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        settings: Settings,
        refused: Callable[[str], None],
        ended: Callable[[], None],
        bounds: Bounds | None = None,
    ) -> None:
        self._certificate = _certificate(settings)
        bounds = bounds or Bounds(settings.max_connections)
        protocol: Any = partial(BoundedProtocol, bounds=bounds, refused=refused)
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=protocol,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(settings.stop_seconds)),
            callback_notify=self._each_second,
            timeout_notify=1,
        )
        config.load()
        config.ssl = None if self._certificate is None else self._certificate.context
        quieten()
        _allow_files(bounds.connections + SPARE_FILES)
        self._server = _Prompt(config)
        self._listener, self._ended = listener, ended
        self._thread = threading.Thread(target=self._run, name="tocsin-http", daemon=True)

    def start(self) -> None:
        # The listener queues connections from the beginning, so nobody has to wait for the loop to come up.
        self._thread.start()

    def stop(self) -> None:
        self._server.end()
        self._thread.join()

    async def _each_second(self) -> None:
        if self._certificate is not None:
            self._certificate.refresh()

    def _run(self) -> None:
        try:
            self._server.run([self._listener])
        except (Exception, SystemExit):
            logger.exception("the HTTP server failed")
        finally:
            self._ended()


class _Prompt(uvicorn.Server):
    """uvicorn looks every tenth of a second whether it is to end; this server is told, and ends at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Makes it end; from any thread, also before it has begun and after it has ended."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        ticks, told = asyncio.create_task(super().main_loop()), asyncio.create_task(self._told.wait())
        await asyncio.wait((ticks, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if self._told.is_set():
            ticks.cancel()
        else:
            await ticks  # it ended by itself, perhaps by an exception

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in (*self.servers, *(sockets or ())):
            one.close()
        await asyncio.sleep(0)  # who was accepted a moment ago is among the connections after this
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)


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


def address_of(listener: socket.socket, *, secure: bool = False) -> str:
    """How this machine reaches ``listener``, e.g. ``http://127.0.0.1:8765``; ``secure``: by https."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    scheme = "https" if secure else "http"
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"


def _certificate(settings: Settings) -> Certificate | None:
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    try:
        return Certificate(settings.tls_cert_file, settings.tls_key_file)
    except CertificateError as error:
        raise StartError(f"tls_cert_file, tls_key_file: {error}") from None


def _allow_files(wanted: int) -> None:
    """Raises this process's limit of open files, which is often low by default, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
