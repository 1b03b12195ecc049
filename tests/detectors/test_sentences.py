"""Every sentence that an alert says of its numbers has its Chinese, with the same numbers in it."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tocsin_detectors
import tocsin_service
from tocsin_detectors import texts
from tocsin_detectors.alerts import SUMMARIES, AlertEvent, Severity, alert_to_json
from tocsin_detectors.algorithms import Bound, LevelShift, Plateau, Reading, Test
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import StepVector
from tocsin_detectors.rules import Rule, RuleSet
from tocsin_detectors.sentences import Form, Sentence
from tocsin_detectors.texts import localise, translate

SENTENCES: dict[str, str] = texts._read("zh")["sentences"]
CHINESE: dict[str, str] = {**SENTENCES, **texts._read("zh")["summaries"]}
HAN = re.compile(r"[\u4e00-\u9fff]")
NAMES = st.text("abcXYZ0189_/.-@: ", min_size=1, max_size=20)
NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 1e-300, -1e300, math.nan, math.inf, -math.inf])
WHOLE = st.integers(-(2**70), 2**70)


def written() -> Iterator[ast.expr]:
    """What the ``Form(...)`` of the detectors and the service are made of; translations are no forms of their own."""
    for package in (tocsin_detectors, tocsin_service):
        for file in Path(inspect.getfile(package)).parent.rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            if "Form(" not in source or file == Path(inspect.getfile(texts)):
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Form":
                    yield node.args[0]


def places(text: str) -> dict[str, str | None]:
    """The places of a form, and how what they hold is written."""
    return {name: spec for _, name, spec, _ in Formatter().parse(text) if name is not None}


def values(form: str) -> st.SearchStrategy[dict[str, Any]]:
    """Values that fit into a form."""
    kinds = {"": NAMES, "d": WHOLE}
    return st.fixed_dictionaries({name: kinds.get(spec or "", NUMBERS) for name, spec in places(form).items()})


def test_every_form_is_in_chinese_and_no_other() -> None:
    found = [node.value if isinstance(node, ast.Constant) else ast.unparse(node) for node in written()]
    assert len(found) > 30
    assert set(found) == set(CHINESE)


def test_all_summaries_are_known_as_such() -> None:
    assert {form.text for form in SUMMARIES} == set(CHINESE) - set(SENTENCES)


@pytest.mark.parametrize("form", CHINESE)
def test_the_chinese_has_the_same_places_and_leaves_numbers_as_they_are(form: str) -> None:
    told = CHINESE[form]
    assert HAN.search(told)
    assert sorted(places(told)) == sorted(places(form))
    assert set(places(told).values()) == {""}


@pytest.mark.parametrize("form", SENTENCES)
def test_a_sentence_has_one_name_at_most(form: str) -> None:
    """With two, a long sentence could take a time to read that grows with the square of its length."""
    assert list(places(form).values()).count("") <= 1


@given(st.sampled_from(list(SENTENCES)).flatmap(lambda form: st.tuples(st.just(form), values(form))))
def test_a_sentence_says_the_same_in_chinese(case: tuple[str, dict[str, Any]]) -> None:
    form, given_values = case
    english = str(Form(form)(**given_values))
    shown = {name: f"{{{name}{spec}}}".format(**given_values) for name, spec in conversions(form)}
    assert Form(form).read(english) == shown
    assert translate(english, "zh") == SENTENCES[form].format(**shown)
    assert translate(english, "en") == english


def conversions(form: str) -> Iterable[tuple[str, str]]:
    """Each place with what stands behind its name."""
    for _, name, spec, conversion in Formatter().parse(form):
        if name is not None:
            yield name, (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")


@given(st.text())
def test_whatever_it_is_asked_to_translate_it_answers(text: str) -> None:
    told = translate(text, "zh")
    assert told == text or HAN.search(told)
    for form in SENTENCES:
        Form(form).read(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ask Li.",
        "9.5 against a baseline of 1",
        "9.5 is above 1, the limit that holds for every run; call Li",
        "{source} is nan {0}",
        "a is NaN",
        # A name that makes the sentence look like two.
        "more than 3 names; the first one too many was x is nan",
    ],
)
def test_what_is_no_sentence_of_ours_stays_as_it_is(text: str) -> None:
    assert translate(text, "zh") == text


@pytest.mark.parametrize("name", ["a; b", "x is nan", "<b>", "{0}", "a\nb", "", "中文", "step 3: loss"])
def test_names_stay_as_they_are(name: str) -> None:
    assert translate(f"{name} is nan", "zh") == f"{name} 的值为 nan"
    many = f"more than 512 names; the first one too many was {name!r}"
    assert translate(many, "zh") == f"指标名超过 512 个；第一个超出的是 {name!r}"


def test_a_sentence_that_was_said_before_is_said_again() -> None:
    again = Reading.restored(Reading(sign=True, detail=Sentence.verbatim("{x} is 3")).snapshot())
    assert str(again.detail) == "{x} is 3"
    assert again == Reading(sign=True, detail=Form("{{x}} is {value:d}")(value=3))
    assert Reading.restored(Reading(sign=False).snapshot()) == Reading(sign=False)


def rules_of(test: Test, metric: str = "m") -> RuleSet:
    """One rule of a site's own."""
    fields: dict[str, Any] = {"title": "Ours", "meaning": "Call Li.", "remedies": ("Call Li.",), "source": "test"}
    return RuleSet([Rule("ours", "test", (metric,), (test,), Severity.WARNING, signs=2, among=3, **fields)])


