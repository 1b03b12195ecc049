"""The runbook in docs/ is what the rules say, and what it names exists."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tocsin_detectors import algorithms
from tocsin_detectors.algorithms import LevelShift, Test
from tocsin_detectors.catalogue import lookup
from tocsin_detectors.rulefile import load
from tocsin_detectors.rules import Condition, Rule, shipped_rules
from tocsin_detectors.runbooks import INDEX, pages
from tocsin_detectors.runbooks.wording import CONDITIONS, NO_TESTS, describe
from tocsin_detectors.texts import story

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
RULES = list(shipped_rules())
PAGES = pages()
TESTS = [
    kind
    for name in algorithms.__all__
    if isinstance(kind := getattr(algorithms, name), type) and issubclass(kind, Test) and kind is not Test
]


def name(subject: Any) -> str:
    return getattr(subject, "name", None) or subject.__name__


def test_the_pages_in_docs_are_those_of_the_rules() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    assert written == dict(PAGES), "run `make runbooks` and commit docs/runbooks"


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_page_has_every_part(rule: Rule) -> None:
    page = PAGES[f"{rule.name}.md"]
    parts = ("Meaning", "Impact", "Diagnosis", "Mitigation", "How it is judged", "To change it", "中文")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(parts)
    impact = story(rule.name).impact.split("`")[0]  # what follows may be a link
    for said in (rule.title, rule.meaning, impact, f"**Severity.** {rule.severity.title()}"):
        assert said in page


def test_the_index_has_every_rule_once() -> None:
    assert sorted(re.findall(r"^\| \[`(\w+)`\]", PAGES[INDEX], re.MULTILINE)) == sorted(rule.name for rule in RULES)


def test_every_link_between_pages_leads_somewhere() -> None:
    anchors = set(re.findall(r'<a id="(\w+)"></a>', PAGES[INDEX]))
    for file, page in PAGES.items():
        for target, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", page)):
            assert target in PAGES or target == "../rules.md", (file, target)
            assert not anchor or anchor in anchors, (file, anchor)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_impact_and_diagnosis_name_only_what_exists(rule: Rule) -> None:
    told = story(rule.name)
    own = {metric for other in RULES for metric in other.metrics}
    for quoted in re.findall(r"`([^`]+)`", " ".join([told.impact, *told.diagnosis])):
        stage = quoted.replace("*", "{stage}")
        assert quoted in shipped_rules() or quoted in own or lookup(stage) is not None, quoted


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_the_rule_files_on_a_page_are_valid_and_change_nothing(rule: Rule) -> None:
    shown, *others = re.findall(r"```yaml\n(.*?)```", PAGES[f"{rule.name}.md"], re.DOTALL)
    rules = load(shown)
    if rule.name != "model_collapse":
        assert rules[rule.name] == rule
        (off,) = others
        assert rule.name not in load(off)


def test_every_condition_has_words() -> None:
    assert set(CONDITIONS) == set(Condition)
    assert set(NO_TESTS) == {rule.name for rule in RULES if not rule.tests}


def changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case "both" | "up":
            return "down"
        case "down":
            return "up"
        case None:
            return 7
        case int():
            return value + 2
        case _:
            return value * 1.5 + 0.25


@pytest.mark.parametrize("kind", TESTS, ids=name)
def test_every_parameter_of_a_test_shows_in_its_words(kind: type[Test]) -> None:
    needed: dict[str, Any] = {"above": 1.0} if kind is algorithms.Bound else {}
    test = kind(**needed)
    for one in fields(kind):
        if one.name in {"below", "beyond"}:
            continue  # in place of `above`
        other = replace(test, **{one.name: changed(getattr(test, one.name))})
        scales = (("symlog",), ("logit",), ("linear",))
        assert any(describe(test, kinds) != describe(other, kinds) for kinds in scales), one.name


def test_a_test_without_words_says_where_they_belong() -> None:
    class New(Test):
        def start(self) -> Any: ...

    with pytest.raises(TypeError, match="no words for New"):
        describe(New(), ("linear",))


def test_sizes_are_told_on_each_scale() -> None:
    test = LevelShift("up", ratio=3, relative=0.5, absolute=0.1)
    assert "by a factor of 3 and by 0.1 in" in describe(test, ("symlog",))
    assert "by 50 % of the level's size and by 0.1 in" in describe(test, ("linear",))
    assert "by 0.1 (a difference of shares)" in describe(test, ("logit",))
