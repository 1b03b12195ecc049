"""What a process of Tocsin is made of: everything on a file, or the API or a worker on a Redis that they share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from redis import Redis
from starlette.types import ASGIApp

from tocsin_detectors.rules import RuleSet, shipped_rules
from tocsin_service.api import create_app, create_probes
from tocsin_service.api.context import Context
from tocsin_service.dashboard import SHELL
from tocsin_service.exposition import Exposition
from tocsin_service.judging.assembly import Judging
from tocsin_service.judging.crew import CrewCollector
from tocsin_service.judging.membership import alive, worker_name
from tocsin_service.judging.nudges import Nudges
from tocsin_service.rollouts.log import RolloutLog, SettingWrong, open_log
from tocsin_service.server import StartError
from tocsin_service.settings import Settings
from tocsin_service.store import Store
from tocsin_service.store.redis import Address, RedisStore, connect
from tocsin_service.store.redis.connection import failures
from tocsin_service.store.redis.partitions import PARTITIONS
from tocsin_service.store.sqlite import SqliteStore
from tocsin_service.tensors.worker import TensorWorker

__all__ = ["Wire", "Wired", "serve", "work"]


@dataclass(frozen=True, slots=True)
class Wired:
    """The parts of a running process.

    Attributes:
        app: what it serves over HTTP.
        judging: what judges runs in this process, None if that is the task of others.
        store_name: where its store is, without secrets.
        wait_idle: waits until everything acknowledged so far is judged; False if so many seconds didn't do.
        refused: counts a request that is refused before it reaches ``app``, by the limit that it broke.
        ending: called before the HTTP server stops: answers that would go on for ever end.
        page: path of the page for people; None: there is none.
    """

    app: ASGIApp
    store: Store
    judging: Judging | None
    store_name: str
    wait_idle: Callable[[float], bool]
    refused: Callable[[str], None]
    ending: Callable[[], None] = lambda: None
    page: str | None = None


# Starts the parts; the stack stops them again, in reverse order. Raises StoreRefused or StartError.
Wire: TypeAlias = Callable[[Settings, RuleSet | None, Callable[[], float], ExitStack], Wired]


def serve(settings: Settings, rules: RuleSet | None, clock: Callable[[], float], stack: ExitStack) -> Wired:
    """`tocsin serve`: the API; on a file also everything else."""
    return (_embedded if settings.store is None else _web)(settings, rules, clock, stack)


def work(settings: Settings, rules: RuleSet | None, clock: Callable[[], float], stack: ExitStack) -> Wired:
    """`tocsin worker`: judges the runs of a shared store that fall to it, and tells receivers.

    Raises:
        StartError: there is no shared store.
    """
    if settings.store is None:
        raise StartError(
            "workers share a Redis: give --store redis://HOST:PORT/DB, the one that `tocsin serve` has; "
            "on a file `tocsin serve` judges the runs itself"
        )
    store, client = _open(settings, stack)
    exposition = Exposition(store, 0)  # the web processes show the runs
    nudges = Nudges(client, worker_name(), store.news, exposition)
    exposition.register(CrewCollector(client, lambda: nudges.partitions, serves=True))
    judging = Judging(settings, store, exposition, rules, clock, nudges)
    judging.start(stack)
    context = Context(settings, store, exposition, judging.worker.wake, clock, judging.trouble)
    app, name = create_probes(context), str(_address(settings))
    return Wired(app, store, judging, name, judging.worker.wait_idle, exposition.count_limited)


def _embedded(settings: Settings, rules: RuleSet | None, clock: Callable[[], float], stack: ExitStack) -> Wired:
    store = SqliteStore(settings.db, max_runs=settings.max_runs, sync=settings.sync)
    stack.callback(store.close)
    exposition = Exposition(store, settings.max_exported_runs, clock)
    judging = Judging(settings, store, exposition, rules, clock)
    judging.start(stack)
    worker = judging.worker
    tensors = TensorWorker(settings)
    stack.callback(tensors.stop)
    context = Context(
        settings,
        store,
        exposition,
        worker.wake,
        clock,
        judging.trouble,
        tensors=tensors,
        notified=judging.notified,
        rollouts=_rollouts(settings, stack),
        rules=rules or shipped_rules(),
    )
    stack.callback(context.pictures.stop)
    app, name = create_app(context), str(settings.db)
    return Wired(app, store, judging, name, worker.wait_idle, exposition.count_limited, context.closing.set, SHELL)


def _web(settings: Settings, rules: RuleSet | None, clock: Callable[[], float], stack: ExitStack) -> Wired:
    store, client = _open(settings, stack)
    exposition = Exposition(store, settings.max_exported_runs, clock)
    exposition.register(CrewCollector(client, lambda: range(PARTITIONS)))
    tensors = TensorWorker(settings)
    stack.callback(tensors.stop)
    context = Context(
        settings,
        store,
        exposition,
        wake=lambda _: None,  # whoever appends to the log nudges a worker in the same breath
        clock=clock,
        trouble=lambda: None,
        warning=partial(_missing_workers, client),
        tensors=tensors,
        rollouts=_rollouts(settings, stack),
        rules=rules or shipped_rules(),
    )
    stack.callback(context.pictures.stop)
    app, name = create_app(context), str(_address(settings))
    return Wired(
        app, store, None, name, partial(_wait_for_workers, store), exposition.count_limited, context.closing.set, SHELL
    )


def _rollouts(settings: Settings, stack: ExitStack) -> RolloutLog | None:
    try:
        return open_log(settings, stack)
    except SettingWrong as error:
        raise StartError(str(error)) from None


def _open(settings: Settings, stack: ExitStack) -> tuple[RedisStore, Redis]:
    """The store, and a client for what isn't its business."""
    address = _address(settings)
    store = RedisStore(
        address, max_runs=settings.max_runs, max_metrics=settings.max_metrics, max_bytes=settings.max_body_bytes
    )
    stack.callback(store.close)
    client = connect(address, text=False)
    stack.callback(client.close)
    return store, client


def _address(settings: Settings) -> Address:
    return Address(settings.store or "", settings.redis_user, settings.redis_password, settings.redis_ca_file)


def _missing_workers(client: Redis) -> str | None:
    with failures():
        if alive(client):
            return None
    return "no worker is alive: start `tocsin worker` with the same store; vectors are stored but not judged"


def _wait_for_workers(store: RedisStore, timeout: float) -> bool:
    ends, pause = time.monotonic() + timeout, threading.Event()
    while store.news():
        if time.monotonic() > ends:
            return False
        pause.wait(0.01)
    return True
