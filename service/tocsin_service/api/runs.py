"""What is known of the runs, and what their trainers or people say of them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import StringConstraints
from starlette.responses import Response

from tocsin_detectors.entries import RunConfig
from tocsin_service.api import acting, body
from tocsin_service.api.configs import CONFIG_SCHEMA, REBASELINE_SCHEMA, decode_config, decode_rebaseline
from tocsin_service.api.context import Given, Limit, RunId, append, json_body, known_run
from tocsin_service.api.errors import StrictJson
from tocsin_service.api.models import AppendedModel, RunList, RunModel, SeriesList, errors
from tocsin_service.api.series import read_series
from tocsin_service.api.vectors import LARGEST_INTEGER
from tocsin_service.store import Record, RunSummary

__all__ = ["MetricName", "router"]

router = APIRouter()

MetricName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Metrics = Annotated[list[MetricName], Query(min_length=1, max_length=50, description="Own or canonical names.")]
After = Annotated[int | None, Query(ge=0, le=LARGEST_INTEGER, description="Only steps beyond this one.")]


def summary_to_json(summary: RunSummary) -> dict[str, Any]:
    """A run as the API shows it."""
    data = asdict(summary)
    data["config"] = config_to_json(summary.config)
    return data


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """The fields that are set."""
    return {name: value for name, value in asdict(config).items() if value is not None and value != {}}


@router.get("/v1/runs", summary="List runs", responses={200: {"model": RunList}, **errors(422, 503)})
def list_runs(context: Given, limit: Limit = 1000) -> Response:
    """The runs heard of last, latest first."""
    return StrictJson({"runs": [summary_to_json(summary) for summary in context.store.runs(limit)]})


@router.get("/v1/runs/{run}", summary="Show a run", responses={200: {"model": RunModel}, **errors(404, 422, 503)})
def show_run(run: RunId, context: Given) -> Response:
    """One run at a glance."""
    return StrictJson(summary_to_json(known_run(context, run)))


@router.put(
    "/v1/runs/{run}",
    summary="Describe a run",
    responses={200: {"model": RunModel}, **errors(400, 408, 413, 415, 422, 429, 503)},
    openapi_extra=json_body(CONFIG_SCHEMA),
)
async def describe_run(run: RunId, request: Request, context: Given, actor: acting.Actor) -> Response:
    """Sets what the trainer knows of its run; fields that are left out keep their value."""
    config = decode_config(body.parse(await body.read(request, body.SMALL)))
    appended = await append(context, run, [Record(config)])
    if appended.accepted:
        await acting.write_down(context, actor, "configure", run, config_to_json(config))
    return StrictJson(summary_to_json(await asyncio.to_thread(known_run, context, run)))


@router.post(
    "/v1/runs/{run}/rebaseline",
    status_code=202,
    summary="Accept a new normal",
    responses={202: {"model": AppendedModel}, **errors(400, 404, 408, 413, 415, 422, 503)},
    openapi_extra=json_body(REBASELINE_SCHEMA),
)
async def rebaseline(run: RunId, request: Request, context: Given, actor: acting.Actor) -> Response:
    """Forgets the baselines of one metric or of all, and resolves the alerts that they raised."""
    entry = decode_rebaseline(body.parse(await body.read(request, body.SMALL)))
    await asyncio.to_thread(known_run, context, run)
    appended = await acting.rebaseline(context, actor, run, [entry])
    return StrictJson({"accepted": appended.accepted, "repeated": appended.repeated}, 202)


@router.get(
    "/v1/runs/{run}/series", summary="Read metrics", responses={200: {"model": SeriesList}, **errors(404, 422, 503)}
)
def show_series(run: RunId, context: Given, metric: Metrics, after: After = None, limit: Limit = 1000) -> Response:
    """Steps and values of one or more metrics; without ``after`` the latest."""
    framework = known_run(context, run).config.framework
    series = read_series(context.store, run, metric, after=after, limit=limit, framework=framework)
    return StrictJson({"run": run, "series": series})
