"""Alerts as people see them: in their language, with a link to the page that explains them."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any
from urllib.parse import quote

import pytest

from tocsin_detectors.alerts import Alert, Evidence, Incident, Severity, State
from tocsin_detectors.rules import shipped_rules
from tocsin_detectors.texts import LANGUAGES, translate, translated
from tocsin_service import cli
from tocsin_service.commands import report
from tocsin_service.delivery import News, Reason, digest, plain, slack, slack_message
from tocsin_service.presentation import RUNBOOK_BASE, Presentation
from tocsin_service.settings import Settings, SettingsError
from tocsin_service.terminal import columns
from tocsin_service.words import CHINESE

RULE = shipped_rules()["kl_collapse"]
PAGES = Path(__file__).resolve().parents[2] / RUNBOOK_BASE
ALERT = Alert(
    id="a1",
    run="run",
    attempt=0,
    rule=RULE.name,
    family=RULE.family,
    severity=Severity.CRITICAL,
    metric="actor/kl_loss",
    source="kl",
    onset_step=7,
    fired_step=9,
    evidence=Evidence(0.5, baseline=0.01, limit=0.1),
    summary="s",
    meaning=RULE.meaning,
    remedies=RULE.remedies,
    incident="i1",
)
INCIDENT = Incident(
    id="i1",
    run="run",
    attempt=0,
    rule=RULE.name,
    title=RULE.title,
    severity=Severity.CRITICAL,
    onset_step=7,
    first_sign="a1",
    last_good_step=6,
    members=("a1",),
    meaning=RULE.meaning,
    remedies=RULE.remedies,
)
CHINESE_RULE = translated(RULE, "zh")


def text(payload: dict[str, Any]) -> str:
    return "\n".join(block["text"]["text"] for block in payload["blocks"])


@pytest.mark.parametrize(
    ("base", "page"),
    [
        (RUNBOOK_BASE, "docs/runbooks/kl_collapse.md"),
        ("https://wiki.example/tocsin/", "https://wiki.example/tocsin/kl_collapse.md"),
    ],
)
def test_alerts_and_incidents_tell_their_page(base: str, page: str) -> None:
    shown = Presentation(runbook_base=base)
    assert shown.alert(ALERT)["runbook"] == shown.incident(INCIDENT)["runbook"] == page


def test_every_shipped_rule_has_the_page_that_is_told() -> None:
    for rule in shipped_rules():
        path = Presentation().runbook(rule.name)
        assert path is not None
        assert (PAGES.parents[1] / path).is_file()


def test_a_rule_of_a_rule_file_has_no_page() -> None:
    assert Presentation().alert(replace(ALERT, rule="our_own"))["runbook"] is None
    own = Presentation().incident(replace(INCIDENT, rule="our_own"))
    assert not any("Runbook" in line for line in report.incident_lines(own, {}))
    assert "Runbook" not in text(slack_message.render(News(Reason.OPENED, replace(INCIDENT, rule="our_own"))))


def test_a_message_in_chinese() -> None:
    shown = Presentation("zh", "https://wiki.example/r")
    payload = slack_message.render(News(Reason.ESCALATED, INCIDENT, (ALERT,)), shown)
    assert payload["text"] == f"🔺 严重：恶化：{CHINESE_RULE.title} — 训练 run，第 7 步"
    told = text(payload)
    facts = (
        "*训练* `run`，attempt 0\n*事件* `i1`，第 0 步报出\n*最早信号* kl_collapse，指标 `kl`\n*起始* 第 7 步\n"
        "*最后正常步* 6\n*手册* <https://wiki.example/r/kl_collapse.md|kl_collapse>"
    )
    for said in (
        facts,
        "*数值*\n• `kl` 0.5，基线 0.01，阈值 0.1 — kl_collapse，自第 7 步起",
        f"*含义*\n{CHINESE_RULE.meaning}",
        f"*处置建议*\n1. {CHINESE_RULE.remedies[0]}\n2. ",
    ):
        assert said in told
    over = replace(INCIDENT, state=State.RESOLVED, resolved_step=20, last_good_step=None)
    payload = slack_message.render(News(Reason.RESOLVED, over), shown)
    assert "已解除：" in payload["text"]
    assert "*最后正常步* 无：从一开始就不正常\n*解除* 第 20 步" in text(payload)


def test_the_receiver_speaks_as_it_is_set(hook: Any) -> None:
    receiver = slack.Slack(hook.address, Presentation("zh"))
    receiver.tell(News(Reason.OPENED, INCIDENT, (ALERT,)))
    receiver.close()
    assert CHINESE_RULE.title in hook.next()["text"]


@pytest.mark.parametrize("module", [report, digest, plain, slack_message])
def test_every_phrase_has_its_chinese(module: Any) -> None:
    source = inspect.getsource(module)
    phrases = [found[1] for found in re.findall(r"""say\(\s*(["'])(.+?)\1""", source)]
    assert phrases
    assert not [phrase for phrase in phrases if phrase not in CHINESE]


def test_a_phrase_keeps_its_values_in_chinese() -> None:
    for english, chinese in CHINESE.items():
        names = [sorted(name for _, name, _, _ in Formatter().parse(text) if name) for text in (english, chinese)]
        assert names[0] == names[1], english


def test_the_api_in_chinese(api: Any, collapse: Any) -> None:
    assert api.call("PUT", f"/v1/runs/{collapse.name}", collapse.told).status == 200
    assert api.post(collapse.bodies, run=collapse.name).status == 202
    api.settle()
    for kind in ("alerts", "incidents"):
        for path in (f"/v1/runs/{quote(collapse.name)}/{kind}", f"/v1/{kind}"):
            english, chinese = api.get(path).json[kind], api.get(f"{path}?lang=zh").json[kind]
            assert english
            assert [row["id"] for row in english] == [row["id"] for row in chinese]
            for before, after in zip(english, chinese, strict=True):
                told = translated(shipped_rules()[before["rule"]], "zh")
                assert (after["meaning"], after["remedies"]) == (told.meaning, list(told.remedies))
                assert after["runbook"] == before["runbook"] == f"{RUNBOOK_BASE}/{before['rule']}.md"
                if kind == "alerts":
                    detail = translate(before["evidence"]["detail"], "zh")
                    assert after["evidence"] == {**before["evidence"], "detail": detail} != before["evidence"]
                    assert after["summary"].endswith(f"：{detail}")
            answer = api.get(f"{path}?lang=fr")
            assert answer.status == 422
            assert "'en' or 'zh'" in json.dumps(answer.json)


@pytest.fixture
def broken(tmp_path: Path) -> str:
    rows = [{"step": step, "metrics": {"actor/grad_norm": "NaN" if step == 20 else 1.0}} for step in range(30)]
    file = tmp_path / "broken.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_the_command_in_chinese(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--lang", "zh", broken]) == 1
    out = capsys.readouterr().out
    title = translated(shipped_rules()["non_finite"], "zh").title
    for said in (
        "严重",
        title,
        "自第 20 步起",
        "最后正常步：19",
        "已恢复",
        "手册：docs/runbooks/non_finite.md",
        "actor/grad_norm 的值为 nan",
    ):
        assert said in out
    assert all(columns(line) <= report.WIDTH for line in out.splitlines())
    assert cli.main(["check", "--json", "--lang", "zh", broken]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["incidents"][0]["title"] == title
    assert told["incidents"][0]["runbook"] == told["alerts"][0]["runbook"] == "docs/runbooks/non_finite.md"


def test_a_rule_explained_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    for rule in shipped_rules():
        assert cli.main(["rules", rule.name, "--lang", "zh"]) == 0
        out = capsys.readouterr().out
        told = translated(rule, "zh")
        assert all(said in out for said in (told.title, told.meaning, *told.remedies, "处置建议"))
    assert cli.main(["rules", "--lang", "zh"]) == 0
    assert CHINESE_RULE.title in capsys.readouterr().out


def test_the_command_knows_every_language() -> None:
    assert cli.LANGUAGES == LANGUAGES


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("one two", ["- one two"]),
        ("x" * 200, ["- " + "x" * 200]),
        ("a " * 60, ["- " + "a " * 53 + "a", "  " + "a " * 5 + "a"]),
        ("字" * 60, ["- " + "字" * 54, "  " + "字" * 6]),
        ("字" * 54 + "，字", ["- " + "字" * 53, "  字，字"]),
        ("字" * 53 + "（字）", ["- " + "字" * 53, "  （字）"]),
        ("字 actor_rollout_ref.lr，字", ["- 字 actor_rollout_ref.lr，字"]),
    ],
)
def test_lines_are_broken_where_each_language_breaks_them(text: str, lines: list[str]) -> None:
    assert list(report._wrapped(text, "- ")) == lines


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lang": "fr"}, "en or zh"),
        ({"runbook_base": "a b"}, "runbook_base"),
        ({"runbook_base": "https://x/|<!channel>"}, "runbook_base"),
        ({"runbook_base": "x" * 201}, "runbook_base"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(**changes)
