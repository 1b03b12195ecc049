"""``tocsin tail``: its arguments, and what it does with them."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from tocsin._guard import logger, say
from tocsin.tail._follower import Follower, Plan
from tocsin.tail._place import Bookmark, BookmarkError, default_path
from tocsin.tail._stop import Stop

__all__ = ["add_arguments", "tail"]

_CONFIG = ("framework", "algorithm", "group_size", "temperature")
_CANNOT = 2
_PATIENCE = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="JSONL, verl file log, CSV, console log, trainer_state.json, TensorBoard events, .wandb; or a folder",
    )
    parser.add_argument("--url", help="address of the service, or of a Redis (default: TOCSIN_URL)")
    parser.add_argument("--run", help="run id for all of it (default: each log is a run, named by its path)")
    parser.add_argument("--token", help="bearer token (default: TOCSIN_TOKEN)")
    parser.add_argument("--once", action="store_true", help="send what is there, say that the run has ended, and end")
    parser.add_argument("--pid", type=int, help="end like --once when this process has ended")
    parser.add_argument("--poll", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks (default 1)")
    parser.add_argument("--state", type=Path, metavar="FILE", help="where it is kept how far everything was delivered")


def tail(arguments: argparse.Namespace) -> int:
    """Follows what the arguments name; the exit status: 0 fine, 1 something was refused, 2 it could not be done.

    Args:
        arguments: those of :func:`add_arguments`; what is known of the run (framework, ...) may stand beside them.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if os.environ.get("TOCSIN_DISABLED", "0") not in {"", "0"}:
        return _cannot("TOCSIN_DISABLED is set: nothing would be sent")
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        bookmark = _bookmark(arguments)
    except BookmarkError as error:
        return _cannot(str(error))
    follower = Follower(_plan(arguments), bookmark, stop)
    try:
        ended = follower.run()
    except BookmarkError as error:
        return _cannot(str(error))
    finally:
        follower.close()
        bookmark.close()
    logger.info("%d vectors delivered, %d refused", follower.delivered, follower.lost)
    if not follower.usable:
        return _CANNOT
    if not ended and not stop.is_set:
        return _cannot(f"not everything was delivered within {_PATIENCE:.0f} seconds; the rest is sent next time")
    return int(follower.lost > 0)


def _cannot(problem: str) -> int:
    sys.stderr.write(f"tocsin: {problem}\n")
    return _CANNOT


def _plan(arguments: argparse.Namespace) -> Plan:
    config = {name: value for name in _CONFIG if (value := getattr(arguments, name, None)) is not None}
    return Plan(
        sources=[Path(source) for source in arguments.sources],
        run=arguments.run,
        config=config,
        client={"url": arguments.url, "token": arguments.token},
        poll=arguments.poll,
        patience=_PATIENCE if arguments.once else None,
        ended=lambda: arguments.once or (arguments.pid is not None and not _lives(arguments.pid)),
    )


def _bookmark(arguments: argparse.Namespace) -> Bookmark:
    if arguments.state is not None:
        return Bookmark(arguments.state)
    words = [*(str(Path(source).absolute()) for source in arguments.sources), arguments.url or "", arguments.run or ""]
    try:
        return Bookmark(default_path(words))
    except BookmarkError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise
        say("%s (until then a restart reads everything again)", error)
        return Bookmark(None)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] == "Z"
        )
    except (OSError, IndexError):
        return False


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError("from above 0 to 3600")
    return seconds
