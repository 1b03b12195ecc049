"""The profile `shared` of docker-compose.yml, started natively: its files work together."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
from typing import Any

from tests.conftest import recordings
from tests.deploy.fleet import Fleet
from tests.deploy.native import DEPLOY, ROOT, call, until

HOW_TO = (ROOT / "docs" / "redis.md").read_text()


def collapse() -> list[dict[str, Any]]:
    return next(run for run in recordings() if run.name == "collapse_lr_x100").bodies


def test_what_a_trainer_sends_is_judged_by_a_worker(fleet: Fleet) -> None:
    def judged() -> bool:
        status, body = call(fleet.web, "/v1/runs/native/alerts", fleet.token("reader"))
        assert status == 200
        return bool(json.loads(body)["alerts"])

    status, _ = call(fleet.web, "/v1/runs/native/steps", fleet.token("trainer"), collapse())
    assert status == 202
    until(judged, "an alert")


def test_they_find_each_other(fleet: Fleet) -> None:
    def ready() -> bool:
        return json.loads(call(fleet.web, "/readyz")[1]) == {"status": "ready"}  # no warning of missing workers

    until(ready, "the API to see workers")
    assert all(call(worker, "/readyz")[0] == 200 for worker in fleet.workers)


def test_a_token_is_good_for_its_own_business_alone(fleet: Fleet) -> None:
    for address in (fleet.web, *fleet.workers):
        assert call(address, "/metrics", fleet.token("reader"))[0] == 200
        assert call(address, "/metrics", fleet.token("trainer"))[0] == 403
        assert call(address, "/metrics")[0] == 401
    assert call(fleet.web, "/v1/runs/native/steps", fleet.token("reader"), {"step": 1, "metrics": {"a": 1}})[0] == 403
    assert call(fleet.web, "/v1/runs", fleet.token("admin"))[0] == 200


def test_redis_lets_nobody_in_without_the_password(fleet: Fleet) -> None:
    def ask(*words: str) -> str:
        command = ["redis-cli", "-p", fleet.redis_port, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout

    password = (fleet.folder / "run/secrets/redis-password").read_text()
    assert "NOAUTH" in ask("GET", "anything")
    known = ("--no-auth-warning", "--user", "tocsin", "--pass", password)
    assert "PONG" in ask(*known, "PING")
    assert "NOPERM" in ask(*known, "CONFIG", "GET", "*")
    assert "NOPERM" in ask(*known, "GET", "of-another-program")


def test_the_health_check_of_redis(fleet: Fleet) -> None:
    kind, command = fleet.services["redis"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    here = fleet.here(command.replace("$$", "$")).replace("redis-cli", f"redis-cli -p {fleet.redis_port}")
    assert subprocess.run(["sh", "-c", here], timeout=30, check=False).returncode == 0
    wrong = here.replace("redis-password", "link-secret")
    assert subprocess.run(["sh", "-c", wrong], capture_output=True, timeout=30, check=False).returncode != 0


def test_the_service_may_do_in_redis_what_is_documented() -> None:
    """The list of commands that works, above, is the one that docs/redis.md names."""
    documented = re.search(r"SETUSER tocsin on '>[^']+' (.*?)\n```", HOW_TO, re.DOTALL)
    made = re.search(r"tocsin on \S+ .*?(~.*)$", (DEPLOY / "make-secrets").read_text(), re.MULTILINE)
    assert documented is not None
    assert made is not None
    permissions = re.compile(r"~[\w:*]+|[+-]@?[a-z|]+")
    assert set(permissions.findall(made.group(1))) == set(permissions.findall(documented.group(1)))


def test_prometheus_reaches_every_process(prometheus: str) -> None:
    def up() -> bool:
        query = urllib.parse.urlencode({"query": 'up{job=~"tocsin.*"} == 1'})
        found = json.loads(call(prometheus, f"/api/v1/query?{query}")[1])["data"]["result"]
        jobs = sorted(sample["metric"]["job"] for sample in found)
        return jobs == ["tocsin", "tocsin-worker", "tocsin-worker"]

    until(up, "Prometheus to reach the API and two workers")
    groups = json.loads(call(prometheus, "/api/v1/rules")[1])["data"]["groups"]
    assert any(rule["name"] == "TocsinDown" for group in groups for rule in group["rules"])
