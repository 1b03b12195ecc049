"""The OpenAPI description and the service agree: requests made from it are answered as it says."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from tocsin_service.api.models import (
    ActModel,
    AlertModel,
    ChartList,
    IncidentDetail,
    IncidentModel,
    LookModel,
    RuleModel,
    RunModel,
    SilenceModel,
)

BOUNDED = settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
def test_made_up_requests(shared_api: Any, mode: GenerationMode) -> None:
    description = schemathesis.openapi.from_url(f"{shared_api.address}/openapi.json")
    description.config.update(request_timeout=60)  # it may load torch meanwhile
    for found in description.get_all_operations():
        operation = found.ok()
        if operation.path.endswith("/tensors") and find_spec("torch") is None:
            continue  # then it answers 501 to everything, as tests/service/test_tensors_load.py shows
        if (
            operation.path.endswith(("/rollouts", "/diff", "/rollouts/steps", "/samples"))
            and find_spec("duckdb") is None
        ):
            continue  # likewise, as tests/service/test_rollouts_api.py shows

        @BOUNDED
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case) -> None:
            run = unquote(str({**(case.query or {}), **(case.path_parameters or {})}.get("run", "run")))
            # What is printable can't be said by a portable regular expression.
            assume(mode is GenerationMode.NEGATIVE or (run.isprintable() and run not in {".", ".."}))
            # Too many vectors are answered with 413, as described; schemathesis takes no such answer for a refusal.
            assume(not isinstance(case.body, list) or len(case.body) <= 10_000)
            case.body = whole(case.body)
            if case.path == "/v1/events" and str((case.query or {}).get("seconds", 0)).isdigit():
                case.query = {**(case.query or {}), "seconds": 0}  # else the answer goes on
            if mode is GenerationMode.POSITIVE and case.path == "/v1/silences" and isinstance(case.body, dict):
                case.body = timely(case.body)
            case.call_and_validate()

        with suppress(Unsatisfiable):  # nothing about the operation can be wrong
            check()


def whole(value: Any) -> Any:
    """JSON Schema calls 1.0 an integer; the service doesn't take it for a step, so the generator must not send it."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: whole(one) for name, one in value.items()}
        case list():
            return [whole(one) for one in value]
    return value


def timely(silence: dict[str, Any]) -> dict[str, Any]:
    """What JSON Schema can't say: a silence isn't over when it is made, and what matches everything says so."""
    now = time.time()
    times = {name: now + seconds for name, seconds in (("starts", 60), ("ends", 3600)) if name in silence}
    return {**silence, **times, "all": True}


def test_every_route_is_described(shared_api: Any) -> None:
    paths = shared_api.get("/openapi.json").json["paths"]
    assert set(paths) == {
        "/v1/runs",
        "/v1/runs/{run}",
        "/v1/runs/{run}/steps",
        "/v1/runs/{run}/tensors",
        "/v1/runs/{run}/rollouts",
        "/v1/runs/{run}/rollouts/steps",
        "/v1/runs/{run}/rollouts/diff",
        "/v1/runs/{run}/alerts/{alert}/samples",
        "/v1/runs/{run}/series",
        "/v1/runs/{run}/alerts",
        "/v1/runs/{run}/incidents",
        "/v1/runs/{run}/incidents/{incident}",
        "/v1/runs/{run}/incidents/{incident}/acknowledge",
        "/v1/runs/{run}/rebaseline",
        "/v1/runs/{run}/mute",
        "/v1/alerts",
        "/v1/incidents",
        "/v1/silences",
        "/v1/silences/{silence}",
        "/v1/audit",
        "/v1/rules",
        "/v1/overview",
        "/v1/runs/{run}/charts",
        "/v1/events",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    assert all(operation["summary"] for path in paths.values() for operation in path.values())


def test_answers_have_the_described_shape(api: Any) -> None:
    api.post([{"step": step, "metrics": {"actor/pg_loss": float("nan"), "x": 1}} for step in range(3)])
    api.settle()
    (incident,) = api.get("/v1/incidents").json["incidents"]
    path = f"/v1/runs/run/incidents/{incident['id']}"
    api.call("POST", f"{path}/acknowledge", {"author": "mia"})
    silence = api.call("POST", "/v1/runs/run/mute", {"author": "mia", "comment": "meant so", "hours": 1}).json
    (alert,) = api.get("/v1/alerts").json["alerts"]
    (incident,) = api.get("/v1/incidents").json["incidents"]
    (run,) = api.get("/v1/runs").json["runs"]
    (listed,) = api.get("/v1/silences").json["silences"]
    act = api.get("/v1/audit").json["acts"][0]
    detail = api.get(path).json
    (look,) = api.get("/v1/overview").json["runs"]
    charts = api.get("/v1/runs/run/charts").json
    described = (
        (RuleModel, api.get("/v1/rules?lang=zh").json["rules"][0]),
        (LookModel, look),
        (ChartList, charts),
        (AlertModel, alert),
        (IncidentModel, incident),
        (RunModel, run),
        (IncidentDetail, detail),
    )
    for model, found in (*described, (SilenceModel, silence), (SilenceModel, listed), (ActModel, act)):
        assert set(found) == set(model.model_fields) - {"samples"}  # that is there only where rollouts are kept
        model.model_validate(found)
    assert alert["acknowledged"]
    assert alert["silenced"] == {"id": silence["id"], "ends": silence["ends"]}
