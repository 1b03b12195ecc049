"""Alertmanager as a receiver: all the ways in which sending can go wrong, and what is sent."""

from __future__ import annotations

import json
import logging
import math
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.stores import ALERT, INCIDENT

from tocsin_detectors.alerts import Alert, Evidence, Incident, Severity, State
from tocsin_detectors.entries import RunConfig
from tocsin_service.access.links import Links
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.delivery import Failed, News, Reason, Retry, Sent
from tocsin_service.delivery.alertmanager import BATCH, LINE_LIMIT, TEXT_LIMIT, Alertmanager, render
from tocsin_service.firing import Firing, Labels, label
from tocsin_service.presentation import Presentation
from tocsin_service.silences import Matchers, Silence

NOW = 1_700_000_000.0
CRITICAL = replace(ALERT, id="a2", rule="kl_collapse", severity=Severity.CRITICAL, metric="actor/kl_loss", source="kl")
COLLAPSE = replace(
    INCIDENT, rule="model_collapse", title="Model collapse", severity=Severity.CRITICAL, members=("a1", "a2")
)
NEWS = News(Reason.CHANGED, COLLAPSE, (ALERT, CRITICAL))
SHOWN = Sent("shown")
SECRET = "/services/T0/B0/very-secret/api/v2/alerts"  # noqa: S105 - the hook's


@pytest.fixture
def make() -> Iterator[Callable[..., Alertmanager]]:
    made: list[Alertmanager] = []

    def build(address: str, **more: Any) -> Alertmanager:
        made.append(Alertmanager(address, clock=lambda: NOW, **more))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def receiver(make: Callable[..., Alertmanager], hook: Any) -> Alertmanager:
    return make(hook.address)


def iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")


def pushed(hook: Any) -> dict[Labels, dict[str, Any]]:
    """What was sent since the last look, by label sets."""
    found = {}
    while not hook.posts.empty():
        for alert in hook.next():
            labels = dict(alert["labels"])
            assert labels.pop("alertname") == f"TocsinRun{labels['severity'].title()}"
            found[Labels(**labels)] = alert
    return found


