"""Probes and /metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from tocsin_service.api.context import Given
from tocsin_service.api.errors import ApiError, StrictJson
from tocsin_service.api.models import Health, errors
from tocsin_service.exposition import CONTENT_TYPE

__all__ = ["router"]

router = APIRouter()


@router.get("/healthz", summary="Is the process alive?", responses={200: {"model": Health}, **errors()})
async def healthz() -> Response:
    """Answers as long as the process can answer at all."""
    return StrictJson({"status": "ok"})


@router.get("/readyz", summary="Can vectors be taken?", responses={200: {"model": Health}, **errors(503)})
def readyz(context: Given) -> Response:
    """Whether the store can be written and this process's worker runs; a warning if other processes should work."""
    context.store.check()
    trouble, warning = context.trouble(), context.warning()
    if trouble is not None:
        raise ApiError(503, trouble, "worker")
    return StrictJson({"status": "ready"} if warning is None else {"status": "ready", "warning": warning})


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' text format."},
        **errors(),
    },
    response_class=Response,
)
def metrics(context: Given) -> Response:
    """What is firing, how the runs do, and how the service does."""
    return Response(context.exposition.render(), media_type=CONTENT_TYPE)
