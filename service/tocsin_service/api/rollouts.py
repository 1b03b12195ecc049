"""/v1/runs/{run}/rollouts: what the model wrote comes in, and is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tocsin_detectors.entries import StepVector
from tocsin_service.api import body
from tocsin_service.api.context import Context, Given, RunId, append, known_run
from tocsin_service.api.errors import ApiError, StrictJson
from tocsin_service.api.models import ErrorModel, Responses, errors
from tocsin_service.api.plain import plain, rendered
from tocsin_service.api.rollout_models import DiffModel, KeptModel, RowList, StepList
from tocsin_service.api.rollout_query import PostQuery, RowsQuery, StepNumber, TextLength, bounded, refuse_unknown
from tocsin_service.api.tensor_body import Incoming
from tocsin_service.receiving import vectors
from tocsin_service.rollouts.attempts import Within
from tocsin_service.rollouts.errors import RolloutsRefused, RolloutsUnavailable
from tocsin_service.rollouts.log import RolloutLog
from tocsin_service.store import StoreUnavailable, TooManyRuns
from tocsin_service.tensors.admission import Full

if TYPE_CHECKING:
    from tocsin_service.rollouts.queries import Queries
    from tocsin_service.rollouts.writing import Keeper, Kept, Measured

__all__ = ["ask", "router", "summarised"]

router = APIRouter()
T = TypeVar("T")
UNREAD = frozenset({"full", "off", "options"})  # reasons that are known before the body has been read

_NUMBER = {"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "string", "enum": ["NaN", "Infinity"]}]}
_WHOLE = {"type": ["integer", "null"], "minimum": 0, "maximum": vectors.LARGEST_INTEGER}
_NAME = {"type": ["string", "null"], "minLength": 1, "maxLength": 256}
_ROW = {
    "type": "object",
    "required": ["response"],
    "additionalProperties": False,
    "properties": {
        "prompt": {"type": ["string", "null"]},
        "response": {"type": "string"},
        "reward": {**_NUMBER, "description": "Final, after penalties. null: unknown. NaN is taken."},
        "scores": {
            "type": ["object", "null"],
            "maxProperties": 32,
            "propertyNames": {"minLength": 1, "maxLength": 256},
            "additionalProperties": _NUMBER,
        },
        "advantage": _NUMBER,
        "group": _NAME,
        "domain": _NAME,
        "length": _WHOLE,
        "finish_reason": _NAME,
        "ground_truth": {"type": ["string", "null"]},
        "index": _WHOLE,
    },
    "example": {"prompt": "2+2=", "response": "4", "reward": 1.0, "group": "17", "length": 3, "finish_reason": "stop"},
}
_BODY = {
    "required": True,
    "description": "One row a line (NDJSON), a JSON list, or the same columns as Arrow IPC or Parquet; may be gzipped.",
    "content": {"application/json": {"schema": {"type": "array", "minItems": 1, "maxItems": 100_000, "items": _ROW}}},
}
_POST_ANSWERS = errors(400, 408, 413, 415, 422, 429, 501, 503) | {
    202: {"model": KeptModel, "description": "Kept for good, and measured."},
    429: {"model": ErrorModel, "description": "As many rollouts are under way as may be, or as many runs are stored."},
}
_BUSY: Responses = {429: {"model": ErrorModel, "description": "As many questions wait as may."}}


@router.post(
    "/v1/runs/{run}/rollouts",
    status_code=202,
    summary="Store a step's rollouts",
    responses=_POST_ANSWERS,
    openapi_extra={"requestBody": _BODY},
)
async def post_rollouts(run: RunId, request: Request, context: Given, query: Annotated[PostQuery, Query()]) -> Response:
    """Keeps prompts, responses and scores, and makes metrics of them that join the step's vector."""
    started = time.monotonic()
    try:
        answer = await _take(run, request, context, query)
    except ApiError as error:
        context.exposition.rollout_rejected.labels(error.reason).inc()
        if error.reason in UNREAD:
            await Incoming(request).discard()
        raise
    context.exposition.rollout_rows.inc(answer["rows"])
    context.exposition.rollout_seconds.observe(time.monotonic() - started)
    return StrictJson(plain(answer), 202)


