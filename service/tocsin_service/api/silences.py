"""Silences: for a while nobody is told of what they match. And the audit log, which says who made them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from tocsin_service.api import acting, body
from tocsin_service.api.context import Given, Limit, RunId, json_body, known_run
from tocsin_service.api.errors import StrictJson
from tocsin_service.api.models import ActList, SilenceList, SilenceModel, errors
from tocsin_service.api.wishes import MUTE_SCHEMA, SILENCE_SCHEMA, decode_mute, decode_silence
from tocsin_service.silences import Silence, silence_to_json

__all__ = ["router"]

router = APIRouter()

StateFilter = Annotated[Literal["pending", "active", "expired"] | None, Query()]
SilenceId = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="Id of a silence.")]
CHANGES = (400, 408, 413, 415, 422, 429, 503)


def to_json(silence: Silence, now: float) -> dict[str, Any]:
    """A silence as the API shows it."""
    return {**silence_to_json(silence), "state": silence.state(now)}


@router.get("/v1/silences", summary="List silences", responses={200: {"model": SilenceList}, **errors(422, 503)})
def list_silences(context: Given, state: StateFilter = None) -> Response:
    """All that are known, or those that are pending, active or expired; the latest start first."""
    now = context.clock()
    found = [to_json(one, now) for one in context.store.silences() if state in {None, one.state(now)}]
    return StrictJson({"silences": found})


@router.post(
    "/v1/silences",
    summary="Make a silence",
    responses={200: {"model": SilenceModel}, **errors(*CHANGES)},
    openapi_extra=json_body(SILENCE_SCHEMA),
)
async def make_silence(request: Request, context: Given, actor: acting.Actor) -> Response:
    """While it lasts, nobody is told of what it matches; what still fires afterwards is told then."""
    silence = decode_silence(body.parse(await body.read(request, body.SMALL)), context.clock())
    await acting.add_silence(context, actor, silence)
    return StrictJson(to_json(silence, context.clock()))


@router.delete(
    "/v1/silences/{silence}",
    summary="End a silence",
    responses={200: {"model": SilenceModel}, **errors(404, 422, 503)},
)
async def expire_silence(silence: SilenceId, context: Given, actor: acting.Actor) -> Response:
    """What it held back is told within a minute, if it still fires."""
    found = await acting.expire_silence(context, actor, silence)
    return StrictJson(to_json(found, context.clock()))


@router.post(
    "/v1/runs/{run}/mute",
    summary="Mute a run",
    responses={200: {"model": SilenceModel}, **errors(404, *CHANGES)},
    openapi_extra=json_body(MUTE_SCHEMA),
)
async def mute_run(run: RunId, request: Request, context: Given, actor: acting.Actor) -> Response:
    """A silence of all that this run says. Muting it again replaces the silence."""
    silence = decode_mute(body.parse(await body.read(request, body.SMALL)), run, context.clock())
    await asyncio.to_thread(known_run, context, run)
    await acting.add_silence(context, actor, silence, "mute")
    return StrictJson(to_json(silence, context.clock()))


@router.get("/v1/audit", summary="Who did what", responses={200: {"model": ActList}, **errors(422, 503)})
def list_acts(context: Given, limit: Limit = 1000) -> Response:
    """What changed what people are told, latest first."""
    return StrictJson({"acts": [asdict(act) for act in context.store.acts(limit)]})
