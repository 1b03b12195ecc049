"""The HTTP API."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp

from tocsin_service.api import (
    health,
    incidents,
    linked,
    looking,
    rollouts,
    rules,
    runs,
    samples,
    shell,
    silences,
    steps,
    tensors,
)
from tocsin_service.api.context import Context
from tocsin_service.api.errors import install
from tocsin_service.api.guard import Guard

__all__ = ["create_api", "create_app", "create_probes"]


def create_api(context: Context) -> FastAPI:
    """The routes and their OpenAPI description, unguarded."""
    # The interactive pages would load scripts from elsewhere; /openapi.json is enough for every tool.
    api = FastAPI(
        title="Tocsin",
        summary="Real-time anomaly detection for LLM-RL training runs.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.context = context
    install(api)
    parts = (steps, tensors, rollouts, samples, runs, incidents, silences, looking, rules, linked, shell, health)
    api.router.routes.append(steps.ShortCut())
    for part in parts:
        api.include_router(part.router)
    return api


def create_app(context: Context) -> ASGIApp:
    """The API as it is served: behind the guard."""
    return _guarded(create_api(context), context)


def create_probes(context: Context) -> ASGIApp:
    """What a process without the API serves: the probes and /metrics, behind the same guard."""
    probes = FastAPI(title="Tocsin worker", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    probes.state.context = context
    install(probes)
    probes.include_router(health.router)
    return _guarded(probes, context)


def _guarded(app: ASGIApp, context: Context) -> Guard:
    return Guard(app, context.settings, context.exposition.count_limited)
