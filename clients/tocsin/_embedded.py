"""A service of one's own, as a child process of the trainer: for a notebook, a laptop, a first try.

One process serves a file at a time. Who comes first starts the service and holds ``DB.embedded`` locked, which tells
the address to all who come later. The service ends with the process that has started it, however that ends: its
standard input is a pipe from there.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tocsin._guard import Mistake, guarded

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

__all__ = ["start"]

_PATIENCE = 30.0
_STOP = 10.0
# The child's service must not take the client's own settings for its own, nor a shared store for the file.
_CLIENT = ("URL", "RUN", "DISABLED", "DEBUG", "EXIT_TIMEOUT", "SPOOL", "SPOOL_BYTES", "EMBEDDED", "STORE")


@dataclass(slots=True)
class _Child:
    """The service, and what ends it when it is closed.

    Attributes:
        process: its process.
        lock: descriptor of the locked file that tells its address.
    """

    process: subprocess.Popen[bytes]
    lock: int

    def stop(self) -> None:
        """Closes the pipe and waits until what was sent is judged and told, at most ten seconds."""
        self.let_go()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP)

    def let_go(self) -> None:
        """Closes what this process holds of it."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        with suppress(OSError):
            os.close(self.lock)


_children: dict[str, tuple[int, str, _Child | None]] = {}  # by path: the process that asked, the address, the child


def _nowhere() -> str | None:
    return None


@guarded(_nowhere)
def start(db: str | os.PathLike[str] | None = None) -> str | None:
    """The address of a service on ``db``, which is started if none runs; None, and the reason logged, if it can't be.

    Takes about two seconds when it starts one.

    Args:
        db: file of its store; without it TOCSIN_DB, else ./tocsin.db.
    """
    if os.environ.get("TOCSIN_DISABLED", "0") not in {"", "0"}:
        return None
    path = Path(db or os.environ.get("TOCSIN_DB") or "tocsin.db").absolute()
    known = _children.get(str(path))
    if known is not None and known[0] == os.getpid():
        return known[1]
    if fcntl is None:
        raise Mistake("an embedded service needs a POSIX system; start one with `tocsin serve`")
    lock = os.open(path.with_name(f"{path.name}.embedded"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            address = _await_address(lock)
        finally:
            os.close(lock)
        _children[str(path)] = (os.getpid(), address, None)
        return address
    try:
        child, address = _spawn(path, lock)
    except BaseException:
        os.close(lock)
        raise
    _children[str(path)] = (os.getpid(), address, child)
    atexit.register(_stop_own, str(path))
    sys.stderr.write(f"tocsin: serving at {address} as long as this process lives (store {path})\n")
    return address


def _spawn(path: Path, lock: int) -> tuple[_Child, str]:
    os.ftruncate(lock, 0)
    environment = {name: value for name, value in os.environ.items() if name.removeprefix("TOCSIN_") not in _CLIENT}
    environment["TOCSIN_DB"] = str(path)
    environment.setdefault("TOCSIN_PORT", "0")
    log = path.with_name(f"{path.name}.log")
    with log.open("ab") as errors:
        # -P: a file of the trainer's directory must not stand in for one of the service's packages. A session of its
        # own: Ctrl-C is for the trainer, which may still have something to say.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tocsin._embedded_service"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    child = _Child(process, lock)
    said = _first_line(process)
    if not said.startswith("http"):
        child.process.kill()
        child.process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        raise Mistake(f"the embedded service can't start: {said or f'see {log}'}")
    os.pwrite(lock, json.dumps({"url": said, "pid": process.pid}).encode(), 0)
    return child, said


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """What the child says of its start, "" if it says nothing in time."""
    assert process.stdout is not None  # noqa: S101 it is a pipe
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE)
    return process.stdout.readline().decode().strip() if ready else ""


def _await_address(lock: int) -> str:
    """What the process that has the lock has written, or will have when its service runs."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        text = os.pread(lock, 1000, 0)
        if text:
            return str(json.loads(text)["url"])
        time.sleep(0.05)
    raise Mistake("another process has begun to start an embedded service on this file, and does not come to an end")


def _stop_own(path: str) -> None:
    process, _, child = _children.get(path, (0, "", None))
    if child is not None and process == os.getpid():
        del _children[path]
        child.stop()


def _after_fork() -> None:
    """In a forked child: its copy of the pipe would keep the service alive when the trainer has gone."""
    for _, _, child in _children.values():
        if child is not None:
            child.let_go()
    _children.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
