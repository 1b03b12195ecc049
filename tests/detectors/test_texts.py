"""The rules' texts in other languages say the same as the English ones, and replace nothing that isn't theirs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tocsin_detectors.alerts import IncidentEvent, alert_to_json, incident_to_json
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import StepVector
from tocsin_detectors.rules import Rule, shipped_rules
from tocsin_detectors.texts import (
    LANGUAGES,
    _read,
    _translations,
    families,
    localise,
    localise_incident,
    story,
    translated,
)

RULES = list(shipped_rules())
# What a translation has to leave alone: configuration keys, metric names, environment variables and numbers.
KEPT = re.compile(r"[A-Za-z]\w*(?:[./=]\w+)+|\w+_\w+|\d+(?:\.\d+)?")


def name(rule: Rule) -> str:
    return rule.name


@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("lang", [lang for lang in LANGUAGES if lang != "en"])
def test_every_rule_is_translated(rule: Rule, lang: str) -> None:
    told = _translations(lang)[rule.name]
    assert set(told) == {"title", "meaning", "remedies"}
    assert len(told["remedies"]) == len(rule.remedies)
    for text in (told["title"], told["meaning"], *told["remedies"]):
        assert re.search(r"[\u4e00-\u9fff]", text), text
        assert text == text.strip()


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_keys_names_and_numbers_stay_as_they_are(rule: Rule) -> None:
    told = translated(rule, "zh")
    pairs = zip((rule.title, rule.meaning, *rule.remedies), (told.title, told.meaning, *told.remedies), strict=True)
    for english, chinese in pairs:
        assert not {key for key in KEPT.findall(english) if key not in chinese} - {"training/inference"}, chinese


def test_no_text_is_left_of_a_rule_that_is_no_more() -> None:
    names = {rule.name for rule in RULES}
    for file in ("zh", "runbooks"):
        assert set(_read(file)["rules"]) == names


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_family_has_a_name(lang: Any) -> None:
    assert set(families(lang)) == {rule.family for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_every_rule_has_its_story(rule: Rule) -> None:
    told = story(rule.name)
    assert 1 <= len(re.findall(r"[.?!](?:\s|$)", told.impact)) <= 3
    assert 2 <= len(told.diagnosis) <= 5
    assert len(set(told.diagnosis)) == len(told.diagnosis)


def collapse() -> Engine:
    """An engine at the end of a run in which KL, entropy and reward break together."""
    engine = Engine("run")
    for step in range(1, 61):
        broken = step >= 40
        metrics = {
            "actor/kl_loss": 0.9 if broken else 0.01,
            "actor/entropy": 0.01 if broken else 0.4,
            "critic/score/mean": 0.02 if broken else 0.5 + 0.01 * (step % 3),
        }
        engine.feed(StepVector(step, metrics))
    return engine


def test_an_alert_in_chinese() -> None:
    alert = next(alert for alert in collapse().firing if alert.rule == "kl_collapse")
    english = alert_to_json(alert)
    told = localise(english, "zh")
    chinese = translated(shipped_rules()["kl_collapse"], "zh")
    assert told["meaning"] == chinese.meaning != english["meaning"]
    assert told["remedies"] == list(chinese.remedies)
    assert {key for key in told if told[key] != english[key]} == {"meaning", "remedies", "evidence", "summary"}
    assert localise(english, "en") == english == alert_to_json(alert)


def test_a_collapse_in_chinese_names_its_families() -> None:
    incident = collapse().incidents[0]
    english = incident_to_json(incident)
    assert english["rule"] == "model_collapse"
    told = localise_incident(english, "zh")
    broken = re.fullmatch("模型崩溃：(.+)同时失守", told["title"])
    assert broken is not None
    assert sorted(broken[1].split("、")) == sorted(["KL 散度", "熵", "奖励"])
    assert told["meaning"] == translated(shipped_rules()["model_collapse"], "zh").meaning
    assert localise_incident(english, "en") == english


def test_an_incident_of_one_rule_has_that_rules_title() -> None:
    engine = Engine("run")
    events = [
        event for step in range(30) for event in engine.feed(StepVector(step, {"a": float("nan") if step == 20 else 1}))
    ]
    incident = next(event.incident for event in events if isinstance(event, IncidentEvent))
    assert localise_incident(incident_to_json(incident), "zh")["title"] == "指标出现 NaN 或无穷大"


def test_what_a_site_wrote_itself_is_not_translated() -> None:
    alert = alert_to_json(collapse().firing[0])
    own = {**alert, "meaning": "Ask Li."}
    assert localise(own, "zh")["meaning"] == "Ask Li."
    assert localise(own, "zh")["remedies"] != own["remedies"]
    foreign = {**alert, "rule": "our_own_rule"}
    told = localise(foreign, "zh")
    assert (told["meaning"], told["remedies"]) == (foreign["meaning"], foreign["remedies"])
    rule = replace(shipped_rules()["kl_collapse"], title="Ours")
    assert translated(rule, "zh").title == "Ours"


def test_an_unknown_language_names_the_known_ones() -> None:
    french: Any = "fr"
    with pytest.raises(ValueError, match="en, zh"):
        localise({"rule": "kl_collapse"}, french)
