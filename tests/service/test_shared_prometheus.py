"""deploy/prometheus, with Prometheus' own tool and against our own /metrics."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tocsin_service import wiring
from tocsin_service.app import Service
from tocsin_service.settings import Settings

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
DOCS = FOLDER.parents[1] / "docs"
HOW_TO = DOCS / "alerting.md"
# Only while something fires, or a run has a pace, or the store has a bound; test_exposition.py sees them.
IN_USE = {
    "tocsin_alert",
    "tocsin_alert_silenced",
    "tocsin_run_last_step_timestamp_seconds",
    "tocsin_run_patience_seconds",
    "tocsin_store_free_bytes",
}
RULES = FOLDER / "tocsin.rules.yml"
TESTS = sorted((FOLDER / "tests").glob("*.yml"))
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool isn't installed")


def promtool(*words: str | Path) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rule_names() -> set[str]:
    return set(re.findall(r"alert: (\w+)", RULES.read_text()))


@needs_promtool
def test_the_configuration_is_valid() -> None:
    assert f"{len(rule_names())} rules found" in promtool("check", "config", FOLDER / "prometheus.yml")
    promtool("check", "rules", "--lint-fatal", RULES)


@needs_promtool
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_the_rules_fire_and_keep_quiet(file: Path) -> None:
    promtool("test", "rules", file)


def test_every_rule_is_seen_firing_and_quiet() -> None:
    firing, quiet = set(), set()
    for case in "\n".join(file.read_text() for file in TESTS).split("- eval_time:")[1:]:
        name = re.findall(r"alertname: (\w+)", case)[0]
        (firing if "exp_alerts:" in case else quiet).add(name)
    assert firing == quiet == rule_names()


@pytest.fixture
def exported(shared_api: Any, redis_server: Any, hook: Any) -> Iterator[set[str]]:
    """The names of all samples of a web process and a worker."""
    names: set[str] = set()
    with ExitStack() as stack:
        for wire in (wiring.serve, wiring.work):
            settings = Settings(port=0, store=redis_server.url, slack_webhook=hook.address)
            address = stack.enter_context(Service(settings, wire=wire)).address
            text = type(shared_api)(address).get("/metrics").data.decode()
            names |= {re.split(r"[ {]", line)[0] for line in text.splitlines() if not line.startswith("#")}
        yield names


def test_every_metric_that_is_named_exists(exported: set[str]) -> None:
    for file in (FOLDER / "prometheus.yml", RULES, *TESTS, HOW_TO, DOCS / "workers.md"):
        named = set(re.findall(r"\btocsin_\w*[a-z]\b", file.read_text()))
        assert named - IN_USE <= exported, file.name
    assert re.findall(r"\btocsin_\w+", RULES.read_text())


def test_every_rule_is_explained() -> None:
    assert set(re.findall(r"^\| `(Tocsin\w+)`", HOW_TO.read_text(), re.MULTILINE)) == rule_names()