def series(metric: str, *values: float) -> list[StepVector]:
    return [StepVector(step, {metric: value}) for step, value in enumerate(values, 1)]


def alert_of(rule: str, vectors: Iterable[StepVector], rules: RuleSet | None) -> dict[str, Any]:
    """The first alert of a rule, as JSON."""
    engine = Engine("run", rules)
    events = (event for vector in vectors for event in engine.feed(vector) if isinstance(event, AlertEvent))
    return alert_to_json(next(event.alert for event in events if event.alert.rule == rule))


STEADY = [1.0, 1.25, 0.75] * 10
LENGTHS = {"response_length/mean": 900.0, "response_length/max": 800.0}
SAID = {
    "level shift": (
        "ours",
        series("m", *STEADY, 8.0, 8.0, 8.0),
        rules_of(LevelShift("up", relative=1.0)),
        "8，基线为 1（30 个值的中位数）；稳健 z 值 18.9；高于 2.977 即为异常",
    ),
    "fall of a median": (
        "ours",
        series("actor/entropy", *[0.5] * 30, *[0.0625] * 6),
        rules_of(LevelShift("down", ratio=2.0, smooth=3), "actor/entropy"),
        (
            "最近 3 个值的中位数为 0.0625，基线为 0.5（30 个值的中位数），是基线的 0.125 倍；"
            "稳健 z 值 39.0；低于 0.245 即为异常"
        ),
    ),
    "bound": ("ours", series("m", 1.5, 1.5), rules_of(Bound(above=0.5)), "1.5 高于 0.5，即对任何训练都适用的上限"),
    "bound of a size": (
        "ours",
        series("m", -1.5, -1.5),
        rules_of(Bound(beyond=0.5)),
        "|-1.5| 高于 0.5，即对任何训练都适用的上限",
    ),
    "plateau": (
        "ours",
        [StepVector(step, {"critic/vf_loss": 0.9 if step < 40 else 4.0, "actor/pg_loss": 0.1}) for step in range(50)],
        rules_of(Plateau(), "critic/vf_loss"),
        "最近 5 个值的中位数为 4，收敛水平为 0.9（稳定下来的最低水平），是其 4.44 倍；高于 2.026 即为异常",
    ),
    "not a number": ("non_finite", series("<b>loss", 1.0, -math.inf), None, "<b>loss 的值为 -inf"),
    "impossible by its formula": (
        "impossible_value",
        series("actor/entropy", -0.5, -0.5),
        None,
        "-0.5 低于 0，即其公式允许的最小值",
    ),
    "impossible beside others": (
        "impossible_value",
        [StepVector(step, LENGTHS) for step in range(3)],
        None,
        "均值 900 高于最大值 800",
    ),
    "resume": (
        "step_went_back",
        [StepVector(step, {"m": number}) for number, step in enumerate((1, 2, 3, 4, 2))],
        None,
        "第 4 步之后是第 2 步：attempt 1 开始（从 0 计）",
    ),
    "gap": (
        "step_gap",
        [StepVector(step, {"m": step}) for step in (*range(1, 12), 60)],
        None,
        "第 11 步之后是第 60 步；平时相邻两步最多相差 1",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_alerts_say(case: str) -> None:
    rule, vectors, rules, detail = SAID[case]
    alert = alert_of(rule, vectors, rules)
    told = localise(alert, "zh")
    assert told["evidence"] == {**alert["evidence"], "detail": detail}
    since = f"（自第 {alert['onset_step']} 步起）" if alert["onset_step"] != alert["fired_step"] else ""
    head = f"{rule}（{alert['severity']}）：{alert['metric']}，第 {alert['fired_step']} 步{since}"
    assert told["summary"] == f"{head}：{detail}"
    assert localise(alert, "en") == alert


def test_what_recorded_runs_say_is_all_in_chinese(collapse: Any) -> None:
    engine = Engine("run")
    engine.feed(collapse.config)
    for vector in collapse.vectors:
        for event in engine.feed(vector):
            if isinstance(event, AlertEvent):
                told = localise(alert_to_json(event.alert), "zh")
                assert HAN.search(told["evidence"]["detail"])
                assert told["summary"].endswith(f"：{told['evidence']['detail']}")


def test_an_unknown_summary_stays_as_it_is() -> None:
    alert = alert_of(*SAID["bound"][:3])
    assert localise({**alert, "summary": "Ask Li."}, "zh")["summary"] == "Ask Li."
    empty = {**alert, "evidence": {**alert["evidence"], "detail": ""}}
    assert localise(empty, "zh")["evidence"]["detail"] == ""
