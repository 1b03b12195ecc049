"""What the API tells of runs, and what can be told to it about them."""

from __future__ import annotations

from typing import Any

import pytest

NAN = float("nan")


def broken_run(api: Any, run: str = "run", steps: int = 5) -> None:
    """A run whose loss becomes NaN at step 3, and stays so."""
    for step in range(steps):
        loss = NAN if step >= 3 else 0.5
        assert api.post({"step": step, "metrics": {"actor/pg_loss": loss, "own": step}}, run=run).status == 202
    api.settle()


def test_an_empty_service(shared_api: Any) -> None:
    assert shared_api.get("/v1/runs").json == {"runs": []}
    assert shared_api.get("/v1/alerts").json == {"alerts": []}
    assert shared_api.get("/v1/incidents").json == {"incidents": []}


@pytest.mark.parametrize("tail", ["", "/alerts", "/incidents", "/series?metric=loss"])
def test_unknown_runs(shared_api: Any, tail: str) -> None:
    answer = shared_api.get(f"/v1/runs/nobody{tail}")
    assert answer.status == 404
    assert "no such run" in answer.json["error"]


def test_rebaseline_of_an_unknown_run(shared_api: Any) -> None:
    assert shared_api.call("POST", "/v1/runs/nobody/rebaseline", {}).status == 404


def test_a_run_at_a_glance(api: Any) -> None:
    broken_run(api)
    run = api.get("/v1/runs/run").json
    assert {name: run[name] for name in ("run", "step", "attempt", "vectors", "pending", "error")} == {
        "run": "run",
        "step": 4,
        "attempt": 0,
        "vectors": 5,
        "pending": 0,
        "error": None,
    }
    assert run["firing"] == {"critical": 1}
    assert run["created"] <= run["last_seen"]
    assert api.get("/v1/runs").json == {"runs": [run]}


def test_alerts_and_incidents(api: Any) -> None:
    broken_run(api)
    broken_run(api, "other", steps=2)
    (alert,) = api.get("/v1/runs/run/alerts").json["alerts"]
    assert (alert["rule"], alert["state"], alert["onset_step"]) == ("non_finite", "firing", 3)
    assert alert["evidence"]["value"] == "NaN"
    (incident,) = api.get("/v1/runs/run/incidents?state=firing&severity=critical").json["incidents"]
    assert incident["members"] == [alert["id"]]
    assert incident["last_good_step"] == 2
    assert api.get("/v1/alerts").json["alerts"] == [alert]
    assert api.get("/v1/incidents").json["incidents"] == [incident]
    assert api.get("/v1/alerts?state=resolved").json["alerts"] == []
    assert api.get("/v1/runs/run/alerts?severity=info").json["alerts"] == []
    assert api.get("/v1/runs/other/alerts").json["alerts"] == []


def test_runs_heard_of_last_come_first(api: Any) -> None:
    for run in ("a", "b", "a"):
        api.post({"step": len(api.get("/v1/runs").json["runs"]), "metrics": {}}, run=run)
    assert [run["run"] for run in api.get("/v1/runs").json["runs"]] == ["a", "b"]
    assert [run["run"] for run in api.get("/v1/runs?limit=1").json["runs"]] == ["a"]


def test_describing_a_run(api: Any) -> None:
    told = {"algorithm": "GRPO", "group_size": 8, "labels": {"team": "a"}, "link": None}
    answer = api.call("PUT", "/v1/runs/run", told)
    assert answer.status == 200
    assert answer.json["config"] == {"algorithm": "grpo", "group_size": 8, "labels": {"team": "a"}}
    more = api.call("PUT", "/v1/runs/run", {"framework": "trl", "labels": {"user": "b"}}).json["config"]
    assert more == {**answer.json["config"], "framework": "trl", "labels": {"team": "a", "user": "b"}}
    api.settle()
    assert api.get("/v1/runs/run").json["config"] == more


