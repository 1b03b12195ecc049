"""The dashboard: every query is asked of a real Prometheus that scrapes the real service while a run collapses."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import recordings
from tests.deploy.fleet import Fleet
from tests.deploy.native import DEPLOY, ROOT, call, read_yaml, until

FOLDER = DEPLOY / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboards" / "tocsin.json").read_text())
PANELS = DASHBOARD["panels"]
UNANSWERED = "Tensors B"  # refused ones: it takes torch, and so seconds, to refuse one
VARIABLES = {"$run": "collapse.*", "$__rate_interval": "1m"}  # what Grafana puts in their places


def queries() -> Iterator[tuple[str, str]]:
    """Title and query of everything that is asked."""
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def filled(query: str) -> str:
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    assert "$" not in query, f"a variable that Grafana fills and this test doesn't know: {query}"
    return query


def test_panels_can_be_told_apart() -> None:
    assert max(Counter(panel["id"] for panel in PANELS).values()) == 1
    assert max(Counter(panel["title"] for panel in PANELS if panel["type"] != "row").values()) <= 2
    for panel in PANELS:
        references = [target["refId"] for target in panel.get("targets", ())]
        assert len(references) == len(set(references))
        assert panel["type"] == "row" or (panel["description"] and references), panel["title"]


def test_panels_lie_side_by_side() -> None:
    taken: Counter[tuple[int, int]] = Counter()
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        taken.update(
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        )
    assert max(taken.values()) == 1


def test_the_dashboard_is_one_that_grafana_provisions() -> None:
    assert DASHBOARD["uid"] == "tocsin"
    assert "id" not in DASHBOARD  # the database of one Grafana gives it
    assert 36 <= DASHBOARD["schemaVersion"] <= 41  # data sources as objects; Grafana 9 to 12
    sources = {json.dumps(panel["datasource"]) for panel in PANELS if panel["type"] != "row"}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert {one["name"] for one in DASHBOARD["templating"]["list"]} == {"datasource", "run"}


def test_provisioning_names_what_docker_compose_has() -> None:
    services = read_yaml(ROOT / "docker-compose.yml")["services"]
    sources = read_yaml(FOLDER / "provisioning/datasources/tocsin.yml")["datasources"]
    assert {source["type"] for source in sources} == {"prometheus", "alertmanager"}
    for source in sources:
        assert urllib.parse.urlsplit(source["url"]).hostname in services
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    (provider,) = read_yaml(FOLDER / "provisioning/dashboards/tocsin.yml")["providers"]
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/tocsin.json"


@pytest.fixture(scope="module")
def busy(fleet: Fleet) -> Fleet:
    """A run collapses and its receiver is told; other requests are refused."""
    vectors = next(run for run in recordings() if run.name == "collapse_lr_x100").bodies
    trainer = fleet.token("trainer")
    assert call(fleet.web, "/v1/runs/collapse/steps", trainer, vectors)[0] == 202
    assert call(fleet.web, "/v1/runs/collapse/steps", trainer, b"no vector")[0] == 422
    return fleet


def ask(prometheus: str, query: str) -> list[Any]:
    words = urllib.parse.urlencode({"query": filled(query)})
    status, body = call(prometheus, f"/api/v1/query?{words}")
    assert status == 200, f"{query}\n{body.decode()}"
    found: list[Any] = json.loads(body)["data"]["result"]
    return found


@pytest.mark.usefixtures("busy")
def test_every_query_has_an_answer(prometheus: str) -> None:
    waiting = dict(queries())
    assert len(waiting) > 30
    assert ask(prometheus, waiting.pop(UNANSWERED)) == []

    def all_answered() -> bool:
        for title in [title for title, query in waiting.items() if ask(prometheus, query)]:
            del waiting[title]
        return not waiting

    try:
        until(all_answered, "every query of the dashboard")
    except pytest.fail.Exception:
        pytest.fail("nothing is found by " + "; ".join(f"{title}: {query}" for title, query in waiting.items()))


@pytest.mark.usefixtures("busy")
def test_the_collapse_is_on_top(prometheus: str) -> None:
    shown = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS if panel["type"] in {"stat", "table"}}

    def number(title: str) -> float:
        found = ask(prometheus, shown[title])
        return float(found[0]["value"][1]) if found else -1.0

    until(lambda: number("Critical incidents") >= 1, "the critical incident")
    until(lambda: number("Runs") == 3, "the run with its worst severity")  # 3: critical
    until(lambda: number("Processes down") == 0, "all processes")
    until(lambda: number("Store") == 1, "the store")
    rules = {found["metric"]["rule"] for found in ask(prometheus, shown["Firing now"])}
    assert len(rules) > 1
    assert {"run", "severity", "metric", "incident"} <= set(ask(prometheus, shown["Firing now"])[0]["metric"])


def test_every_metric_is_exported(busy: Fleet) -> None:
    """Also those that a query would do without, as in `count(...) or vector(0)`."""
    named = {name for _, query in queries() for name in re.findall(r"\btocsin_\w+", query)}
    text = "".join(call(address, "/metrics", busy.token("reader"))[1].decode() for address in (busy.web, *busy.workers))
    described = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert {re.sub(r"_bucket$", "", name) for name in named} <= described
