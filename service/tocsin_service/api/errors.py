"""What a client hears when something is wrong: always strict JSON, always with what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tocsin_service.receiving.json_texts import shorten
from tocsin_service.store import StoreUnavailable, TooManyRuns

__all__ = ["MOST_PROBLEMS", "ApiError", "StrictJson", "error_response", "install", "shorten"]

MOST_PROBLEMS = 20  # in one answer: enough to see the pattern
RETRY_SECONDS = 5


class StrictJson(Response):
    """A JSON response that holds no NaN token; texts are escaped to ASCII, so that any of them can be sent."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class ApiError(Exception):
    """A request is refused.

    Args:
        status: HTTP status, 4xx or 503.
        error: what is wrong and what to do.
        reason: label in /metrics; one word.
        problems: one mapping each for what is wrong where.
        retry_seconds: with 429 or 503: when to come back.
    """

    def __init__(
        self,
        status: int,
        error: str,
        reason: str,
        problems: Sequence[Mapping[str, Any]] = (),
        *,
        retry_seconds: int = RETRY_SECONDS,
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.reason, self.problems = status, error, reason, problems
        self.retry_seconds = retry_seconds

    @classmethod
    def of(cls, error: StoreUnavailable | TooManyRuns) -> ApiError:
        """The store's troubles as a client sees them."""
        if isinstance(error, TooManyRuns):
            return cls(429, str(error), "runs")
        return cls(503, f"{error}; nothing of this request was stored, send it again later", "store")


def error_response(error: ApiError) -> Response:
    """The answer that tells of ``error``."""
    content: dict[str, Any] = {"error": error.error}
    if error.problems:
        content["problems"] = list(error.problems[:MOST_PROBLEMS])
    headers = {"retry-after": str(error.retry_seconds)} if error.status in {429, 503} else {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return StrictJson(content, error.status, headers)


def install(app: FastAPI) -> None:
    """Makes ``app`` answer every error in this form."""

    @app.exception_handler(ApiError)
    async def on_api_error(_: Request, error: ApiError) -> Response:
        return error_response(error)

    @app.exception_handler(StoreUnavailable)
    @app.exception_handler(TooManyRuns)
    async def on_store_error(_: Request, error: StoreUnavailable | TooManyRuns) -> Response:
        return error_response(ApiError.of(error))

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        # The framework's own answer repeats the input, and fails if that holds a NaN.
        problems = [
            {"field": ".".join(map(str, one["loc"])), "problem": str(one["msg"]).removeprefix("Value error, ")}
            for one in error.errors()[:MOST_PROBLEMS]
        ]
        return error_response(ApiError(422, "the request is not valid; see problems", "validation", problems))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        texts = {404: "there is nothing at this path", 405: f"{request.method} is not possible here"}
        response = StrictJson({"error": texts.get(error.status_code, str(error.detail))}, error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, _error: Exception) -> Response:  # the server logs it
        return StrictJson({"error": "internal error; the service's log has the details"}, 500)
