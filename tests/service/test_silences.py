"""What a silence silences, and when."""

from __future__ import annotations

import json
from dataclasses import replace
from glob import escape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin_detectors.alerts import Severity
from tocsin_service.silences import Matchers, Silence, expired, find, silence_from_json, silence_to_json

ALERT: dict[str, Any] = {
    "run": "exp-7",
    "rule": "kl_collapse",
    "severity": Severity.WARNING,
    "labels": {"team": "rl", "size": "7b"},
}


@pytest.mark.parametrize(
    ("matchers", "silent"),
    [
        (Matchers(), True),
        (Matchers(run="exp-7"), True),
        (Matchers(run="exp-*"), True),
        (Matchers(run="exp"), False),
        (Matchers(run="EXP-7"), False),
        (Matchers(run="exp-[0-6]"), False),
        (Matchers(rule="kl_*"), True),
        (Matchers(rule="entropy_*"), False),
        (Matchers(severity=Severity.WARNING), True),
        (Matchers(severity=Severity.CRITICAL), False),
        (Matchers(labels={"team": "rl"}), True),
        (Matchers(labels={"team": "r?", "size": "*"}), True),
        (Matchers(labels={"team": "rl", "size": "70b"}), False),
        (Matchers(labels={"owner": "*"}), False),
        (Matchers(run="exp-*", rule="kl_*", severity=Severity.WARNING, labels={"team": "rl"}), True),
        (Matchers(run="other", rule="kl_*", severity=Severity.WARNING, labels={"team": "rl"}), False),
    ],
)
def test_all_of_it_has_to_match(matchers: Matchers, silent: bool) -> None:
    silence = Silence("s", matchers, 0, 10)
    assert find([silence], 5, **ALERT) == (silence if silent else None)


def test_when_it_counts() -> None:
    silence = Silence("s", Matchers(), 5, 10)
    assert [find([silence], now, **ALERT) is not None for now in (4.9, 5, 9.9, 10)] == [False, True, True, False]


def test_the_one_that_lasts_longest() -> None:
    silences = [Silence(str(ends), Matchers(), 0, ends) for ends in (7, 9, 8)]
    found = find([*silences, Silence("x", Matchers(run="y"), 0, 99)], 5, **ALERT)
    assert found == silences[1]


def test_expired() -> None:
    silence = Silence("s", Matchers(), 5, 10)
    assert expired(silence, 7) == replace(silence, ends=7)
    assert expired(silence, 12) == silence
    assert not expired(silence, 3).active(5)  # one that has yet to begin never does


@pytest.mark.parametrize("severity", [None, Severity.CRITICAL])
def test_as_json(severity: Severity | None) -> None:
    silence = Silence("s", Matchers("a*", "b", severity, {"ü": "*"}), 1.5, 2.5, "me", "because")
    assert silence_from_json(json.loads(json.dumps(silence_to_json(silence)))) == silence


def test_states() -> None:
    silence = Silence("s", Matchers(), 5, 10)
    assert [silence.state(now) for now in (4.9, 5, 9.9, 10)] == ["pending", "active", "active", "expired"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_a_pattern(pattern: str, run: str) -> None:
    assert Matchers(run=pattern).match_run(run) in {True, False}
    assert Matchers(run=escape(run)).match_run(run)


def test_patterns_made_to_be_slow() -> None:
    for _ in range(50):
        assert not Matchers(run="*a" * 60 + "b").match_run("a" * 128)


def test_so_many_are_kept(open_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("silences", "store.sqlite.silencing"):
        monkeypatch.setattr(f"tocsin_service.{module}.MOST_KEPT", 3)
    store = open_store()
    for ends in (5, 9, 7, 8, 6):
        store.add_silence(Silence(f"until {ends}", Matchers(), 0, ends))
    assert {one.ends for one in store.silences()} == {9, 8, 7}
    store.add_silence(Silence("until 9", Matchers(), 0, 10))  # in the place of another
    assert {one.ends for one in store.silences()} == {10, 8, 7}
