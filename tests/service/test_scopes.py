"""What each token is good for: the scope of every route, and that the service keeps to it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tocsin_service.access.tokens import Scope
from tocsin_service.api.scopes import needed, written_run
from tocsin_service.app import Service
from tocsin_service.dashboard.files import static_files
from tocsin_service.exposition import LIMITS
from tocsin_service.settings import Settings

TRAINER, GRAFANA, ALICE = "trainer-9f86d081", "grafana-884c7d65", "alice-9a0feaa0"
ALICES_HASH = hashlib.sha256(ALICE.encode()).hexdigest()
TOKENS = (f"trainer ingest {TRAINER}", f"grafana read {GRAFANA}", f"alice ingest,read,admin sha256:{ALICES_HASH}")
OPEN, READ, INGEST, ADMIN = None, Scope.READ, Scope.INGEST, Scope.ADMIN

# Every route of the API with the scope that it needs: a new route must be thought about here.
ROUTES = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): READ,
    ("GET", "/v1/runs"): READ,
    ("GET", "/v1/runs/{run}"): READ,
    ("PUT", "/v1/runs/{run}"): INGEST,
    ("POST", "/v1/runs/{run}/steps"): INGEST,
    ("POST", "/v1/runs/{run}/tensors"): INGEST,
    ("POST", "/v1/runs/{run}/rebaseline"): ADMIN,
    ("POST", "/v1/runs/{run}/mute"): ADMIN,
    ("GET", "/v1/runs/{run}/series"): READ,
    ("GET", "/v1/runs/{run}/alerts"): READ,
    ("GET", "/v1/runs/{run}/alerts/{alert}/samples"): READ,
    ("POST", "/v1/runs/{run}/rollouts"): INGEST,
    ("GET", "/v1/runs/{run}/rollouts"): READ,
    ("GET", "/v1/runs/{run}/rollouts/steps"): READ,
    ("GET", "/v1/runs/{run}/rollouts/diff"): READ,
    ("GET", "/v1/runs/{run}/incidents"): READ,
    ("GET", "/v1/runs/{run}/incidents/{incident}"): READ,
    ("POST", "/v1/runs/{run}/incidents/{incident}/acknowledge"): ADMIN,
    ("GET", "/v1/alerts"): READ,
    ("GET", "/v1/incidents"): READ,
    ("GET", "/v1/silences"): READ,
    ("POST", "/v1/silences"): ADMIN,
    ("DELETE", "/v1/silences/{silence}"): ADMIN,
    ("GET", "/v1/audit"): READ,
    ("GET", "/v1/rules"): READ,
    ("GET", "/v1/overview"): READ,
    ("GET", "/v1/runs/{run}/charts"): READ,
    ("GET", "/v1/events"): READ,
}
ENDLESS = {"/v1/events": "?seconds=0"}  # what makes an answer end that would go on
LINKED = "/linked/"


class TestScopes:
    def test_every_route_needs_what_is_written_here(self, shared_api: Any) -> None:
        described = {
            (method.upper(), path)
            for path, operations in shared_api.get("/openapi.json").json["paths"].items()
            for method in operations
        }
        linked = {route for route in described if route[1].startswith(LINKED)}
        assert described - linked == set(ROUTES)
        for (method, path), scope in ROUTES.items():
            assert needed(method, path.format(run="a", incident="b", silence="c", alert="d")) == scope, (method, path)
        for method, path in linked:
            assert needed(method, path) is OPEN

    @pytest.mark.parametrize(
        ("method", "path", "scope"),
        [
            ("HEAD", "/v1/runs", READ),
            ("HEAD", "/healthz", OPEN),
            ("POST", "/healthz", ADMIN),
            ("GET", "/openapi.json", READ),
            ("GET", "/healthz/", READ),
            ("GET", "//healthz", READ),
            ("GET", "/linked/incident/a/b", OPEN),
            ("POST", "/linked/incident/a/b/mute", OPEN),
            ("DELETE", "/linked/incident/a/b", ADMIN),
            ("POST", "/linked", ADMIN),
            ("GET", "/linkedin", READ),
            ("GET", "/", OPEN),
            ("HEAD", "/dashboard/main.js", OPEN),
            ("POST", "/dashboard/", ADMIN),
            ("POST", "/", ADMIN),
            ("GET", "/dashboard", READ),
            ("GET", "/dashboards", READ),
            ("GET", "//", READ),
            ("POST", "//linked/incident", ADMIN),
            ("post", "/v1/runs/a/steps", ADMIN),
            ("POST", "/v1/runs/a/steps/", ADMIN),
            ("POST", "/v1/runs/a/b/steps", ADMIN),
            ("POST", "/v2/runs/a/steps", ADMIN),
            ("PUT", "/v1/runs/a/", ADMIN),
            ("PUT", "/v1/silences", ADMIN),
            ("PATCH", "/v1/runs/a", ADMIN),
            ("OPTIONS", "/v1/runs", ADMIN),
            ("CONNECT", "", ADMIN),
            ("\x00", "\x00", ADMIN),
        ],
    )
    def test_what_is_not_known_is_for_admins(self, method: str, path: str, scope: Scope | None) -> None:
        assert needed(method, path) == scope

    @pytest.mark.parametrize(
        ("method", "path", "run"),
        [
            ("POST", "/v1/runs/a/steps", "a"),
            ("PUT", "/v1/runs/a", "a"),
            ("POST", "/v1/runs/a/incidents/b/acknowledge", "a"),
            ("GET", "/v1/runs/a", None),
            ("POST", "/v1/silences", None),
            ("POST", "/v1/runs/", None),
            ("POST", f"/v1/runs/{'x' * 129}/steps", None),
        ],
    )
    def test_which_run_is_written_to(self, method: str, path: str, run: str | None) -> None:
        assert written_run(method, path) == run


@pytest.fixture(scope="module")
def locked(shared_api: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One service that asks for tokens, for all tests of the module."""
    db = tmp_path_factory.mktemp("locked") / "tocsin.db"
    with Service(Settings(port=0, db=db, tokens=TOKENS)) as service:
        yield type(shared_api)(service.address, service)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_the_documentation_has_every_scope_and_limit() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert set(rows) >= set(Scope)
    for (method, path), scope in ROUTES.items():
        if scope is INGEST or scope is OPEN:
            assert f"`{path}`" in text or f"`{method} {path}`" in text, path
    (counted,) = re.findall(r"`tocsin_requests_limited_total\{what\}` counts .*?\n\n", text, re.DOTALL)
    assert set(LIMITS) <= set(re.findall(r"`(\w+)`", counted))


