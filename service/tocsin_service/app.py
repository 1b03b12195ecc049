"""The service: store, worker, delivery and HTTP server, wired together."""

from __future__ import annotations

import _thread
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from tocsin_service.api import create_app
from tocsin_service.api.context import Context
from tocsin_service.delivery import Delivery, Receiver
from tocsin_service.delivery.slack import Slack
from tocsin_service.delivery.webhook import Webhook
from tocsin_service.exposition import Exposition
from tocsin_service.presentation import Presentation
from tocsin_service.rulefiles import RulesError, read_rules
from tocsin_service.settings import Settings
from tocsin_service.stalled import Watchdog
from tocsin_service.store import StoreRefused
from tocsin_service.store.sqlite import SqliteStore
from tocsin_service.worker import Worker

__all__ = ["Service", "StartError", "run"]

logger = logging.getLogger(__name__)


class StartError(RuntimeError):
    """The service can't start; the message says why and what to do."""


class Service:
    """The embedded service: one process, one SQLite file.

    Args:
        settings: what the operator chose.
        clock: Unix time in seconds.

    Use :meth:`start` and :meth:`stop`, or ``with Service(settings) as service:``. A stopped service isn't started
    again: make another.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._settings, self._clock = settings, clock
        self._stack = contextlib.ExitStack()  # what has been started, to be stopped in reverse order
        self._address: str | None = None
        self.ended = threading.Event()  # set when the HTTP server has ended, for whatever reason
        self._gate = threading.Lock()

    @property
    def address(self) -> str:
        """Where the API is, e.g. ``http://127.0.0.1:8765``.

        Raises:
            StartError: the service isn't running.
        """
        if self._address is None:
            raise StartError("the service is not running; call start() first")
        return self._address

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything; the API answers when this returns.

        Raises:
            StartError: the store or the address can't be had.
        """
        with self._gate, contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()

    def stop(self) -> None:
        """Ends gracefully: answers what came in, folds what is stored, tells whom it can, and keeps the rest for later.

        May be called twice, and from any thread.
        """
        with self._gate:
            self._address = None
            self._stack.close()

    def wait_idle(self, timeout: float) -> bool:
        """Waits until everything acknowledged so far is judged; False if ``timeout`` seconds didn't do."""
        return self._worker.wait_idle(timeout)

    def _start(self, stack: contextlib.ExitStack) -> None:
        settings, clock = self._settings, self._clock
        try:
            rules = read_rules(settings.rules)
        except RulesError as error:
            raise StartError(str(error)) from None
        listener = _listen(settings.host, settings.port)
        stack.callback(listener.close)
        try:
            store = SqliteStore(settings.db, max_runs=settings.max_runs, sync=settings.sync)
        except StoreRefused as error:
            raise StartError(str(error)) from None
        stack.callback(store.close)
        exposition = Exposition(store, settings.max_exported_runs)
        deliveries = {receiver.name: Delivery(store, receiver, exposition, clock) for receiver in _receivers(settings)}
        for delivery in deliveries.values():
            delivery.start()
            stack.callback(delivery.stop, settings.stop_seconds)

        def notified() -> None:
            for delivery in deliveries.values():
                delivery.wake()

        worker = self._worker = Worker(store, exposition, tuple(deliveries), rules, notified, clock)
        worker.start()
        stack.callback(worker.stop, settings.stop_seconds)
        watchdog = Watchdog(store, tuple(deliveries), notified, clock, rules)
        watchdog.start()
        stack.callback(watchdog.stop)
        context = Context(settings, store, exposition, worker.wake, clock, worker.alive)
        server = _Server(create_app(context), listener, settings.stop_seconds, self.ended.set)
        stack.callback(server.stop)
        server.start()
        self._address = _address(listener)
        logger.info("listening on %s, store %s", self._address, settings.db)


class _Server:
    """uvicorn in a thread of its own, which leaves the process's signals alone."""

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


def run(settings: Settings) -> int:
    """Serves until SIGTERM or SIGINT, then stops gracefully; the process's exit status.

    Must be called from the main thread.

    Raises:
        StartError: the store or the address can't be had.
    """
    service = Service(settings)
    asked = threading.Event()

    def end(number: int) -> None:
        logger.info("stopping: %s", signal.Signals(number).name)
        asked.set()
        service.ended.set()

    def on_signal(number: int, _: FrameType | None) -> None:
        # The handler interrupts the main thread anywhere, also where it holds the lock of the event that it waits for,
        # or one of logging's or threading's. A thread of its own waits for them; this way of starting it takes none.
        _thread.start_new_thread(end, (number,))

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with service:
            service.ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0 if asked.is_set() else 1  # 1: the server ended by itself, which it never should


def _receivers(settings: Settings) -> list[Receiver]:
    shown = Presentation(settings.lang, settings.runbook_base)
    receivers: list[Receiver] = []
    if settings.slack_webhook is not None:
        receivers.append(Slack(settings.slack_webhook, shown))
    if settings.webhook is not None:
        receivers.append(Webhook(settings.webhook, settings.webhook_secret, shown))
    return receivers


def _listen(host: str, port: int) -> socket.socket:
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


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
