"""What the routes work with, and how they get it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator

from tocsin_detectors.rules import RuleSet, shipped_rules
from tocsin_detectors.texts import Language
from tocsin_service.api.errors import ApiError
from tocsin_service.dashboard.changes import Changes
from tocsin_service.dashboard.history import History
from tocsin_service.dashboard.overview import Overview
from tocsin_service.exposition import Exposition
from tocsin_service.pictures import Pictures
from tocsin_service.presentation import Presentation
from tocsin_service.receiving.vectors import is_run_id
from tocsin_service.rollouts.log import RolloutLog
from tocsin_service.settings import Settings
from tocsin_service.store import Appended, Record, RunSummary, Store
from tocsin_service.tensors.worker import TensorWorker

__all__ = [
    "RUN_PATTERN",
    "Context",
    "Given",
    "Limit",
    "RunId",
    "Shown",
    "append",
    "check_run",
    "json_body",
    "known_run",
]


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of the service that the API uses.

    Attributes:
        wake: tells the worker that the log of a run has grown.
        clock: Unix time in seconds.
        trouble: why this process doesn't judge what it should; None while it does.
        warning: why nobody judges, where that is the task of other processes; None while somebody does.
        tensors: computes the metrics of tensors; None where that isn't offered.
        notified: tells the deliveries of this process that they may have more to say, or less.
        pictures: draws incidents.
        rollouts: what the model wrote; None where it isn't kept.
        large_bodies: held while a large body is decoded: a few of them at a time bound the memory.
        large_looks: held while a whole log is read, likewise.
        closing: set when the service is about to stop: answers that would go on for ever end then.
        streams: one mark for each such answer.
        rules: those in force, as this process knows them.
        overview, changes, history: what those who look on ask the store; made of it.
    """

    settings: Settings
    store: Store
    exposition: Exposition
    wake: Callable[[str], None]
    clock: Callable[[], float]
    trouble: Callable[[], str | None]
    warning: Callable[[], str | None] = lambda: None
    tensors: TensorWorker | None = None
    notified: Callable[[], None] = lambda: None
    pictures: Pictures = field(default_factory=Pictures)
    rollouts: RolloutLog | None = None
    large_bodies: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    large_looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    closing: threading.Event = field(default_factory=threading.Event)
    streams: set[object] = field(default_factory=set)
    rules: RuleSet = field(default_factory=shipped_rules)
    overview: Overview = field(init=False)
    changes: Changes = field(init=False)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "overview", Overview(self.store))
        object.__setattr__(self, "changes", Changes(self.store))
        object.__setattr__(self, "history", History(self.store))


# If it weren't async, it would be called in another thread for each request.
async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def check_run(run: str) -> str:
    """The run's id as it is.

    Raises:
        ValueError: it is none.
    """
    if not is_run_id(run):
        raise ValueError("a run id is printable text without control characters, and not '.' or '..'")
    return run


Given = Annotated[Context, Depends(_context)]


def _presentation(
    context: Given, lang: Annotated[Language, Query(description="Language of the texts.")] = "en"
) -> Presentation:
    return Presentation(lang, context.settings.runbook_base)


Shown = Annotated[Presentation, Depends(_presentation)]
RUN_PATTERN = r"^[^/\\\x00-\x1f\x7f]+$"
Limit = Annotated[int, Query(ge=1, le=10_000)]
RunId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=128,
        pattern=RUN_PATTERN,
        description="Id of the run, as its trainer chose it; percent-encoded.",
        examples=["qwen-grpo-7"],
    ),
    AfterValidator(check_run),
]


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    """The description of a route whose body is JSON of this schema."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def append(context: Context, run: str, records: Sequence[Record]) -> Appended:
    """Stores the records and wakes the worker; returns when they are durable."""
    future = context.store.append(run, records, context.clock())
    appended = await asyncio.wrap_future(future)
    if appended.accepted:
        context.wake(run)
    return appended


def known_run(context: Context, run: str) -> RunSummary:
    """The run.

    Raises:
        ApiError: 404 nobody has heard of it.
    """
    summary = context.store.run(run)
    if summary is None:
        raise ApiError(404, "no such run; it begins to exist with its first step vector", "unknown")
    return summary
