"""Alerts and incidents: of one run, of all, and what is done about one."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from tocsin_detectors.alerts import Severity, State
from tocsin_service.api import acting, body
from tocsin_service.api.attention import Attention
from tocsin_service.api.context import Given, Limit, RunId, Shown, json_body, known_run
from tocsin_service.api.errors import ApiError, StrictJson
from tocsin_service.api.models import AlertList, IncidentDetail, IncidentList, errors
from tocsin_service.api.wishes import ACKNOWLEDGE_SCHEMA, decode_acknowledgement

__all__ = ["IncidentId", "router"]

router = APIRouter()

StateFilter = Annotated[State | None, Query()]
SeverityFilter = Annotated[Severity | None, Query()]
IncidentId = Annotated[
    str,
    Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="Id of an incident of the run.", examples=["0123456789abcdef"]),
]


@router.get(
    "/v1/runs/{run}/alerts",
    summary="List a run's alerts",
    responses={200: {"model": AlertList}, **errors(404, 422, 503)},
)
def list_run_alerts(
    run: RunId,
    context: Given,
    shown: Shown,
    state: StateFilter = None,
    severity: SeverityFilter = None,
    limit: Limit = 1000,
) -> Response:
    """Alerts in their latest form, newest first."""
    known_run(context, run)
    alerts = context.store.alerts(run, state, severity, limit)
    return StrictJson({"alerts": Attention(context, shown, run).alerts(alerts)})


@router.get(
    "/v1/runs/{run}/incidents",
    summary="List a run's incidents",
    responses={200: {"model": IncidentList}, **errors(404, 422, 503)},
)
def list_run_incidents(
    run: RunId,
    context: Given,
    shown: Shown,
    state: StateFilter = None,
    severity: SeverityFilter = None,
    limit: Limit = 1000,
) -> Response:
    """Incidents in their latest form, newest first."""
    known_run(context, run)
    incidents = context.store.incidents(run, state, severity, limit)
    return StrictJson({"incidents": Attention(context, shown, run).incidents(incidents)})


@router.get(
    "/v1/runs/{run}/incidents/{incident}",
    summary="Show an incident",
    responses={200: {"model": IncidentDetail}, **errors(404, 422, 503)},
)
def show_incident(run: RunId, incident: IncidentId, context: Given, shown: Shown) -> Response:
    """One incident with its alerts, in order of onset."""
    found = context.store.incident(run, incident)
    if found is None:
        raise ApiError(404, "no such incident in this run", "unknown")
    attention = Attention(context, shown, run)
    (told,) = attention.incidents(found[:1])
    return StrictJson({**told, "alerts": attention.alerts(found[1])})


@router.post(
    "/v1/runs/{run}/incidents/{incident}/acknowledge",
    summary="Acknowledge an incident",
    responses={200: {"model": IncidentDetail}, **errors(400, 404, 408, 413, 415, 422, 503)},
    openapi_extra=json_body(ACKNOWLEDGE_SCHEMA),
)
async def acknowledge(
    run: RunId, incident: IncidentId, request: Request, context: Given, shown: Shown, actor: acting.Actor
) -> Response:
    """Says that somebody looks after it: whoever was told hears so, and reminders stop. It may be said again."""
    value = body.parse(await body.read(request, body.SMALL))
    await acting.acknowledge(context, actor, decode_acknowledgement(value, run, incident, context.clock()))
    return await asyncio.to_thread(show_incident, run, incident, context, shown)


@router.get("/v1/alerts", summary="List what is firing", responses={200: {"model": AlertList}, **errors(422, 503)})
def list_alerts(
    context: Given,
    shown: Shown,
    state: StateFilter = State.FIRING,
    severity: SeverityFilter = None,
    limit: Limit = 1000,
) -> Response:
    """Alerts of all runs, newest first; the firing ones unless another state is asked for."""
    alerts = context.store.alerts(None, state, severity, limit)
    return StrictJson({"alerts": Attention(context, shown).alerts(alerts)})


@router.get(
    "/v1/incidents", summary="List open incidents", responses={200: {"model": IncidentList}, **errors(422, 503)}
)
def list_incidents(
    context: Given,
    shown: Shown,
    state: StateFilter = State.FIRING,
    severity: SeverityFilter = None,
    limit: Limit = 1000,
) -> Response:
    """Incidents of all runs, newest first; the open ones unless another state is asked for."""
    incidents = context.store.incidents(None, state, severity, limit)
    return StrictJson({"incidents": Attention(context, shown).incidents(incidents)})
