"""POST /v1/runs/{run}/tensors: a batch's tensors come in, their metrics join the step's vector."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tocsin_detectors.entries import StepVector
from tocsin_service.api.context import Context, Given, RunId, append
from tocsin_service.api.errors import ApiError, StrictJson
from tocsin_service.api.models import ErrorModel, MeasuredModel, errors
from tocsin_service.api.plain import plain
from tocsin_service.api.tensor_body import Incoming
from tocsin_service.api.tensor_query import TensorQuery
from tocsin_service.receiving import vectors
from tocsin_service.store import Appended, StoreUnavailable, TooManyRuns
from tocsin_service.tensors.admission import Full
from tocsin_service.tensors.errors import FileError, TensorsRefused
from tocsin_service.tensors.intake import TensorFile
from tocsin_service.tensors.names import NAMES

if TYPE_CHECKING:
    from tocsin_service.tensors.compute import Computed

__all__ = ["router"]

router = APIRouter()

Asked = Annotated[TensorQuery, Query()]
_BODY = {
    "description": "safetensors, not compressed. Nothing if `file` is given.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_RESPONSES = errors(400, 408, 411, 413, 415, 422, 429, 501, 503) | {
    200: {"model": MeasuredModel, "description": "Computed, and stored for good."},
    415: {"model": ErrorModel, "description": "The body is compressed."},
    429: {"model": ErrorModel, "description": "As many tensors are under way as may be, or as many runs are stored."},
}


@router.post(
    "/v1/runs/{run}/tensors",
    summary="Compute metrics of tensors",
    responses=_RESPONSES,
    openapi_extra={"requestBody": _BODY},
)
async def post_tensors(run: RunId, request: Request, context: Given, query: Asked) -> Response:
    """Computes the metrics of a batch and stores them as a vector of the step; the answer comes when it is durable."""
    started = time.monotonic()
    exposition = context.exposition
    incoming = Incoming(request)
    try:
        query.refuse_unknown(request.query_params)
        computed = await _compute(query, incoming, context)
        appended = await _store(run, query, computed, context)
    except ApiError as error:
        exposition.tensor_rejected.labels(error.reason).inc()
        await incoming.discard()
        raise
    exposition.tensor_requests.inc()
    exposition.tensor_bytes.inc(computed.size)
    exposition.tensor_seconds.observe(time.monotonic() - started)
    return StrictJson(
        {
            "accepted": appended.accepted,
            "repeated": appended.repeated,
            "metrics": plain(computed.metrics),
            "findings": plain(computed.findings),
            "warnings": computed.warnings,
        }
    )


async def _compute(query: TensorQuery, incoming: Incoming, context: Context) -> Computed:
    worker = context.tensors
    if worker is None or not worker.installed():
        raise ApiError(501, "this service can't compute tensors; install it with: pip install 'tocsin[torch]'", "torch")
    try:
        options = await asyncio.to_thread(worker.options, query.options())
        if query.file is None:
            size = incoming.declared()
            _check_size(size, context)
            with worker.admission.place(size):
                return await _result(worker.submit(await incoming.read(size), options))
        file = await asyncio.to_thread(_open, context.settings.tensor_dir, query.file)
        try:
            _check_size(file.size, context)
            with worker.admission.place(file.size):
                return await _result(worker.submit(await asyncio.to_thread(file.read, NAMES), options))
        finally:
            file.close()
    except TensorsRefused as error:
        raise ApiError(422, str(error), error.reason) from None
    except Full as error:
        raise ApiError(429, f"{error}; send it again later", "full") from None
    except MemoryError as error:
        raise ApiError(503, f"there is no memory for it now: {error}; send it again later", "memory") from None


async def _result(future: Future[Computed | TensorsRefused]) -> Computed:
    result = await asyncio.wrap_future(future)
    if isinstance(result, TensorsRefused):
        raise result
    return result


def _check_size(size: int, context: Context) -> None:
    limit = context.settings.max_tensor_bytes
    if size > limit:
        raise ApiError(413, f"{size} bytes are more than the {limit} that are allowed; send fewer rows", "too_large")


def _open(directory: Path | None, name: str) -> TensorFile:
    if directory is None:
        raise FileError("this service reads no files: send the tensors in the body, or set its tensor_dir")
    return TensorFile(directory, name)


async def _store(run: str, query: TensorQuery, computed: Computed, context: Context) -> Appended:
    check = vectors.Check(context.settings.max_metrics, enough=20)
    record = vectors.read(query.vector(computed.metrics), context.clock(), check)
    if record is None or not isinstance(record.entry, StepVector):
        raise ApiError(422, "nothing was stored: the metrics make no vector; see problems", "content", check.problems)
    try:
        return await append(context, run, [replace(record, entry=replace(record.entry, computed=True))])
    except (StoreUnavailable, TooManyRuns) as error:
        raise ApiError.of(error) from None
