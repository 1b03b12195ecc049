"""``tocsin rollouts``: sends files of rollouts to a service, those of a run that goes on too."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tocsin._guard import logger
from tocsin._rollouts import hold_rows, spelled_out
from tocsin._run import Run
from tocsin.readers import ReadError
from tocsin.rollouts._files import Step, find, read

__all__ = ["add_arguments", "send"]

_CANNOT = 2
_LOOK = 0.02  # seconds between looks at what is still waiting
_POLL = 1.0  # and between looks for new files
_SETTLED = 2.0  # a file that was written to so short a time ago may not be whole
_PATIENCE = 120.0
_GOODBYE = 5.0  # the same after a signal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="verl's rollout dump, TRL's completions parquet, or JSONL/Parquet of rows; a file or a folder",
    )
    parser.add_argument("--url", help="address of the service (default: TOCSIN_URL)")
    parser.add_argument("--run", help="run id (default: TOCSIN_RUN)")
    parser.add_argument("--token", help="bearer token (default: TOCSIN_TOKEN)")
    parser.add_argument("--response-limit", type=int, help="longest possible response in tokens")
    parser.add_argument("--follow", action="store_true", help="go on with files that come, until a signal ends it")


def send(arguments: argparse.Namespace) -> int:
    """Sends what the arguments name; the exit status: 0 fine, 1 something was refused, 2 it could not be done."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if os.environ.get("TOCSIN_DISABLED", "0") not in {"", "0"}:
        return _cannot("TOCSIN_DISABLED is set: nothing would be sent")
    if not (arguments.run or os.environ.get("TOCSIN_RUN")):
        return _cannot("say whose rollouts these are: --run RUN")
    sender = _Sender(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sender.stop.set())
    try:
        if arguments.follow:
            sender.follow()
        else:
            sender.send_all()
    except ReadError as error:
        return _cannot(str(error))
    return sender.finish()


def _cannot(problem: str) -> int:
    sys.stderr.write(f"tocsin: {problem}\n")
    return _CANNOT


class _Sender:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.stop = threading.Event()
        self._sources: list[str] = arguments.sources
        self._limit: int | None = arguments.response_limit
        self._run = Run(arguments.run, url=arguments.url, token=arguments.token)
        self._done: set[tuple[str, float, int]] = set()

    def send_all(self) -> None:
        """Raises ReadError where a file can't be read."""
        for source in self._sources:
            for step in read(source):
                if self.stop.is_set():
                    return
                self._send(step)

    def follow(self) -> None:
        """Files that can't be read are said, and tried again when they have changed."""
        while not self.stop.is_set():
            for source in self._sources:
                try:
                    paths = find(source)
                except ReadError:
                    continue  # the trainer hasn't written yet
                for path in paths:
                    self._look_at(path)
            self.stop.wait(_POLL)

    def finish(self) -> int:
        """Waits for what is on its way, and says what became of it; the exit status. The run itself may go on."""
        delivered = self._wait(0)
        stats = self._run.rollout_stats()
        logger.info("%d steps of rollouts delivered, %s dropped", stats["delivered"], stats["dropped"] or "none")
        return int(not delivered or bool(stats["dropped"]))

    def _look_at(self, path: Path) -> None:
        try:
            facts = path.stat()
        except OSError:
            return
        mark = (str(path), facts.st_mtime, facts.st_size)
        if mark in self._done or time.time() - facts.st_mtime < _SETTLED or self.stop.is_set():
            return
        self._done.add(mark)
        try:
            for step in read(path):
                self._send(step)
        except ReadError as error:
            logger.warning("%s", error)

    def _send(self, step: Step) -> None:
        """Hands one step over once there is room: a file can wait, so nothing need give way."""
        held, _, _ = hold_rows(step.rows)
        digest = hashlib.blake2b(spelled_out(held), digest_size=16)
        digest.update(json.dumps(step.step).encode())
        self._run.log_rollouts(
            step.rows, step.step, time=step.time, sequence=digest.hexdigest(), response_limit=self._limit
        )
        self._wait(1)

    def _wait(self, most: int) -> bool:
        """Waits until at most so many steps wait; False if that takes too long."""
        ends = time.monotonic() + _PATIENCE
        while self._run.rollout_stats()["waiting"] > most:
            if time.monotonic() > ends:
                return False
            if self.stop.is_set():
                ends = min(ends, time.monotonic() + _GOODBYE)
            time.sleep(_LOOK)
        return True
