"""From a step vector to a person, through the real Prometheus and Alertmanager, configured by the files in deploy/."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import Recording
from tests.deploy.alerting import Alertmanager, Person, judged, person, reserve_port, start_prometheus
from tests.deploy.native import DEPLOY, LISTENING, call, needs, read_yaml, start, until
from tests.service import stores

from tocsin_detectors.alerts import Evidence, Severity
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.app import Service
from tocsin_service.delivery.alertmanager import Alertmanager as Receiver
from tocsin_service.delivery.alertmanager import render
from tocsin_service.firing import alertname
from tocsin_service.settings import Settings

__all__ = ["person"]  # a fixture

RUN = 'qwen <!channel> & "co" {{ .Labels }}'
COLLAPSE = "collapse_temperature_mismatch"  # critical alerts and a warning in one incident
CRITICAL = {"actor/kl_loss", "rollout_corr/logprob_abs_diff_mean", "actor/pg_loss", "incident"}
ALERT = replace(stores.ALERT, evidence=Evidence(1.0, detail="d"))
COLLAPSE_INCIDENT = replace(stores.INCIDENT, rule="model_collapse", title="Model collapse", severity=Severity.CRITICAL)
TRAINER = """
import sys, time, tocsin
tocsin.init("trainer", url=sys.argv[1])
for step in range(10**9):
    tocsin.log({"actor/grad_norm": 1.0}, step=step)
    time.sleep(0.02)
"""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def alertmanager(stack: ExitStack, tmp_path: Path, person: Person) -> Alertmanager:
    needs("prometheus-alertmanager")
    return Alertmanager(tmp_path / "alertmanager", *reserve_port(stack), person)


@pytest.fixture
def bodies(recorded: tuple[Recording, ...]) -> list[dict[str, Any]]:
    return next(one.bodies for one in recorded if one.name == COLLAPSE)


def post(tocsin: str, bodies: list[dict[str, Any]], run: str = RUN) -> None:
    """Sends a whole run; returns when it is judged."""
    assert call(tocsin, f"/v1/runs/{quote(run, safe='')}/steps", body=bodies)[0] == 202
    until(lambda: judged(tocsin, run), "the fold")


def accept(tocsin: str, run: str = RUN) -> None:
    """Says that all is normal: what fires is over."""
    status, body = call(tocsin, f"/v1/runs/{quote(run, safe='')}/rebaseline", body={})
    assert status == 202, body


def assert_one_message(person: Person, alertmanager: Alertmanager, run: str = RUN) -> None:
    """The collapse of ``run`` fires and is told: once, as one incident, and its warning isn't."""
    message = person.hears("run-critical", "firing", run=run)
    assert {alert["labels"]["metric"] for alert in message["alerts"]} == CRITICAL
    assert {alert["status"] for alert in message["alerts"]} == {"firing"}
    assert len({alert["labels"]["incident"] for alert in message["alerts"]}) == 1
    [title] = until(lambda: {one["title"] for one in person.messages() if escaped(run) in one["title"]}, "Slack")
    assert title.startswith(f"🔔 critical: {escaped(run)} — ")
    assert "model_collapse" in title or "Model collapse: kl, mismatch, actor broke together" in title
    warnings = until(lambda: inhibited(alertmanager, run), "the inhibition")
    assert [one["labels"]["rule"] for one in warnings] == ["logprob_diff_high"]


def inhibited(alertmanager: Alertmanager, run: str) -> list[dict[str, Any]]:
    """Warnings of the run that are not told because of something critical."""
    found = alertmanager.alerts("TocsinRunWarning")
    return [one for one in found if one["labels"]["run"] == run and one["status"]["inhibitedBy"]]


