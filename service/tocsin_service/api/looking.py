"""What the dashboard looks at: all runs at once, a run's curves as a screen shows them, and news as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.sse import EventSourceResponse
from pydantic import AfterValidator
from starlette.responses import Response

from tocsin_service.api.context import RUN_PATTERN, Given, RunId, Shown, check_run, known_run
from tocsin_service.api.errors import ApiError, StrictJson
from tocsin_service.api.models import ChangeModel, ChartList, Overview, as_json, errors
from tocsin_service.api.runs import MetricName
from tocsin_service.api.vectors import LARGEST_INTEGER
from tocsin_service.dashboard.changes import POLL_SECONDS
from tocsin_service.dashboard.charts import FAMILIES, Window, charts_to_json
from tocsin_service.dashboard.downsample import FEWEST
from tocsin_service.dashboard.history import Curves, read_behind
from tocsin_service.presentation import Presentation
from tocsin_service.store import StoreUnavailable

__all__ = ["router"]

router = APIRouter()

MOST_STREAMS = 200  # each asks the store for news, and holds a connection
LONGEST_SECONDS = 3600

Step = Annotated[int | None, Query(ge=0, le=LARGEST_INTEGER)]


@router.get(
    "/v1/overview",
    summary="Look at all runs",
    responses={200: {"model": Overview}, **errors(422, 503)},
)
async def show_overview(context: Given, shown: Shown, limit: Annotated[int, Query(ge=1, le=2_000)] = 500) -> Response:
    """The runs heard of last, latest first: state, pace, the worst open incident, and the latest rewards."""
    runs = await asyncio.to_thread(context.overview.read, limit, context.clock(), shown)
    return StrictJson({"runs": runs, "total": await asyncio.to_thread(context.store.count_runs)})


@router.get(
    "/v1/runs/{run}/charts",
    summary="Look at a run's curves",
    responses={200: {"model": ChartList}, **errors(404, 422, 503)},
)
async def show_charts(
    run: RunId,
    context: Given,
    shown: Shown,
    *,
    metric: Annotated[list[MetricName] | None, Query(max_length=50, description="Canonical names; all.")] = None,
    family: Annotated[str | None, Query(pattern=f"^({'|'.join(FAMILIES)})$", description="One family of them.")] = None,
    points: Annotated[
        int, Query(ge=FEWEST, le=5_000, description="Most points of a curve; what it thins out is never an extreme.")
    ] = 600,
    first: Step = None,
    last: Step = None,
    behind: Annotated[
        int | None, Query(ge=0, le=LARGEST_INTEGER, description="Only what came in behind this position of the log.")
    ] = None,
) -> Response:
    """Every metric under its canonical name, by family and attempt; extremes and NaN outlast the thinning out."""
    window = Window(points, first, last, family, frozenset(metric or ()))

    def read() -> dict[str, Any]:
        summary = known_run(context, run)
        if behind is None:
            with context.history.curves(summary) as curves:
                return _charts(run, curves, window, shown)
        framework, attempt = summary.config.framework, summary.attempt or 0
        return _charts(run, read_behind(context.store, run, framework, attempt, behind), window, shown)

    async with context.large_looks:
        return await asyncio.to_thread(lambda: StrictJson(read()))


def _charts(run: str, curves: Curves, window: Window, shown: Presentation) -> dict[str, Any]:
    return {
        "run": run,
        "attempt": curves.attempt,
        "position": curves.position,
        "complete": curves.complete,
        "families": charts_to_json(curves, window, shown.lang),
    }


def _watched(
    context: Given,
    run: Annotated[
        str | None,
        Query(min_length=1, max_length=128, pattern=RUN_PATTERN, description="One run; without it, all."),
        AfterValidator(lambda run: run if run is None else check_run(run)),
    ] = None,
) -> str | None:
    """The run that somebody wants to hear of.

    Raises:
        ApiError: 404 there is no such run; 429 as many look on as may.
    """
    if run is not None:
        known_run(context, run)
    if len(context.streams) >= MOST_STREAMS:
        raise ApiError(429, f"{MOST_STREAMS} streams of events are open; close some, or come back later", "streams")
    return run


@router.get(
    "/v1/events",
    summary="Hear of changes",
    response_class=EventSourceResponse,
    responses=as_json(errors(404, 422, 503)),
)
async def stream_events(
    context: Given,
    run: Annotated[str | None, Depends(_watched)],
    seconds: Annotated[int, Query(ge=0, le=LONGEST_SECONDS, description="After so long it ends; ask again.")] = 600,
) -> AsyncIterable[ChangeModel]:
    """Server-sent events: where things stand, and again whenever that changes. What is new is asked for elsewhere."""
    loop, mark, told = asyncio.get_running_loop(), object(), None
    context.streams.add(mark)
    try:
        ends = loop.time() + seconds
        while not context.closing.is_set():
            try:
                change = await asyncio.to_thread(context.changes.of, run)
            except StoreUnavailable:
                return  # the page asks again, and hears then what is wrong
            if change != told:
                told = change
                yield ChangeModel(**asdict(change))
            if loop.time() >= ends:
                return
            await asyncio.sleep(POLL_SECONDS)
    finally:
        context.streams.discard(mark)
