"""/metrics, read back with Prometheus' own parser."""

from __future__ import annotations

import math
import shutil
import subprocess
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families


def scrape(api: Any) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    answer = api.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(answer.data.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def post(api: Any, steps: range, run: str = "run", name: str = "actor/pg_loss", every: float = 20.0) -> None:
    for step in steps:
        body = {"step": step, "metrics": {name: math.nan}, "time": 1.7e9 + every * step}
        assert api.post(body, run=run).status == 202
    api.settle()


def test_everything_that_is_promised(api: Any) -> None:
    post(api, range(3))
    api.post({"step": 0, "metrics": {"actor/pg_loss": math.nan}, "time": 1.7e9})
    api.post(b"[")
    found = scrape(api)
    run = labels(run="run")
    [incident] = api.get("/v1/runs/run/incidents").json["incidents"]
    firing = {"run": "run", "rule": "non_finite", "severity": "critical", "incident": incident["id"]}
    assert found["tocsin_alert"] == {
        labels(**firing, metric="actor/pg_loss"): 1.0,
        labels(**firing, metric="incident"): 1.0,
    }
    assert found["tocsin_run_last_step"] == {run: 2.0}
    assert found["tocsin_run_last_step_timestamp_seconds"][run] == api.get("/v1/runs/run").json["last_seen"]
    assert found["tocsin_run_step_interval_seconds"] == {run: 20.0}
    assert found["tocsin_runs"] == {(): 1.0}
    assert found["tocsin_runs_limit"] == {(): 10_000.0}
    assert found["tocsin_store_used_bytes"][()] > 10_000
    assert found["tocsin_store_free_bytes"][()] > 0
    assert "tocsin_alert_silenced" not in found
    assert found["tocsin_ingest_vectors_total"] == {(): 3.0}
    assert found["tocsin_ingest_repeated_total"] == {(): 1.0}
    assert found["tocsin_ingest_rejected_total"] == {labels(reason="syntax"): 1.0}
    assert found["tocsin_detection_events_total"] == {labels(rule="non_finite", transition="fired"): 1.0}
    assert found["tocsin_outbox_pending"] == found["tocsin_worker_errors_total"] == {(): 0.0}
    assert found["tocsin_runs_not_exported"] == found["tocsin_fold_pending"] == {(): 0.0}
    assert found["tocsin_ingest_seconds_count"] == {(): 4.0}
    assert found["tocsin_fold_seconds_count"][()] >= 1.0
    assert found["tocsin_lag_seconds_count"][()] >= 1.0
    assert not any(name.endswith("_created") for name in found)


def test_what_is_over_is_gone(api: Any) -> None:
    post(api, range(3))
    assert scrape(api)["tocsin_alert"]
    api.post([{"step": step, "metrics": {"actor/pg_loss": 0.5}} for step in range(3, 80)])
    api.settle()
    assert "tocsin_alert" not in scrape(api)


def test_hostile_names_stay_inside_their_label(api: Any) -> None:
    run, metric = 'r"} 1\u00a0{'.replace("\u00a0", " ") + "$'`", 'm"}, \\" x{y="z"} 5'
    post(api, range(3), run=run, name=metric)
    found = scrape(api)
    assert {dict(key)["run"] for key in found["tocsin_alert"]} == {run}
    assert metric in {dict(key)["metric"] for key in found["tocsin_alert"]}
    assert set(found["tocsin_run_last_step"]) == {labels(run=run)}


def test_the_usual_interval_ignores_a_pause(api: Any) -> None:
    times = [0.0, 10.0, 20.0, 5000.0, 5010.0, 5020.0]
    api.post([{"step": step, "metrics": {}, "time": 1.7e9 + time} for step, time in enumerate(times)])
    assert scrape(api)["tocsin_run_step_interval_seconds"] == {labels(run="run"): 10.0}


def test_steps_that_are_logged_now_and_then(api: Any) -> None:
    api.post([{"step": step, "metrics": {}, "time": 1.7e9 + 2 * step} for step in (0, 10, 20, 30)])
    assert scrape(api)["tocsin_run_step_interval_seconds"] == {labels(run="run"): 2.0}


def test_the_number_of_runs_is_bounded(make_api: Any) -> None:
    api = make_api(max_exported_runs=2)
    for run in ("a", "b", "c"):
        post(api, range(2), run=run)
    found = scrape(api)
    assert {dict(key)["run"] for key in found["tocsin_run_last_step"]} == {"b", "c"}
    assert {dict(key)["run"] for key in found["tocsin_alert"]} == {"b", "c"}
    assert found["tocsin_runs_not_exported"] == {(): 1.0}


@pytest.mark.parametrize("runs", [0, 1])
def test_an_idle_service(api: Any, runs: int) -> None:
    for run in range(runs):
        api.call("PUT", f"/v1/runs/{run}", {})
    assert "tocsin_run_last_step" not in scrape(api)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool isn't installed (Debian: prometheus)")
def test_prometheus_own_linter_has_nothing_to_say(api: Any) -> None:
    post(api, range(5), run='evil "run" {label="x"} \U0001f514')
    text = api.get("/metrics").data
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def silence(api: Any, **matchers: Any) -> None:
    body = {"matchers": matchers, "hours": 1, "author": "me", "comment": "why"}
    assert api.call("POST", "/v1/silences", body).status in {200, 201}


def test_what_is_silenced_still_fires_and_is_marked(api: Any) -> None:
    api.call("PUT", "/v1/runs/a", {"labels": {"team": "rl"}})
    for run in ("a", "b"):
        post(api, range(3), run=run)
    silence(api, rule="non_*", labels={"team": "rl"})
    found = scrape(api)
    assert len(found["tocsin_alert"]) == 4
    assert found["tocsin_alert_silenced"] == {
        key: value for key, value in found["tocsin_alert"].items() if dict(key)["run"] == "a"
    }


def test_a_run_that_has_ended_is_not_waited_for(api: Any) -> None:
    waited_for = {
        "tocsin_run_last_step_timestamp_seconds",
        "tocsin_run_step_interval_seconds",
        "tocsin_run_patience_seconds",
    }
    post(api, range(5), every=60.0)
    found = scrape(api)
    assert found["tocsin_run_patience_seconds"] == {labels(run="run"): 600.0}
    assert waited_for <= found.keys()
    api.call("PUT", "/v1/runs/run", {"finished": True})
    assert not waited_for & scrape(api).keys()
    assert scrape(api)["tocsin_run_last_step"] == {labels(run="run"): 4.0}


def test_a_redis_without_a_bound_has_no_free_bytes(make_api: Any, redis_server: Any) -> None:
    found = scrape(make_api(store=redis_server.url))
    assert found["tocsin_store_used_bytes"][()] > 0
    assert "tocsin_store_free_bytes" not in found