@router.get(
    "/v1/runs/{run}/rollouts",
    summary="Read rollouts",
    responses={200: {"model": RowList}, **errors(404, 422, 501, 503), **_BUSY},
)
async def list_rollouts(run: RunId, request: Request, context: Given, query: Annotated[RowsQuery, Query()]) -> Response:
    """The rows of one step, or the extreme ones of a range of steps or of the run."""
    refuse_unknown(request.query_params, RowsQuery.model_fields)
    fields = query.model_dump(exclude={"step", "order", "sort", "first", "last", "text"})
    first, last = query.steps
    sort = query.sort or ("reward" if query.step is None else "row")

    def question(log: Queries) -> list[dict[str, Any]]:
        choice = import_module("tocsin_service.rollouts.queries").Choice
        return log.rows(
            run, choice(first, last, sort=sort, descending=query.order == "desc", text=query.shown, **fields)
        )

    return await rendered({"run": run, "rows": await ask(context, run, question)})


@router.get(
    "/v1/runs/{run}/rollouts/steps",
    summary="List the steps whose rollouts are kept",
    responses={200: {"model": StepList}, **errors(404, 422, 501, 503), **_BUSY},
)
async def list_steps(
    run: RunId,
    context: Given,
    first: StepNumber | None = None,
    last: StepNumber | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """The steps, the latest first, with the number of rows that are kept."""
    steps = await ask(context, run, lambda log: log.steps(run, first, last, limit))
    return StrictJson({"run": run, "steps": steps})


@router.get(
    "/v1/runs/{run}/rollouts/diff",
    summary="Compare the rollouts of two steps",
    responses={200: {"model": DiffModel}, **errors(404, 422, 501, 503), **_BUSY},
)
async def compare(
    run: RunId,
    context: Given,
    before: StepNumber,
    after: StepNumber,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    text: TextLength = 4000,
) -> Response:
    """Both steps at a glance, and how the prompts that they share were answered."""

    def question(log: Queries) -> dict[str, Any]:
        return {
            "run": run,
            "before": summarised(log, run, before),
            "after": summarised(log, run, after),
            "prompts": log.shared_prompts(run, before, after, limit, bounded(text, limit)),
        }

    found = await ask(context, run, question)
    for name, step in (("before", before), ("after", after)):
        if found[name] is None:
            raise ApiError(404, f"no rollouts of step {step} are kept", "unknown")
    return await rendered(found)


def summarised(log: Queries, run: str, step: int | None, within: Within | None = None) -> dict[str, Any] | None:
    """A step at a glance, of one attempt or of all; None if nothing of it is kept."""
    summary = None if step is None else log.summary(run, step, within)
    return None if summary is None else {"step": step, **summary}


async def ask(context: Context, run: str, question: Callable[[Queries], T]) -> T:
    """The answer to a question about a known run.

    Raises:
        ApiError: 404 an unknown run, 429 too many ask, 501 nothing is kept here, 503 the files can't be read.
    """
    log = _log(context)
    await asyncio.to_thread(known_run, context, run)
    try:
        with log.questions.place(1):
            return await log.ask(question)
    except Full as error:
        raise ApiError(429, f"{error}; ask again later", "full") from None
    except RolloutsUnavailable as error:
        raise ApiError(503, str(error), "files") from None


def _log(context: Context) -> RolloutLog:
    if context.rollouts is None:
        raise ApiError(501, "this service keeps no rollouts: set its rollout_dir (docs/rollouts.md)", "off")
    return context.rollouts


async def _take(run: str, request: Request, context: Context, query: PostQuery) -> dict[str, Any]:
    refuse_unknown(request.query_params, PostQuery.model_fields)
    log = _log(context)
    limit = context.settings.max_rollout_bytes
    declared = request.headers.get("content-length", "")
    size = min(int(declared), limit) if declared.isascii() and declared.isdigit() and len(declared) < 20 else limit
    try:
        with log.admission.place(size):
            sent = await body.receive(request, limit, "rollouts")
            content_type = request.headers.get("content-type", "")
            given = query.time is not None
            now = query.time if query.time is not None else context.clock()
            work = _Work(run, query, sent, content_type, limit, now, given=given)
            del sent
            done = await log.write(work)
    except Full as error:
        raise ApiError(429, f"{error}; send it again later", "full") from None
    except RolloutsRefused as error:
        raise ApiError(422, str(error), "content", error.problems) from None
    except MemoryError:
        raise ApiError(503, "there is no memory for it now; send it again later", "memory") from None
    accepted = {"accepted": 0, "repeated": 0}
    if query.measure:
        accepted = await _store(run, query, done, context)
    if isinstance(done.kept, RolloutsUnavailable):  # the rules have heard of it all the same
        raise ApiError(503, f"{done.kept}; send it again later", "disk")
    log.tidy_later(run)
    metrics = done.metrics if query.measure else {}
    return accepted | {"rows": done.rows, "kept": done.kept.rows, "metrics": metrics, "warnings": done.warnings}


class _Done:
    def __init__(self, measured: Measured, kept: Kept | RolloutsUnavailable, key: str, warnings: list[str]) -> None:
        self.metrics, self.rows = measured.metrics, measured.table.num_rows
        self.kept, self.key, self.warnings = kept, key, warnings


class _Work:
    """What the writing thread does with a body; it holds the body alone, and lets go of it as early as it can."""

    def __init__(
        self, run: str, query: PostQuery, sent: body.Sent, content_type: str, limit: int, now: float, *, given: bool
    ) -> None:
        self._run, self._query, self._now, self._limit = run, query, now, limit
        self._sent: body.Sent | None = sent
        self._content_type, self._time_given = content_type, given

    def __call__(self, keeper: Keeper) -> _Done:
        writing, files = (import_module(f"tocsin_service.rollouts.{name}") for name in ("writing", "files"))
        decode = import_module("tocsin_service.rollouts.decoding").decode
        assert self._sent is not None  # noqa: S101 - called once
        data = body.unpack(self._sent, self._limit, "rollouts")
        self._sent = None
        query = self._query
        what = query.sequence if query.sequence is not None else files.digest(data)
        time_given = self._now if self._time_given else None
        key = files.key_of(query.attempt, query.step, what, query.sequence is not None, time_given)
        table, warnings = decode(data, self._content_type, self._limit)
        del data
        measured: Measured = writing.measured(table, query.response_limit)
        step = writing.Step(self._run, query.step, query.attempt, self._now, key)
        try:
            kept: Kept | RolloutsUnavailable = keeper.keep(step, measured)
        except RolloutsUnavailable as error:
            kept = error
        return _Done(measured, kept, key, warnings)


async def _store(run: str, query: PostQuery, done: _Done, context: Context) -> dict[str, int]:
    """Adds the metrics to the log as a vector that Tocsin has computed."""
    check = vectors.Check(context.settings.max_metrics, enough=20)
    vector = query.model_dump(include={"step", "time", "attempt"})
    # A name space of its own: a trainer may number its vectors and its rollouts alike.
    value = {**vector, "metrics": dict(done.metrics), "sequence": f"rollouts/{done.key}"}
    record = vectors.read(value, context.clock(), check)
    if record is None or not isinstance(record.entry, StepVector):
        raise ApiError(422, "the metrics make no vector; see problems", "content", check.problems)
    try:
        appended = await append(context, run, [replace(record, entry=replace(record.entry, computed=True))])
    except (StoreUnavailable, TooManyRuns) as error:
        raise ApiError.of(error) from None
    return {"accepted": appended.accepted, "repeated": appended.repeated}