def escaped(text: str) -> str:
    """As Slack wants what is no markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def assert_over(person: Person, run: str = RUN) -> None:
    """It is over, and there was nothing else to tell."""
    person.hears("run-critical", "resolved", run=run)
    assert len(person.told("run-critical", "firing", run=run)) == 1
    assert len(person.told("run-critical", "resolved", run=run)) == 1
    assert not person.told("run-warning", "firing", run=run)
    assert not any("<!channel>" in str(one) for one in person.messages())


def test_by_scrape(
    stack: ExitStack, tmp_path: Path, alertmanager: Alertmanager, person: Person, bodies: list[dict[str, Any]]
) -> None:
    needs("prometheus")
    caught_up = tmp_path / "caught-up"
    program = [sys.executable, Path(__file__).with_name("slow_clock.py"), "0", tmp_path / "tocsin.db", caught_up]
    service = start(stack, program, {})
    tocsin = service.said(LISTENING).group(1)
    trainer = start(stack, [sys.executable, "-c", TRAINER, tocsin], {})
    post(tocsin, bodies)
    alertmanager.start(stack)
    start_prometheus(stack, tmp_path / "prometheus", tocsin, alertmanager.address)

    assert_one_message(person, alertmanager)
    accept(tocsin)
    assert_over(person)

    until(lambda: json.loads(call(tocsin, "/v1/runs/trainer")[1])["vectors"] > 20, "a pace")
    trainer.kill()
    caught_up.touch()  # an hour has passed
    message = person.hears("run-critical", "firing", run="trainer")
    assert {alert["labels"]["rule"] for alert in message["alerts"]} == {"run_stalled"}

    # At its start, before the first scrape, Prometheus may have missed Tocsin too.
    until(lambda: not alertmanager.alerts("TocsinDown"), "Tocsin")
    before = len(person.told("tocsin", "firing", alertname="TocsinDown"))
    service.kill()
    messages = until(lambda: person.told("tocsin", "firing", alertname="TocsinDown")[before:], "the page")
    assert messages[0]["commonLabels"]["severity"] == "critical"
    until(lambda: "🔔 critical: TocsinDown" in {one["title"] for one in person.messages()}, "Slack")


@pytest.fixture
def pushing(
    stack: ExitStack, tmp_path: Path, alertmanager: Alertmanager, monkeypatch: pytest.MonkeyPatch
) -> Callable[[float], str]:
    """Starts Tocsin, which pushes what fires every so many seconds; its address."""

    def begin(resend: float) -> str:
        monkeypatch.setattr(Receiver, "resend", resend)
        settings = Settings(port=0, db=tmp_path / "tocsin.db", alertmanager=alertmanager.address)
        return stack.enter_context(Service(settings)).address

    return begin


def sample(address: str, name: str, **labels: str) -> float:
    """The sum over the samples of a metric that have (at least) these labels."""
    families = text_string_to_metric_families(call(address, "/metrics")[1].decode())
    found = (one for family in families for one in family.samples if one.name == name)
    return sum(one.value for one in found if labels.items() <= one.labels.items())


def refused(tocsin: str) -> float:
    """How often Alertmanager couldn't be told."""
    return sample(tocsin, "tocsin_delivery_total", receiver="alertmanager", result="retry")


def test_by_push_to_an_alertmanager_that_comes_and_goes(
    stack: ExitStack,
    alertmanager: Alertmanager,
    person: Person,
    bodies: list[dict[str, Any]],
    pushing: Callable[[float], str],
) -> None:
    tocsin = pushing(2.0)
    # What began and ended while Alertmanager was away is told.
    post(tocsin, bodies, "missed")
    accept(tocsin, "missed")
    until(lambda: judged(tocsin, "missed"), "the fold")
    before = refused(tocsin)
    until(lambda: refused(tocsin) > before + 1, "an attempt in vain")
    post(tocsin, bodies)
    alertmanager.start(stack)
    person.hears("run-critical", "firing", run="missed")
    assert_one_message(person, alertmanager)
    assert_over(person, "missed")

    # What it forgets while it is away is told it again, and isn't told to people again; what ends meanwhile is told.
    post(tocsin, bodies, "other")
    assert_one_message(person, alertmanager, "other")
    alertmanager.stop()
    accept(tocsin)
    until(lambda: judged(tocsin, RUN), "the fold")
    alertmanager.start(stack)
    assert_over(person)
    assert_one_message(person, alertmanager, "other")
    accept(tocsin, "other")
    assert_over(person, "other")


def test_by_scrape_and_push_together(
    stack: ExitStack,
    tmp_path: Path,
    alertmanager: Alertmanager,
    person: Person,
    bodies: list[dict[str, Any]],
    pushing: Callable[[float], str],
) -> None:
    needs("prometheus")
    tocsin = pushing(4.0)
    post(tocsin, bodies)
    alertmanager.start(stack)
    prometheus = start_prometheus(stack, tmp_path / "prometheus", tocsin, alertmanager.address)
    assert_one_message(person, alertmanager)
    until(lambda: sample(prometheus, "prometheus_notifications_sent_total") >= len(CRITICAL) + 1, "Prometheus' own")
    assert sample(tocsin, "tocsin_delivery_total", receiver="alertmanager", result="sent")
    assert_one_message(person, alertmanager)
    assert len(alertmanager.alerts("TocsinRunCritical")) == len(CRITICAL)
    accept(tocsin)
    assert_over(person)