class TestSending:
    def test_what_fires_is_sent_to_the_api(self, receiver: Alertmanager, hook: Any) -> None:
        assert receiver.tell(NEWS) == SHOWN
        headers, body = hook.raw.get(timeout=30)
        assert headers["Content-Type"] == "application/json"
        # What inhibits comes first.
        for sent, subjects in ((json.loads(body), (CRITICAL, COLLAPSE)), (hook.posts.queue[1], (ALERT,))):
            assert sent == [
                {**render(one, COLLAPSE, NEWS.alerts), "startsAt": iso(NOW), "endsAt": iso(NOW + 120)}
                for one in subjects
            ]

    @pytest.mark.parametrize(
        ("headers", "after"),
        [
            ({"retry-after": "60"}, 60.0),
            ({"retry-after": "99999999"}, 3600.0),
            ({"retry-after": "nan"}, 30.0),
            ({}, 30.0),
        ],
    )
    def test_too_many_messages(self, receiver: Alertmanager, hook: Any, headers: dict[str, str], after: float) -> None:
        hook.script = [(429, headers)]
        assert receiver.tell(NEWS) == Retry("HTTP 429: too many messages", after)

    @pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504])
    def test_trouble_that_passes(self, receiver: Alertmanager, hook: Any, status: int) -> None:
        hook.script = [(status, {})]
        assert receiver.tell(NEWS) == Retry(f"HTTP {status}")
        assert receiver.tell(NEWS) == SHOWN

    @pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 410])
    def test_trouble_that_somebody_has_to_mend(self, receiver: Alertmanager, hook: Any, status: int) -> None:
        hook.script = [(status, {"location": "http://127.0.0.1:1/"})]
        result = receiver.tell(NEWS)
        assert isinstance(result, Failed if status == 400 else Retry)
        assert f"HTTP {status}" in result.reason
        assert "check Alertmanager's address" in result.reason
        assert "secret" not in result.reason

    def test_no_answer(self, make: Callable[..., Alertmanager], hook: Any) -> None:
        hook.gate.clear()
        assert make(hook.address, timeout=0.2).tell(NEWS) == Retry("ReadTimeout")
        hook.gate.set()

    def test_nobody_there(self, make: Callable[..., Alertmanager]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        assert make(f"http://127.0.0.1:{port}/very-secret").tell(NEWS) == Retry("ConnectError")

    @pytest.mark.parametrize("echo", [SECRET, "key=very-secret", "pass-word"])
    def test_an_echo_of_the_secret_is_redacted(self, make: Callable[..., Alertmanager], hook: Any, echo: str) -> None:
        hook.script, hook.body = [(404, {})], f"no {echo} here".encode()
        result = make(f"{hook.address.replace('//', '//user:pass-word@')}?key=very-secret").tell(NEWS)
        assert isinstance(result, Retry)
        assert "no *** here" in result.reason

    def test_a_password_is_sent_as_one(self, make: Callable[..., Alertmanager], hook: Any) -> None:
        make(hook.address.replace("//", "//user:pass-word@") + "/").tell(NEWS)
        headers, _ = hook.raw.get(timeout=30)
        assert headers["Authorization"].startswith("Basic ")

    def test_the_secret_is_in_no_log(self, make_api: Any, hook: Any, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        hook.script = [(500, {}), (400, {})]
        api = make_api(alertmanager=hook.address)
        for step in range(5):
            api.post({"step": step, "metrics": {"actor/pg_loss": math.nan}})
        hook.next()
        hook.next()
        api.service.stop()
        assert "alertmanager" in caplog.text
        assert "very-secret" not in caplog.text

    def test_many_are_sent_in_batches(self, receiver: Alertmanager, hook: Any) -> None:
        alerts = tuple(replace(ALERT, id=str(number), metric=f"m{number}") for number in range(BATCH + 50))
        assert receiver.tell(replace(NEWS, alerts=alerts)) == SHOWN
        assert [len(hook.next()) for _ in range(3)] == [1, BATCH, 50]

    def test_what_arrived_before_the_trouble_is_known(self, receiver: Alertmanager, hook: Any) -> None:
        alerts = tuple(replace(ALERT, id=str(number), metric=f"m{number}") for number in range(BATCH + 50))
        hook.script = [(200, {}), (500, {})]
        assert receiver.tell(replace(NEWS, alerts=alerts)) == Retry("HTTP 500")
        pushed(hook)
        assert receiver.show([], (), {}) == SHOWN
        assert pushed(hook).keys() == {label(one) for one in alerts}  # they have to be shown; the incident was

    def test_what_is_refused_keeps_nothing_else_back(self, receiver: Alertmanager, hook: Any) -> None:
        hook.script = [(400, {})]
        assert isinstance(receiver.tell(NEWS), Failed)
        assert pushed(hook).keys() == {label(ALERT), label(CRITICAL), label(COLLAPSE)}


class TestIncidents:
    """What is pushed when there are news."""

    def test_a_severity_that_rises_ends_the_warning(self, receiver: Alertmanager, hook: Any) -> None:
        receiver.tell(News(Reason.CHANGED, INCIDENT, (ALERT,)))
        assert pushed(hook).keys() == {label(ALERT), label(INCIDENT)}
        worse, incident = replace(ALERT, severity=Severity.CRITICAL), replace(INCIDENT, severity=Severity.CRITICAL)
        receiver.tell(News(Reason.CHANGED, incident, (worse,)))
        ends = {labels: one["endsAt"] for labels, one in pushed(hook).items()}
        assert ends == dict.fromkeys(map(label, (ALERT, INCIDENT, worse, incident)), iso(NOW + 120))
        receiver.show([Firing(incident, (worse,), {})], (), {})
        assert pushed(hook).keys() == {label(worse), label(incident)}  # the others are left to end

    def test_what_is_over_ends(self, receiver: Alertmanager, hook: Any) -> None:
        receiver.tell(NEWS)
        first = pushed(hook)
        over = tuple(replace(one, state=State.RESOLVED) for one in NEWS.alerts)
        assert receiver.tell(replace(NEWS, incident=replace(COLLAPSE, state=State.RESOLVED), alerts=over)) == SHOWN
        assert pushed(hook) == first
        assert receiver.show([], (), {}) is None

    def test_what_nobody_was_shown_is_shown_if_it_was_critical(self, receiver: Alertmanager, hook: Any) -> None:
        over = tuple(replace(one, state=State.RESOLVED) for one in NEWS.alerts)
        receiver.tell(News(Reason.CHANGED, replace(INCIDENT, state=State.RESOLVED), over))
        receiver.tell(News(Reason.CHANGED, replace(COLLAPSE, state=State.RESOLVED), over))
        found = pushed(hook)
        assert found.keys() == {label(ALERT), label(CRITICAL), label(COLLAPSE)}
        assert {one["endsAt"] for one in found.values()} == {iso(NOW + 120)}

    def test_what_another_process_has_shown_ends_at_once(self, receiver: Alertmanager, hook: Any) -> None:
        over = tuple(replace(one, state=State.RESOLVED) for one in NEWS.alerts)
        receiver.tell(News(Reason.CHANGED, replace(COLLAPSE, state=State.RESOLVED), over, thread="shown"))
        assert {one["endsAt"] for one in pushed(hook).values()} == {iso(NOW)}

    def test_members_that_are_over_or_only_worth_a_look_are_not_shown(self, receiver: Alertmanager, hook: Any) -> None:
        alerts = (replace(ALERT, state=State.RESOLVED), replace(ALERT, severity=Severity.INFO), CRITICAL)
        receiver.tell(replace(NEWS, alerts=alerts))
        assert pushed(hook).keys() == {label(CRITICAL), label(COLLAPSE)}

    def test_single_alerts_are_silenced(self, receiver: Alertmanager, hook: Any) -> None:
        silence = Silence("s", Matchers(rule="kl_*", labels={"team": "rl"}), NOW - 1, NOW + 1)
        receiver.heed(lambda: [silence])
        receiver.tell(replace(NEWS, config=RunConfig(labels={"team": "rl"})))
        assert pushed(hook).keys() == {label(ALERT), label(COLLAPSE)}
        receiver.tell(NEWS)  # of a run without the label
        assert pushed(hook).keys() == {label(ALERT), label(CRITICAL), label(COLLAPSE)}

    def test_many_at_once(self, receiver: Alertmanager, hook: Any) -> None:
        other = replace(COLLAPSE, id="i2", run="other")
        assert receiver.summarise([NEWS, News(Reason.CHANGED, other)]) == SHOWN
        assert pushed(hook).keys() == {label(ALERT), label(CRITICAL), label(COLLAPSE), label(other)}


class TestTexts:
    def test_an_incident(self) -> None:
        shown = Presentation(runbook_base="https://docs.example/rb", links=Links("https://t.example", "k" * 16))
        alert = replace(CRITICAL, evidence=Evidence(9.5, detail="9.5 against a baseline of 1"))
        rendered = render(COLLAPSE, COLLAPSE, (alert,), Acknowledgement("r", "i1", "ann", "on it"), shown)
        assert rendered["labels"] == {
            "alertname": "TocsinRunCritical",
            "run": "r",
            "rule": "model_collapse",
            "severity": "critical",
            "metric": "incident",
            "incident": "i1",
        }
        assert rendered["annotations"] == {
            "summary": "Model collapse, since step 2",
            "description": "kl: 9.5 against a baseline of 1 (kl_collapse)",
            "meaning": "m",
            "remedies": "1. stop",
            "runbook": "https://docs.example/rb/model_collapse.md",
            "onset_step": "2",
            "last_good_step": "1",
            "acknowledged_by": "ann: on it",
            "dashboard": "https://t.example/dashboard/#/runs/r/incidents/i1",
        }
        assert rendered["generatorURL"].startswith("https://t.example/linked/incident/r/i1?expires=")

    def test_an_alert_of_a_rule_of_ones_own_that_was_wrong_from_the_start(self) -> None:
        alert = replace(ALERT, rule="mine", meaning="", remedies=(), evidence=Evidence(math.nan))
        rendered = render(alert, replace(INCIDENT, last_good_step=None), (alert,))
        assert rendered["labels"]["metric"] == "actor/pg_loss"
        assert rendered["annotations"] == {
            "summary": "mine: loss, since step 2",
            "description": "s",
            "onset_step": "2",
            "last_good_step": "none: wrong from the start",
        }
        assert "generatorURL" not in rendered

    def test_in_chinese(self) -> None:
        alert = replace(ALERT, evidence=Evidence(math.nan, detail="loss is nan"))
        annotations = render(INCIDENT, INCIDENT, (alert,), None, Presentation("zh"))["annotations"]
        assert annotations["summary"] == "t，自第 2 步起"
        assert annotations["description"] == f"loss：loss 的值为 nan ({ALERT.rule})"
        annotations = render(alert, INCIDENT, (alert,), None, Presentation("zh"))["annotations"]
        assert annotations["description"] == "loss 的值为 nan"

    @given(st.text(max_size=3000), st.integers(0, 40))
    def test_texts_are_bounded_and_labels_stay_as_they_are(self, text: str, members: int) -> None:
        def changed(one: Alert | Incident) -> Any:
            return replace(one, run=text, rule=text, meaning=text, remedies=(text,) * 9)

        alert = replace(changed(ALERT), metric=text, source=text, summary=text, evidence=Evidence(1.0, detail=text))
        incident = replace(changed(INCIDENT), title=text)
        for subject in (alert, incident):
            rendered = render(subject, incident, (alert,) * members, Acknowledgement("r", "i", text, text))
            assert rendered["labels"]["run"] == text
            for annotation in rendered["annotations"].values():
                assert 0 < len(annotation) <= TEXT_LIMIT
        lines = rendered["annotations"].get("description", "").split("\n")
        assert all(len(line) <= LINE_LIMIT for line in lines)
