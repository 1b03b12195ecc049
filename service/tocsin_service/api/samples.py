"""/v1/runs/{run}/alerts/{alert}/samples: what the model wrote when an alert began, and what it had written before."""

from __future__ import annotations

import asyncio
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
from tocsin_service.rollouts.evidence import EVIDENCE, Extreme

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
    """The extreme rollouts of the first kept step from the onset on, and of the last one before it."""
    found = await asyncio.to_thread(_find, context, run, alert)
    kinds = EVIDENCE.get(found.family)
    if kinds is None:
        raise ApiError(404, f"rollouts say nothing about alerts of the family {found.family}", "family")

    shown = bounded(text, limit * len(kinds) * 2)

    def question(log: Queries) -> dict[str, Any]:
        onset = log.nearest(run, found.onset_step, None, before=False)
        healthy = log.nearest(run, found.onset_step, None, before=True)

        def rows(step: int | None, kind: Extreme) -> list[dict[str, Any]]:
            if step is None:
                return []
            choice = import_module("tocsin_service.rollouts.queries").Choice
            return log.rows(
                run, choice(step, step, sort=kind.sort, descending=kind.order == "desc", limit=limit, text=shown)
            )

        return {
            "run": run,
            "alert": alert,
            "onset": summarised(log, run, onset),
            "healthy": summarised(log, run, healthy),
            "evidence": [
                {
                    "kind": kind.words,
                    "sort": kind.sort,
                    "order": kind.order,
                    "onset": rows(onset, kind),
                    "healthy": rows(healthy, kind),
                }
                for kind in kinds
            ],
        }

    return await rendered(await ask(context, run, question))


def _find(context: Context, run: str, alert: str) -> Alert:
    known_run(context, run)
    for one in context.store.alerts(run, None, None, MOST_ALERTS):
        if one.id == alert:
            return one
    raise ApiError(404, "this run has no such alert", "unknown")
