"""Rule files: what they change, and every way in which they can be wrong."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin_detectors.alerts import AlertEvent, Severity
from tocsin_detectors.algorithms import Bound, LevelShift, Trend
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import StepVector
from tocsin_detectors.rulefile import RuleFileError, load
from tocsin_detectors.rulefile.parameters import ALGORITHMS
from tocsin_detectors.rules import Condition, Guarded, Rule, shipped_rules
from tocsin_detectors.ruletest import NotationError, Pattern, read_suite, run_suite
from tocsin_detectors.ruletest.suite import CASE_KEYS, CONFIG_KEYS, EXPECT_KEYS

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "rules.md").read_text()
NEW = """version: 1
rules:
  judge_disagrees:
    metrics: judge/disagreement
    severity: warning
    title: The judges disagree
    tests: [{algorithm: bound, above: 0.4}]
"""


def problems(text: str) -> list[str]:
    with pytest.raises(RuleFileError) as caught:
        load(text, "r.yaml")
    return [str(problem) for problem in caught.value.problems]


def rules(body: str) -> str:
    return f"version: 1\nrules:\n  {body}\n"


# What a file changes.


def test_an_empty_file_of_changes_is_the_shipped_set() -> None:
    for text in ("version: 1", "version: 1\noff: []\nrules: {}", "version: 1\noff:\nrules:\n"):
        assert load(text).version == shipped_rules().version


def test_what_is_not_written_stays() -> None:
    changed = load(rules("kl_collapse: {severity: critical, tests: {1: {ratio: 2.5}}, critical_after: null}"))
    before, after = shipped_rules()["kl_collapse"], changed["kl_collapse"]
    assert (after.severity, after.critical_after) == (Severity.CRITICAL, None)
    old, new = before.tests[0], after.tests[0]
    assert isinstance(old, LevelShift)
    assert isinstance(new, LevelShift)
    assert (new.ratio, new.z, new.local) == (2.5, old.z, old.local)
    assert (after.tests[1:], after.meaning, after.signs) == (before.tests[1:], before.meaning, before.signs)
    assert [rule.name for rule in changed] == [rule.name for rule in shipped_rules()]
    assert changed.version != shipped_rules().version


def test_writing_what_is_so_already_changes_nothing() -> None:
    rule = shipped_rules()["aborted_high"]
    same = load(
        rules(f"aborted_high: {{severity: {rule.severity}, signs: {rule.signs}, tests: {{1: {{above: 0.05}}}}}}")
    )
    assert same.version == shipped_rules().version


def test_a_guard_stays_when_a_parameter_changes_and_goes_when_it_is_told_to() -> None:
    kept = load(rules("kl_frozen: {tests: {1: {rows: 40}}}"))["kl_frozen"].tests[0]
    assert isinstance(kept, Guarded)
    assert kept.conditions == (Condition.LEARNING,)
    assert not isinstance(load(rules("kl_frozen: {tests: {1: {when: []}}}"))["kl_frozen"].tests[0], Guarded)


def test_a_list_replaces_all_tests() -> None:
    text = rules("reward_collapse: {tests: [{algorithm: trend, direction: down}]}")
    assert load(text)["reward_collapse"].tests == (Trend("down"),)


def test_the_engines_own_checks_can_be_made_more_urgent() -> None:
    own = load(rules("step_went_back: {severity: critical, recovery: 1}"))
    engine = Engine("run", own)
    vectors = [StepVector(step, {"a": value}) for step, value in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.4))]
    events = [event for vector in vectors for event in engine.feed(vector)]
    assert [event.alert.severity for event in events if isinstance(event, AlertEvent)] == [Severity.CRITICAL]


def test_rules_can_be_turned_off() -> None:
    left = load("version: 1\noff: [kl_spikes, non_finite]")
    assert {rule.name for rule in shipped_rules()} - {rule.name for rule in left} == {"kl_spikes", "non_finite"}
    assert Engine("run", left).feed(StepVector(1, {"actor/grad_norm": float("nan")})) == []


def test_a_new_rule_fires_and_survives_a_restart() -> None:
    own = load(NEW, "site.yaml")
    rule = own["judge_disagrees"]
    assert (rule.family, rule.source, rule.tests) == ("custom", "rule file site.yaml", (Bound(above=0.4),))
    engine, fired = Engine("run", own), []
    for step in range(1, 20):
        value = 0.1 if step < 10 else 0.6
        events = engine.feed(StepVector(step, {"judge/disagreement": value}))
        fired += [(e.alert.rule, e.alert.fired_step) for e in events if isinstance(e, AlertEvent)]
        engine = Engine.restore("run", engine.snapshot(), own)
    assert fired == [("judge_disagrees", 11)]
    with pytest.raises(ValueError, match="other rules"):
        Engine.restore("run", engine.snapshot())


def test_a_new_rule_may_be_computed_and_found_a_family() -> None:
    text = rules(
        "gap: {family: gaps, expression: 'abs({critic/score/mean} - {my/score}) / {config.group_size}', "
        "scale: {kind: symlog, linear: 0.01}, severity: info, title: A gap, critical_with: [gaps, kl], "
        "unless: [kl_collapse], tests: [{algorithm: bound, above: 1}]}"
    )
    rule = load(text)["gap"]
    assert (rule.metrics, rule.scale and rule.scale.linear, rule.family) == (("gap",), 0.01, "gaps")


def test_the_version_of_the_set_goes_with_what_decides_and_not_with_texts() -> None:
    versions = {
        load(text).version
        for text in (NEW, NEW.replace("0.4", "0.5"), NEW.replace("warning", "info"), NEW + "off: [kl_spikes]\n")
    }
    assert len(versions) == 4
    assert load(NEW.replace("The judges disagree", "Other words")).version in versions


# What can be wrong.


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "empty"),
        ("- a", 1, "has to be a mapping"),
        ("rules: {}", 1, "write `version: 1`"),
        ("version: 2", 1, "version has to be 1"),
        ("version: 1\nrule: {}", 2, "did you mean 'rules'"),
        ("version: 1\noff: kl_spikes", 2, "has to be a list"),
        ("version: 1\noff: [kl_spike]", 2, "did you mean 'kl_spikes'"),
        ("version: 1\noff: [model_collapse]", 2, "collapse: false"),
        ("version: 1\noff: [kl_spikes]\nrules: {kl_spikes: {severity: info}}", 3, "do one of both"),
        (rules("model_collapse: {severity: info}"), 3, "can't be changed"),
        (rules("kl_colapse: {severity: info}"), 3, "did you mean 'kl_collapse'"),
        (rules("kl_collapse: 5"), 3, "has to be a mapping"),
        (rules("kl_collapse: {severty: info}"), 3, "did you mean 'severity'"),
        (rules("kl_collapse: {severity: high}"), 3, "one of info, warning, critical"),
        (rules("kl_collapse: {signs: 1.5}"), 3, "a whole number, not 1.5"),
        (rules("kl_collapse: {signs: '2'}"), 3, "remove the quotes"),
        (rules("kl_collapse: {signs: 9, among: 4}"), 3, "signs must be 1 to among"),
        (rules("kl_collapse: {recovery: 0}"), 3, "at least 1"),
        (rules("kl_collapse: {collapse: yes}"), 3, "true or false"),
        (rules("kl_collapse: {title: 5}"), 3, "quote it: '5'"),
        (rules("kl_collapse: {critical_with: [rewards]}"), 3, "did you mean 'reward'"),
        (rules("kl_collapse: {unless: [kl_colapse]}"), 3, "did you mean 'kl_collapse'"),
        (rules("kl_collapse: {unless: [kl_collapse]}"), 3, "other rules"),
        (rules("kl_collapse: {scale: symlog}"), 3, "scale goes with an expression"),
        (rules("kl_collapse: {metrics: [kl]}"), 3, "is called 'actor/kl_loss' here"),
        (rules("kl_collapse: {metrics: ['a{b c}']}"), 3, "one word"),
        (rules("kl_collapse: {metrics: ['a/{b}'], first_of: true}"), 3, "first_of needs whole names"),
        (rules("validation_drop: {first_of: true}"), 3, "first_of needs whole names"),
        (rules("kl_off_target: {metrics: [a]}"), 3, "not both"),
        (rules("kl_off_target: {expression: '{a} +'}"), 3, "no arithmetic expression"),
        (rules("kl_off_target: {expression: '{config.target_k} * {a}'}"), 3, "did you mean 'target_kl'"),
        (rules("kl_off_target: {expression: '{config.target_kl} * 2'}"), 3, "names no metric"),
        (rules("kl_off_target: {expression: '{kl}'}"), 3, "is called 'actor/kl_loss'"),
        (rules("kl_off_target: {scale: {kind: log}}"), 3, "one of symlog, linear, logit"),
        (rules("kl_off_target: {scale: {linear: 0}}"), 3, "more than 0"),
        (rules("non_finite: {tests: [{algorithm: frozen}]}"), 3, "the engine itself"),
        (rules("step_gap: {critical_with: [kl]}"), 3, "its critical_with can't be changed"),
        (rules("kl_collapse: {tests: 5}"), 3, "has to be a mapping"),
        (rules("kl_collapse: {tests: {9: {z: 3}}}"), 3, "no test '9'"),
        (rules("kl_collapse: {tests: {1: {zz: 3}}}"), 3, "level_shift has no 'zz'"),
        (rules("kl_collapse: {tests: {1: {z: -1}}}"), 3, "z: -1 doesn't fit"),
        (rules("kl_collapse: {tests: {1: {z: .nan}}}"), 3, "a number between"),
        (rules("kl_collapse: {tests: {1: {z: true}}}"), 3, "a number, not true"),
        (rules("kl_collapse: {tests: {1: {algorithm: bound}}}"), 3, "as a list"),
        (rules("kl_collapse: {tests: {1: {direction: sideways}}}"), 3, "one of up, down, both"),
        (rules("kl_collapse: {tests: {1: {min_rows: 1000000}}}"), 3, "0 to 10000"),
        (rules("kl_collapse: {tests: []}"), 3, "1 to 16"),
        (rules("kl_collapse: {tests: [{z: 3}]}"), 3, "a test needs `algorithm`"),
        (rules("kl_collapse: {tests: [{algorithm: level_shft}]}"), 3, "did you mean 'level_shift'"),
        (rules("kl_collapse: {tests: [{algorithm: bound, above: 1, below: 0}]}"), 3, "exactly one of"),
        (rules("kl_collapse: {tests: [{algorithm: bound, above: 1, when: [learnin]}]}"), 3, "did you mean 'learning'"),
        (rules("test: {severity: info, title: a, metrics: a, tests: [{algorithm: frozen}]}"), 3, "no name for a rule"),
        (rules("kl_over_target: {severity: info, title: a, metrics: a, tests: [{algorithm: trend}]}"), 3, "another"),
        (rules("mine: {severity: info, title: a, metrics: a, tests: {1: {z: 3}}}"), 3, "a list of tests"),
        (rules("mine: {severity: info, title: a, metrics: [], tests: [{algorithm: frozen}]}"), 3, "1 to 32"),
        ("version: 1\nrules: {a: [1}\n", 2, "no YAML"),
        ("version: 1\n\toff: []\n", 2, "no YAML"),
        ("version: 1\noff: [\x01]\n", 2, "control character"),
        ("version: 1\nversion: 1\n", 2, "twice"),
        ("version: &one 1\noff: *one\n", 2, "aliases"),
        ("version: &one 1\n", 1, "anchors"),
        ("version: !!python/name:os.system 1\n", 1, "tags"),
        ("version: 1\n---\nversion: 1\n", 2, "second document"),
        ("version: 1\noff: " + "[" * 100_000, 2, "nested deeper"),
        ("version: 1\n#" + "x" * 600_000, 1, "at most"),
    ],
)  # fmt: skip
def test_a_problem_is_told_with_its_line_and_what_to_write(text: str, line: int, said: str) -> None:
    found = problems(text)
    assert any(problem.startswith(f"r.yaml:{line}: ") and said in problem for problem in found), found


def test_all_problems_are_told_at_once_in_order() -> None:
    text = "version: 3\noff: [nope]\nrules:\n  kl_collapse:\n    sign: 2\n    tests:\n      1: {z: 0, ratio: x}\n"
    assert [int(problem.split(":")[1]) for problem in problems(text)] == [1, 2, 5, 7]


def test_a_billion_laughs_are_not_laughed() -> None:
    lines = ["version: 1", "a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{this}: &{this} [{', '.join([f'*{last}'] * 9)}]" for last, this in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert any("aliases" in problem for problem in problems("\n".join(lines)))


WORDS = [
    "version",
    "1",
    "rules",
    "off",
    "kl_collapse",
    "tests",
    "z",
    "signs",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "\n",
    "  ",
    ",",
]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=40).map("".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (load, read_suite):
        try:
            read(text, "r.yaml")
        except RuleFileError as error:
            assert error.problems  # noqa: PT017 - not raising is fine too


# The notation of series.


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5", [0.5]),
        ("0.5x3", [0.5, 0.5, 0.5]),
        ("1+0.5x3", [1, 1.5, 2]),
        ("8-0.5x2 -1", [8, 7.5, -1]),
        ("1e-3*2x3", [0.001, 0.002, 0.004]),
        ("_ 1 _x2", [None, 1, None, None]),
        ("(1 2x2)x2 3", [1, 2, 2, 1, 2, 2, 3]),
        ("Inf -Inf", [float("inf"), float("-inf")]),
        ("1~0x2", [1, 1]),
    ],
)
def test_a_series_is_what_it_says(text: str, values: list[float | None]) -> None:
    pattern = Pattern(text)
    assert pattern.rows == len(values)
    assert pattern.values(pattern.rows, "key") == values


def test_an_open_end_goes_as_far_as_the_others() -> None:
    assert Pattern("1 2x*").values(4, "key") == [1, 2, 2, 2]
    assert Pattern("1 (2 3)x*").values(6, "key") == [1, 2, 3, 2, 3, 2]


def test_noise_is_the_same_every_time_and_as_large_as_asked() -> None:
    values = [value for value in Pattern("5~0.5x4000").values(4000, "key") if value is not None]
    mean = sum(values) / len(values)
    assert mean == pytest.approx(5, abs=0.05)
    assert (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5 == pytest.approx(0.5, rel=0.05)
    assert values[:2] == pytest.approx(Pattern("5~10%x2").values(2, "key"))
    assert values[:5] != Pattern("5~0.5x5").values(5, "other key")


@pytest.mark.parametrize(
    "text",
    ["", " ", "x3", "1x", "1y3", "1x0", "1xx2", "(1", "(1)2", "()", "(1x*)x2", "1x* 2", "1x20000", "1,2", "(1x9000)x9"],
)
def test_what_is_no_series_is_refused(text: str) -> None:
    with pytest.raises(NotationError):
        Pattern(text)


# Files of rule tests.


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("cases: []", "1 to 500"),
        ("case: []", "did you mean 'cases'"),
        ("cases: [{name: a, series: {b: 1}}]", "`expect` (what fires) or `quiet`"),
        ("cases: [{quiet: all}]", "needs `series`"),
        ("cases: [{name: a, quiet: all, series: {b: 1x3, c: 1x4}}]", "same number of values (b 3, c 4)"),
        ("cases: [{name: a, quiet: all, series: {b: 1x*}}]", "a length of its own"),
        ("cases: [{name: a, quiet: all, series: {b: 1q}}]", "'1q' is no part of a series"),
        ("cases: [{name: a, quiet: all, series: {b: 1x3}, steps: 1.5x3}]", "whole numbers"),
        ("cases: [{name: a, quiet: all, series: {b: 1x3}, steps: 1x2}]", "2 of them for 3 rows"),
        ("cases: [{name: a, quiet: all, series: {b: 1x3}, config: {temprature: 1}}]", "did you mean 'temperature'"),
        ("cases: [{name: a, quiet: all, series: {b: 1x3}, changes: {9: {}}}]", "no row has step 9"),
        ("cases: [{name: a, quiet: all, series: {b: 1x3}, changes: {x: {}}}]", "is no step"),
        ("cases: [{name: a, series: {b: 1x3}, expect: [{metric: b}]}]", "needs `rule`"),
        ("cases: [{name: a, series: {b: 1x3}, expect: [{rule: kl_spikes, members: [a]}]}]", "goes with incident"),
        ("cases: [{name: a, series: {b: 1x3}, expect: [{rule: kl_spikes, fires: soon}]}]", "61..64"),
        ("cases: [{name: a, series: {b: 1x3}, expect: [{rule: kl_spikes, fires: 9..2}]}]", "no step is in"),
        ("cases: [{name: a, series: {b: 1x3}, quiet: [kl_spike]}]", "did you mean 'kl_spikes'"),
    ],
)  # fmt: skip
def test_a_broken_file_of_tests_is_told_with_its_line(body: str, said: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        run_suite(read_suite(f"version: 1\n{body}", "t.yaml"), shipped_rules())
    assert said in str(caught.value)
    assert all(re.match(r"t\.yaml:[12]: ", str(problem)) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("expect: [{rule: aborted_high, fires: 20}]", ["fired at step 23 (warning); expected at step 20"]),
        ("expect: [{rule: aborted_high, severity: critical}]", ["expected to become critical"]),
        ("expect: [{rule: aborted_high, resolved: never}]", ["was resolved at step 35; expected to last"]),
        ("expect: [{rule: aborted_high, resolved: <= 30}]", ["at step 35; expected to be resolved at step <= 30"]),
        ("expect: [{rule: aborted_high, metric: a/b}]", ["on a/b didn't fire", "instead aborted_high on response"]),
        ("expect: [{rule: kl_spikes, fires: 5}]", ["kl_spikes didn't fire; expected at step 5"]),
        ("quiet: [aborted_high]", ["nothing was to be said of it, but aborted_high", "0.1 is above 0.05"]),
        ("expect: [{incident: model_collapse}]", ["no incident became model_collapse; incidents were of aborted_high"]),
        ("expect: [{incident: aborted_high, fires: 2}]", ["became aborted_high at step 23; expected at step 2"]),
        ("expect: [{incident: aborted_high, severity: info}]", ["is warning; expected info"]),
        ("expect: [{incident: aborted_high, members: [kl_spikes]}]", ["without kl_spikes"]),
    ],
)  # fmt: skip
def test_a_difference_is_told_in_words(expect: str, said: list[str]) -> None:
    text = f"version: 1\ncases: [{{name: a, series: {{response/aborted_ratio: 0x20 0.1x10 0x10}}, {expect}}}]"
    (outcome,) = run_suite(read_suite(text, "t.yaml"), shipped_rules())
    assert not outcome.passed
    assert all(words in outcome.differences[0] for words in said), outcome.differences


def test_a_small_file_can_not_unfold_to_a_huge_one() -> None:
    series = ", ".join(f"m{number}: 1x10000" for number in range(100))
    case = f"  - {{name: a, quiet: all, series: {{{series}}}}}\n"
    with pytest.raises(RuleFileError, match=r"t\.yaml:5: series: the file has more than 2000000 values"):
        read_suite("version: 1\ncases:\n" + case * 3, "t.yaml")


def test_an_alert_answers_one_expectation_only() -> None:
    text = (
        "version: 1\ncases: [{name: a, series: {response/aborted_ratio: 0.1x10}, "
        "expect: [{rule: aborted_high}, {rule: aborted_high}]}]"
    )
    (outcome,) = run_suite(read_suite(text, "t.yaml"), shipped_rules())
    assert len(outcome.differences) == 1


# The documentation.


def test_every_algorithm_with_every_parameter_is_documented() -> None:
    for name, kind in ALGORITHMS.items():
        section = DOCS.split(f"### `{name}`")[1].split("\n#")[0]
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == {one.name for one in fields(kind)}, name


def test_every_condition_and_every_key_is_documented() -> None:
    for condition in Condition:
        assert f"| `{condition}` |" in DOCS
    keys = (
        {one.name for one in fields(Rule)} - {"name", "source"} | set(CASE_KEYS) | set(EXPECT_KEYS) | set(CONFIG_KEYS)
    )
    for key in keys:
        assert f"`{key}`" in DOCS or f"`{key}:" in DOCS, key


def test_the_worked_example_works() -> None:
    blocks = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", DOCS, re.DOTALL))
    suite = read_suite(blocks["rules_test.yaml"], "rules_test.yaml")
    assert suite.rules == "rules.yaml"
    outcomes = run_suite(suite, load(blocks[suite.rules], suite.rules))
    assert [outcome.differences for outcome in outcomes] == [()] * len(suite.cases)
    # And it takes the rule file to pass.
    changed = run_suite(suite, load(blocks["rules.yaml"].replace("2.5", "1.2"), "rules.yaml"))
    assert not all(outcome.passed for outcome in changed)