class TestFiles:
    """The files by themselves, looked at by Alertmanager's own tool."""

    def test_the_configuration_is_valid(self) -> None:
        command = [needs("amtool"), "check-config", DEPLOY / "alertmanager/alertmanager.yml"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 templates" in done.stdout

    def test_every_alert_has_a_route_and_every_inhibition_an_alert(self) -> None:
        config = read_yaml(DEPLOY / "alertmanager/alertmanager.yml")
        alerts = set(re.findall(r"alert: (\w+)", (DEPLOY / "prometheus/tocsin.rules.yml").read_text()))
        named = set(re.findall(r"Tocsin\w+", str(config["route"]["routes"]) + str(config["inhibit_rules"])))
        assert named <= alerts
        assert {alertname(severity) for severity in Severity} - {None} <= named

    def test_the_times_are_those_that_are_explained(self) -> None:
        top = read_yaml(DEPLOY / "alertmanager/alertmanager.yml")["route"]
        routes = [{**top, **route} for route in top["routes"]] + [top]
        words = {"30s": "30 s", "10s": "10 s", "1m": "1 min", "5m": "5 min", "4h": "4 h", "1d": "1 day"}
        page = (DEPLOY.parent / "docs/alerting.md").read_text()
        for time in ("group_wait", "group_interval", "repeat_interval"):
            [row] = re.findall(rf"^\| `{time}`.*?\| (.*) \|$", page, re.MULTILINE)
            assert row.split(" | ") == [words[route[time]] for route in routes]

    def test_secrets_stand_in_files(self) -> None:
        config = read_yaml(DEPLOY / "alertmanager/alertmanager.yml")
        for receiver in config["receivers"]:
            for slack in receiver["slack_configs"]:
                assert slack["api_url_file"].startswith("/run/secrets/")
                assert "api_url" not in slack

    def render(self, tmp_path: Path, alerts: list[dict[str, Any]], template: str, **data: Any) -> str:
        """A template as Alertmanager fills it."""
        given = {"status": "firing", "commonLabels": {"severity": "critical", "run": "r"}, "alerts": alerts, **data}
        (tmp_path / "data.json").write_text(json.dumps(given))
        command = [needs("amtool"), "template", "render", f"--template.glob={DEPLOY}/alertmanager/*.tmpl"]
        command += [f'--template.text={{{{ template "{template}" . }}}}', f"--template.data={tmp_path}/data.json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_a_message_of_an_incident_that_was_pushed(self, tmp_path: Path) -> None:
        pushed = render(COLLAPSE_INCIDENT, COLLAPSE_INCIDENT, (ALERT,), Acknowledgement("r", "i1", "ann", "<on it>"))
        alert = {"status": "firing", **pushed, "generatorURL": "https://tocsin.example/linked/incident/r/i1"}
        assert self.render(tmp_path, [alert], "tocsin.title") == "🔔 critical: r — Model collapse, since step 2"
        assert self.render(tmp_path, [alert], "tocsin.link") == alert["generatorURL"]
        assert self.render(tmp_path, [alert], "tocsin.color") == "danger"
        assert self.render(tmp_path, [alert], "tocsin.text").strip() == (
            "• *Model collapse, since step 2*\nloss: d (non_finite)\n*Last good step* 1\n"
            "*Acknowledged by* ann: &lt;on it&gt;\n*What it means* m\n*What to do*\n1. stop\n"
            "*Runbook* docs/runbooks/model_collapse.md"
        )

    def test_the_end_of_an_incident(self, tmp_path: Path) -> None:
        alert = {"status": "resolved", **render(COLLAPSE_INCIDENT, COLLAPSE_INCIDENT, ())}
        assert self.render(tmp_path, [alert], "tocsin.color", status="resolved") == "good"
        assert self.render(tmp_path, [alert], "tocsin.title", status="resolved").startswith("✅ resolved: r — Model")
        text = self.render(tmp_path, [alert], "tocsin.text", status="resolved")
        assert text.startswith("• over: *Model collapse")
        assert "What to do" not in text

    def test_a_flood_is_bounded_and_harmless(self, tmp_path: Path) -> None:
        hostile = "<!channel> & <https://evil|x> {{ .Alerts }} " + "&" * 5000
        names = {"summary", "description", "meaning", "remedies", "acknowledged_by", "last_good_step", "runbook"}
        labels = {"alertname": "TocsinRunCritical", "metric": hostile, "severity": "critical"}
        member = {"status": "firing", "labels": labels, "annotations": dict.fromkeys(sorted(names), hostile)}
        alerts = [{**member, "labels": {**labels, "metric": "incident"}}, *[member] * 49]
        for template in ("tocsin.text", "tocsin.title"):
            said = self.render(tmp_path, alerts, template, commonLabels={"severity": "critical", "run": hostile})
            assert "<" not in said
            assert ">" not in said
            assert "{{ .Alerts }}" in said
            assert len(said) < 40_000  # what Slack takes
        assert "… and 50 alerts in all" in self.render(tmp_path, alerts, "tocsin.text")

    def test_tocsin_itself(self, tmp_path: Path) -> None:
        labels = {"alertname": "TocsinProcessDown", "severity": "warning"}
        alert = {"status": "firing", "labels": labels, "annotations": {"summary": "gone"}}
        title = self.render(tmp_path, [alert, alert], "tocsin.title", commonLabels=labels)
        assert title == "🔔 warning: TocsinProcessDown (2)"
        assert self.render(tmp_path, [alert], "tocsin.color", commonLabels=labels) == "warning"
        assert self.render(tmp_path, [], "tocsin.link") == ""
