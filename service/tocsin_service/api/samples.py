"""/v1/runs/{run}/alerts/{alert}/samples: what the model wrote when an alert began, and what it had written before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from tocsin_detectors.alerts import Alert
from tocsin_service.api.context import Context, Given, RunId, known_run
from tocsin_service.api.errors import ApiError
from tocsin_service.api.models import ErrorModel, errors
from tocsin_service.api.plain import rendered
from tocsin_service.api.rollout_models import SamplesModel
from tocsin_service.api.rollout_query import TextLength, bounded
from tocsin_service.api.rollouts import ask, summarised
from tocsin_service.lives import Life
from tocsin_service.rollouts.attempts import Within, line, within
from tocsin_service.rollouts.evidence import EVIDENCE, Extreme
from tocsin_service.store import RunSummary

if TYPE_CHECKING:
    from tocsin_service.rollouts.queries import Queries

__all__ = ["router"]

router = APIRouter()

MOST_ALERTS = 10_000  # of a run that are looked through
AlertId = Annotated[
    str, Path(min_length=1, max_length=128, pattern="^[0-9A-Za-z_-]+$", description="Id of an alert of this run.")
]


@router.get(
    "/v1/runs/{run}/alerts/{alert}/samples",
    summary="Show what the model wrote when an alert began",
    responses={
        200: {"model": SamplesModel},
        **errors(404, 422, 501, 503),
        429: {"model": ErrorModel, "description": "As many questions wait as may."},
    },
)
async def list_samples(
    run: RunId,
    alert: AlertId,
    context: Given,
    limit: Annotated[int, Query(ge=1, le=50, description="Samples of each kind.")] = 3,
    text: TextLength = 4000,
) -> Response:
    """The extreme rollouts of the first kept step from the onset on, and of the last one before it.

    Both of the alert's attempt; before its first step those of the attempts that it goes on from.
    """
    found, summary = await asyncio.to_thread(_find, context, run, alert)
    kinds = EVIDENCE.get(found.family)
    if kinds is None:
        raise ApiError(404, f"rollouts say nothing about alerts of the family {found.family}", "family")
    lives = await _lives(context, summary)
    shown = bounded(text, limit * len(kinds) * 2)

    def question(log: Queries) -> dict[str, Any]:
        sides = {"onset": _onset(log, found, lives), "healthy": _healthy(log, found, lives)}
        return {
            "run": run,
            "alert": alert,
            "attempt": found.attempt,
            **{name: _at_a_glance(log, run, side) for name, side in sides.items()},
            "evidence": [
                {
                    "kind": kind.words,
                    "sort": kind.sort,
                    "order": kind.order,
                    **{name: _rows(log, run, side, kind, limit, shown) for name, side in sides.items()},
                }
                for kind in kinds
            ],
        }

    return await rendered(await ask(context, run, question))


@dataclass(frozen=True, slots=True)
class _Side:
    """A step of an attempt whose rows are shown."""

    attempt: int
    within: Within
    step: int


def _onset(log: Queries, alert: Alert, lives: Sequence[Life]) -> _Side | None:
    rows = within(lives, alert.attempt)
    step = log.nearest(alert.run, alert.onset_step, rows, before=False)
    return None if step is None else _Side(alert.attempt, rows, step)


def _healthy(log: Queries, alert: Alert, lives: Sequence[Life]) -> _Side | None:
    for attempt, below in line(lives, alert.attempt, alert.onset_step):
        rows = within(lives, attempt)
        step = log.nearest(alert.run, below, rows, before=True)
        if step is not None:
            return _Side(attempt, rows, step)
    return None


def _at_a_glance(log: Queries, run: str, side: _Side | None) -> dict[str, Any] | None:
    summary = None if side is None else summarised(log, run, side.step, side.within)
    return None if summary is None or side is None else {**summary, "attempt": side.attempt}


def _rows(log: Queries, run: str, side: _Side | None, kind: Extreme, limit: int, text: int) -> list[dict[str, Any]]:
    if side is None:
        return []
    choice = import_module("tocsin_service.rollouts.queries").Choice
    wanted = {"sort": kind.sort, "descending": kind.order == "desc", "limit": limit, "text": text}
    return log.rows(run, choice(side.step, side.step, within=side.within, **wanted))


async def _lives(context: Context, run: RunSummary) -> Sequence[Life]:
    """The run's attempts; of a run that has had one alone nothing has to be told apart."""
    if not run.attempt:
        return ()

    def read() -> Sequence[Life]:
        with context.history.curves(run) as curves:
            return curves.lives

    async with context.large_looks:
        return await asyncio.to_thread(read)


def _find(context: Context, run: str, alert: str) -> tuple[Alert, RunSummary]:
    summary = known_run(context, run)
    for one in context.store.alerts(run, None, None, MOST_ALERTS):
        if one.id == alert:
            return one, summary
    raise ApiError(404, "this run has no such alert", "unknown")