def test_telling_the_same_again_changes_nothing(api: Any) -> None:
    for told in ({"algorithm": "grpo"}, {"algorithm": "grpo"}, {}):
        assert api.call("PUT", "/v1/runs/run", told).json["pending"] <= 1
    api.settle()
    assert api.service._wired.judging.worker._tracked["run"].position == 1


def test_a_new_normal_resolves_what_was_raised(api: Any, collapse: Any) -> None:
    api.call("PUT", f"/v1/runs/{collapse.name}", collapse.told)
    api.post(collapse.bodies, run=collapse.name)
    api.settle()
    path = f"/v1/runs/{collapse.name}"
    before = api.get(f"{path}/alerts?state=firing").json["alerts"]
    assert before
    answer = api.call("POST", f"{path}/rebaseline", {"note": "meant so"})
    assert (answer.status, answer.json) == (202, {"accepted": 1, "repeated": 0})
    api.settle()
    after = {alert["id"]: alert for alert in api.get(f"{path}/alerts").json["alerts"]}
    assert any(after[alert["id"]]["reason"] == "rebaselined" for alert in before)


class TestSeries:
    def read(self, api: Any, query: str) -> list[tuple[str, list[int], list[Any]]]:
        answer = api.get(f"/v1/runs/run/series?{query}")
        assert answer.status == 200
        return [(one["metric"], one["steps"], one["values"]) for one in answer.json["series"]]

    def test_the_latest(self, api: Any) -> None:
        broken_run(api)
        assert self.read(api, "metric=own&limit=2") == [("own", [3, 4], [3.0, 4.0])]

    def test_from_a_step_on(self, api: Any) -> None:
        broken_run(api)
        assert self.read(api, "metric=own&after=1&limit=2") == [("own", [2, 3], [2.0, 3.0])]
        assert self.read(api, "metric=own&after=4") == [("own", [], [])]

    def test_several_metrics_and_unknown_ones(self, api: Any) -> None:
        broken_run(api)
        found = self.read(api, "metric=own&metric=actor/pg_loss&metric=own&metric=none&after=2")
        assert found == [("own", [3, 4], [3.0, 4.0]), ("actor/pg_loss", [3, 4], ["NaN", "NaN"]), ("none", [], [])]

    def test_a_canonical_name_finds_the_trainers_own(self, api: Any) -> None:
        api.call("PUT", "/v1/runs/run", {"framework": "trl"})
        api.post({"step": 1, "metrics": {"reward": 0.5, "kl": 0.01}})
        assert self.read(api, "metric=critic/score/mean") == [("critic/score/mean", [1], [0.5])]

    def test_over_a_long_log(self, api: Any) -> None:
        api.post([{"step": step, "metrics": {"a": step}} for step in range(1500)])
        (_, steps, values) = self.read(api, "metric=a&after=9&limit=1000")[0]
        assert steps == list(range(10, 1010))
        assert values[-1] == 1009.0


def test_health(shared_api: Any) -> None:
    assert shared_api.get("/healthz").json == {"status": "ok"}
    assert shared_api.get("/readyz").json == {"status": "ready"}


def test_store_trouble_is_told_and_nothing_is_acknowledged(api: Any) -> None:
    body = {"step": 1, "metrics": {"loss": 1}}
    api.post({"step": 0, "metrics": {"loss": 1}})
    api.settle()
    connection = next(iter(_writing_connections(api)))
    connection.execute("PRAGMA query_only = ON")
    answers = [api.post(body), api.call("PUT", "/v1/runs/run", {"algorithm": "ppo"}), api.get("/readyz")]
    for answer in answers:
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json["error"]
    assert api.get("/healthz").status == 200
    assert api.get("/v1/runs/run").json["vectors"] == 1
    assert 'tocsin_ingest_rejected_total{reason="store"} 1.0' in api.get("/metrics").data.decode()
    connection.execute("PRAGMA query_only = OFF")
    assert api.get("/readyz").status == 200
    assert api.post(body).json == {"accepted": 1, "repeated": 0}


def _writing_connections(api: Any) -> Any:
    yield api.service._wired.store._connection