class TestService:
    @pytest.mark.parametrize(("method", "path"), ROUTES)
    def test_each_token_can_what_its_scopes_say(self, locked: Any, method: str, path: str) -> None:
        scope = ROUTES[method, path]
        target = path.format(run="a", incident="b", silence="c", alert="d") + ENDLESS.get(path, "")
        for token, scopes in ((TRAINER, {INGEST}), (GRAFANA, {READ}), (ALICE, set(Scope))):
            answer = locked.call(method, target, headers=bearer(token))
            if scope is OPEN or scope in scopes:
                assert answer.status not in {401, 403}, answer.data
            else:
                assert answer.status == 403
                assert f"scope {scope}" in answer.json["error"]
        assert (locked.call(method, target).status == 401) == (scope is not OPEN)

    def test_the_dashboard_asks_for_no_token_as_it_shows_nothing(self, locked: Any) -> None:
        assert locked.get("/").status == 307
        assert locked.get("/dashboard/").status == locked.get("/dashboard/main.js").status == 200
        assert locked.get("/dashboard/../v1/runs").status in {401, 404}
        assert locked.call("POST", "/dashboard/").status == 401

    def test_the_dashboards_files_are_the_same_for_everybody(self, locked: Any, shared_api: Any) -> None:
        vector = {"step": 1, "metrics": {"reward": 1.0}}
        assert locked.post(vector, run="a-run-of-ours", headers=bearer(TRAINER)).status == 202
        for name, file in {"": static_files()["index.html"], **static_files()}.items():
            for api, headers in (
                (shared_api, {}),
                (locked, {}),
                (locked, bearer(ALICE)),
                (locked, bearer("wrong-token")),
            ):
                answer = api.call("GET", f"/dashboard/{name}?lang=zh", headers={**headers, "cookie": "a=b"})
                assert (answer.status, answer.data) == (200, file.plain.data)
                assert "set-cookie" not in answer.headers

    def test_a_hash_is_no_token(self, locked: Any) -> None:
        for token in (ALICES_HASH, f"sha256:{ALICES_HASH}"):
            assert locked.call("GET", "/v1/runs", headers=bearer(token)).status == 401

    def test_what_lies_behind_links_asks_for_no_token(self, locked: Any) -> None:
        assert locked.get("/linked/incident/a/b?expires=1&signature=x").status not in {401, 421}
        assert locked.call("DELETE", "/linked/incident/a/b").status == 401


def test_a_workers_probes_are_behind_the_same_guard(start_process: Any, redis_server: Any, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("\n".join(TOKENS))
    worker = start_process("worker", "--store", redis_server.url, "--token-file", str(tmp_path / "tokens")).api
    assert worker.get("/healthz").status == 200
    assert worker.get("/metrics").status == 401
    assert worker.call("GET", "/metrics", headers=bearer(TRAINER)).status == 403
    assert worker.call("GET", "/metrics", headers=bearer(GRAFANA)).status == 200
