"""Every shipped rule has a test that fires, and one that stays quiet although something harmless happens."""

from pathlib import Path

import pytest

from tocsin_detectors.alerts import Alert, AlertEvent
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import StepVector
from tocsin_detectors.roster import MOST_SLOTS
from tocsin_detectors.rules import shipped_rules
from tocsin_detectors.ruletest import Case, read_suite, run_case, run_suite

FILES = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
CASES = {f"{file.stem}: {case.name}": case for file in FILES for case in read_suite(file.read_text(), file.name).cases}
# It takes thousands of metric names, which no file wants to spell out: see the tests at the end.
TESTED_HERE = {"too_many_metrics", "run_stalled"}  # the second by the service (tests/service/test_stalled.py)
NAMES = [rule.name for rule in shipped_rules() if rule.name not in TESTED_HERE]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_run_gets_exactly_the_alerts_that_it_should(case: Case) -> None:
    assert run_case(case.strictly(), shipped_rules()).differences == ()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_names_only_rules_that_there_are(file: Path) -> None:
    outcomes = run_suite(read_suite(file.read_text(), file.name), shipped_rules())
    assert all(outcome.passed for outcome in outcomes)


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_has_a_case_that_fires(name: str) -> None:
    firing = [one for case in CASES.values() for one in case.expect if one.rule == name]
    assert any(one.fires is not None and one.severity is not None for one in firing)


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_has_a_case_that_stays_quiet(name: str) -> None:
    quiet = [case for case in CASES.values() if name in case.quiet]
    assert any(all(one.rule != name for one in case.expect) for case in quiet)


def names_of_a_run(count: int) -> list[Alert]:
    engine, alerts = Engine("run"), []
    for step in range(1, 5):
        metrics = {f"sample/{number}": 0.5 for number in range(count * (step - 1) // 4, count * step // 4)}
        events = engine.feed(StepVector(step, metrics))
        alerts += [event.alert for event in events if isinstance(event, AlertEvent)]
    return alerts


def test_more_names_than_can_be_watched_are_told_of() -> None:
    assert [(alert.rule, alert.fired_step) for alert in names_of_a_run(MOST_SLOTS + 4)] == [("too_many_metrics", 4)]


def test_as_many_names_as_can_be_watched_are_fine() -> None:
    assert names_of_a_run(MOST_SLOTS) == []
