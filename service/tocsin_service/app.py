"""A process of Tocsin as an object: start, address, stop; and as a program that ends by a signal."""

from __future__ import annotations

import _thread
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from tocsin_service import wiring
from tocsin_service.rulefiles import RulesError, read_rules
from tocsin_service.server import Server, StartError, address_of, listen
from tocsin_service.settings import Settings
from tocsin_service.store import StoreRefused

__all__ = ["Service", "StartError", "run"]

logger = logging.getLogger(__name__)


class Service:
    """A process: by default all of Tocsin on a SQLite file, or the API on a Redis store.

    Args:
        settings: what the operator chose.
        clock: Unix time in seconds.
        wire: what the process is made of, if not that; see :mod:`tocsin_service.wiring`.

    Use :meth:`start` and :meth:`stop`, or ``with Service(settings) as service:``. A stopped service isn't started
    again: make another.
    """

    def __init__(
        self, settings: Settings, clock: Callable[[], float] = time.time, wire: wiring.Wire = wiring.serve
    ) -> None:
        self._settings, self._clock, self._wire = settings, clock, wire
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
        """Starts everything; the address answers when this returns.

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
        return self._wired.wait_idle(timeout)

    def _start(self, stack: contextlib.ExitStack) -> None:
        settings = self._settings
        try:
            rules = read_rules(settings.rules)
        except RulesError as error:
            raise StartError(str(error)) from None
        listener = listen(settings.host, settings.port)
        stack.callback(listener.close)
        try:
            self._wired = self._wire(settings, rules, self._clock, stack)
        except StoreRefused as error:
            raise StartError(str(error)) from None
        server = Server(self._wired.app, listener, settings, self._wired.refused, self.ended.set)
        stack.callback(server.stop)
        stack.callback(self._wired.ending)
        server.start()
        self._address = address_of(listener, secure=settings.tls_cert_file is not None)
        logger.info("listening on %s, store %s", self._address, self._wired.store_name)
        if self._wired.page is not None:
            logger.info("dashboard: %s%s", self._address, self._wired.page)


def run(settings: Settings, wire: wiring.Wire = wiring.serve) -> int:
    """Runs a process until SIGTERM or SIGINT, then stops gracefully; the process's exit status.

    Must be called from the main thread.

    Raises:
        StartError: the store or the address can't be had.
    """
    service = Service(settings, wire=wire)
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
