"""The webhook: JSON that programs can rely on, signed."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.service.told import ACKNOWLEDGED, ALERT, CONFIG, INCIDENT, NEWS, NOW, many

from tocsin_detectors.alerts import Severity, State, summarise
from tocsin_service.delivery import News, Reason, Sent
from tocsin_service.delivery.webhook import MOST_BYTES, Webhook, render, render_summary, sign
from tocsin_service.presentation import Presentation
from tocsin_service.settings.secret import Secret

GOLDEN = Path(__file__).parents[1] / "data" / "messages" / "webhook.json"


def test_a_golden_message() -> None:
    told = render(replace(NEWS, reason=Reason.ACKNOWLEDGED, acknowledged=ACKNOWLEDGED))
    assert told == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_a_message() -> None:
    message = render(NEWS, Presentation(runbook_base="rb"))
    assert message["alerts"][0]["evidence"]["value"] == "Infinity"  # strict JSON
    assert message["alerts"][0]["runbook"] == "rb/kl_collapse.md"
    assert (message["run"], message["reason"], message["link"]) == ("qwen-7b", "opened", CONFIG.link)
    assert (message["labels"], message["acknowledged"]) == ({"team": "rl"}, None)


def test_a_message_in_chinese() -> None:
    detail = "1.5 is above 0.5, the limit that holds for every run"
    alert = replace(ALERT, evidence=replace(ALERT.evidence, detail=detail))
    alert = replace(alert, summary=summarise(alert))
    (told,) = render(replace(NEWS, alerts=(alert,)), Presentation("zh"))["alerts"]
    assert told["evidence"]["detail"] == "1.5 高于 0.5，即对任何训练都适用的上限"
    head = "kl_collapse（critical）：actor/kl_loss，第 121 步（自第 120 步起）"
    assert told["summary"] == f"{head}：{told['evidence']['detail']}"
    assert told["evidence"]["value"] == "Infinity"


def test_an_id_per_piece_of_news() -> None:
    def id_of(reason: Reason = Reason.OPENED, **changes: Any) -> Any:
        return render(News(reason, replace(INCIDENT, **changes), (ALERT,), CONFIG))["id"]

    told = id_of()
    assert told == id_of(members=("a1", "a2"), resolved_step=9)
    news = [
        id_of(Reason.RESOLVED, state=State.RESOLVED),
        id_of(Reason.ESCALATED, rule="kl_collapse"),
        id_of(Reason.ACKNOWLEDGED),
        id_of(severity=Severity.WARNING),
        id_of(id="i2"),
    ]
    assert len({told, *news}) == 6


def test_the_signature(hook: Any) -> None:
    receiver = Webhook(hook.address, "key of the two", clock=lambda: NOW + 0.9)
    assert receiver.tell(NEWS) == Sent()
    assert receiver.summarise(many(3)) == Sent()
    receiver.close()
    for _ in range(2):
        headers, body = hook.raw.get(timeout=30)
        signed = hmac.new(b"key of the two", b"1700000000." + body, hashlib.sha256).hexdigest()
        assert headers["Tocsin-Timestamp"] == "1700000000"
        assert headers["Tocsin-Signature"] == f"sha256={signed}" == sign("key of the two", "1700000000", body)
        assert headers["Tocsin-Id"] == json.loads(body)["id"]


def test_a_new_key_is_used_without_a_restart(hook: Any, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("the old key")
    receiver = Webhook(hook.address, Secret.of_file(file), clock=lambda: NOW)
    file.write_text("the new key, which is longer")
    receiver.tell(NEWS)
    receiver.close()
    headers, body = hook.raw.get(timeout=30)
    assert headers["Tocsin-Signature"] == sign("the new key, which is longer", "1700000000", body)


def test_without_a_secret_nothing_is_signed(hook: Any) -> None:
    receiver = Webhook(hook.address)
    receiver.tell(NEWS)
    receiver.close()
    headers, _ = hook.raw.get(timeout=30)
    assert "Tocsin-Signature" not in headers


class TestSummary:
    def test_everything_is_in_it(self) -> None:
        news = many(20)
        message = json.loads(render_summary(news))
        assert (message["version"], message["reason"], message["complete"]) == (1, "summary", True)
        assert message["incidents"] == [render(one) for one in news]

    def test_the_id_is_that_of_the_news(self) -> None:
        news = many(20)
        told = json.loads(render_summary(news))["id"]
        assert told == json.loads(render_summary(news[::-1]))["id"]
        assert told not in {json.loads(render_summary(news[1:]))["id"], *(one.id for one in news)}

    def test_too_many_are_named(self) -> None:
        news = many(10_000)
        body = render_summary(news)
        message = json.loads(body)
        assert message["complete"] is False
        assert [one["id"] for one in message["incidents"]] == [one.id for one in news]
        assert all(one["run"] and one["reason"] and one["incident"]["title"] for one in message["incidents"])
        assert len(body) < 400 * 10_000

    def test_a_complete_one_is_bounded(self) -> None:
        news = many(2_000)
        sizes = {count: len(render_summary(news[:count])) for count in (100, 400, 800, 2_000)}
        assert sizes[100] < MOST_BYTES
        assert max(sizes.values()) < 1.1 * MOST_BYTES
