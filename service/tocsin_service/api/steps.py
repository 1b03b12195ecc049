"""POST /v1/runs/{run}/steps: the way in for step vectors."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from tocsin_service.api import body, vectors
from tocsin_service.api.context import Context, Given, RunId, append
from tocsin_service.api.errors import ApiError, StrictJson
from tocsin_service.api.models import AppendedModel, errors
from tocsin_service.receiving.vectors import is_run_id
from tocsin_service.store import Appended, Record, StoreUnavailable, TooManyRuns

__all__ = ["ShortCut", "router"]

router = APIRouter()
PATH = "/v1/runs/{run}/steps"

# Bytes beyond which a body is decoded in a thread, so that other requests are served meanwhile.
LARGE = 2**15
LARGE_GZIPPED = 2**12
ALL_PROBLEMS = (400, 408, 413, 415, 422, 429, 503)

_VECTOR = {
    "type": "object",
    "required": ["step", "metrics"],
    "additionalProperties": False,
    "properties": {
        "step": {"type": "integer", "minimum": 0, "maximum": vectors.LARGEST_INTEGER},
        "metrics": {
            "type": "object",
            "description": "Name to number. NaN and infinities are taken, as bare tokens or as texts; null is NaN.",
            "maxProperties": 2000,
            "propertyNames": {"minLength": 1, "maxLength": 256, "pattern": "^[ -~]+$"},
            "additionalProperties": {
                "anyOf": [
                    {"type": "number"},
                    {"type": "boolean"},
                    {"type": "null"},
                    {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]},
                ]
            },
        },
        "time": {"type": "number", "minimum": vectors.EARLIEST, "exclusiveMaximum": vectors.LATEST},
        "attempt": {"type": "integer", "minimum": 0, "maximum": vectors.LARGEST_INTEGER},
        "sequence": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[ -~]+$"},
    },
    "example": {"step": 12, "metrics": {"critic/rewards/mean": 0.41, "actor/entropy": 0.73, "actor/grad_norm": 0.2}},
}
_BODY = {
    "required": True,
    "description": "One vector, a list of vectors, or one vector a line (NDJSON); may be gzipped.",
    "content": {
        "application/json": {
            "schema": {"anyOf": [_VECTOR, {"type": "array", "minItems": 1, "maxItems": 10_000, "items": _VECTOR}]}
        }
    },
}


@router.post(
    PATH,
    status_code=202,
    summary="Store step vectors",
    responses={202: {"model": AppendedModel, "description": "Stored for good."}, **errors(*ALL_PROBLEMS)},
    openapi_extra={"requestBody": _BODY},
)
async def post_steps(run: RunId, request: Request, context: Given) -> Response:
    """Stores one vector or many; the answer comes when they are durable. A repeated post changes nothing."""
    started = time.monotonic()
    try:
        appended = await _ingest(run, request, context)
    except ApiError as error:
        context.exposition.rejected.labels(error.reason).inc()
        raise
    context.exposition.vectors.inc(appended.accepted)
    context.exposition.repeated.inc(appended.repeated)
    context.exposition.ingest_seconds.observe(time.monotonic() - started)
    return StrictJson({"accepted": appended.accepted, "repeated": appended.repeated}, 202)


class ShortCut(Route):
    """The same for run ids that are good, which is nearly always, without what FastAPI does before it calls a route.

    That takes longer than all that is done for a vector here. What is wrong with other ids is told by the route above.
    """

    def __init__(self) -> None:
        super().__init__(PATH, _post_steps, methods=["POST"], include_in_schema=False)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        if match is Match.FULL and is_run_id(found["path_params"]["run"]):
            return match, found
        return Match.NONE, {}


async def _post_steps(request: Request) -> Response:
    return await post_steps(request.path_params["run"], request, request.app.state.context)


async def _ingest(run: str, request: Request, context: Context) -> Appended:
    sent = await body.receive(request, context.settings.max_body_bytes)
    content_type = request.headers.get("content-type", "")
    if len(sent.data) > (LARGE_GZIPPED if sent.gzipped else LARGE):
        async with context.large_bodies:
            records = await asyncio.to_thread(_decode, context, sent, content_type)
    else:
        records = _decode(context, sent, content_type)
    try:
        return await append(context, run, records)
    except (StoreUnavailable, TooManyRuns) as error:
        raise ApiError.of(error) from None


def _decode(context: Context, sent: body.Sent, content_type: str) -> list[Record]:
    settings = context.settings
    data = body.unpack(sent, settings.max_decoded_bytes)
    return vectors.decode(
        data, content_type, context.clock(), max_metrics=settings.max_metrics, max_batch=settings.max_batch
    )
