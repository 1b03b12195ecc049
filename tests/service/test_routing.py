"""Who is told of what, when and how often: routes, quiet hours and the pace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.service.delivering import ALERT, INCIDENT

from tocsin_detectors.alerts import Severity
from tocsin_service.delivery.pace import Bucket, Pace
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.quiet import QuietHours
from tocsin_service.delivery.routing import Route, is_for, recipients
from tocsin_service.silences import Matchers

W, C = Severity.WARNING, Severity.CRITICAL
EVERYBODY = ("oncall", "chat", "pager")

# Routes.

CRITICAL = Route(Matchers(severity=C), ("oncall",))
PROD = Route(Matchers(run="prod-*"), ("pager",), goes_on=True)
KL = Route(Matchers(rule="kl_*", labels={"team": "rl"}), ("chat",))
NOBODY = Route(Matchers(run="scratch-*"), ())


@pytest.mark.parametrize(
    ("routes", "of", "told"),
    [
        ([], {}, EVERYBODY),
        ([CRITICAL], {}, ["oncall"]),
        ([CRITICAL], {"severity": W}, EVERYBODY),  # no route matches: nothing is lost by an oversight
        ([PROD, CRITICAL], {"run": "prod-7"}, ["pager", "oncall"]),
        ([PROD, CRITICAL], {"run": "test"}, ["oncall"]),
        ([PROD], {"run": "prod-7"}, ["pager"]),
        ([CRITICAL, PROD], {"run": "prod-7"}, ["oncall"]),  # the first that matches decides
        ([KL, CRITICAL], {"rules": ["entropy_low", "kl_jump"]}, ["chat"]),  # any of its rules
        ([KL, CRITICAL], {"rules": ["entropy_low"]}, ["oncall"]),
        ([KL, CRITICAL], {"labels": {"team": "infra"}}, ["oncall"]),
        ([KL, CRITICAL], {"labels": {}}, ["oncall"]),
        ([NOBODY, CRITICAL], {"run": "scratch-1"}, []),  # on purpose
    ],
)
def test_routes(routes: list[Route], of: dict[str, Any], told: Sequence[str]) -> None:
    incident: dict[str, Any] = {"run": "r", "severity": C, "rules": ["kl_jump"], "labels": {"team": "rl"}, **of}
    assert recipients(routes, EVERYBODY, **incident) == frozenset(told)


def test_the_rules_of_an_incident_are_its_own_and_those_of_its_alerts() -> None:
    for rule, found in (("kl_jump", True), ("model_collapse", True), ("entropy_low", False)):
        routes = [Route(Matchers(rule=rule), ("chat",)), Route(Matchers(), ())]
        of = INCIDENT.__class__(**{**_fields(INCIDENT), "rule": "model_collapse"})
        assert is_for(routes, "chat", of, [ALERT], {}) is found


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


# Quiet hours.

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = QuietHours(time(22), time(8), BERLIN)


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("hours", "now", "until"),
    [
        (NIGHT, at("2026-07-01 21:59:59"), None),
        (NIGHT, at("2026-07-01 22:00"), at("2026-07-02 08:00")),
        (NIGHT, at("2026-07-02 07:59:59"), at("2026-07-02 08:00")),
        (NIGHT, at("2026-07-02 08:00"), None),
        (QuietHours(time(12), time(13, 30), BERLIN), at("2026-07-02 13:00"), at("2026-07-02 13:30")),
        # A night belongs to the day on which it begins: from Friday on, and Saturday's early hours too.
        (QuietHours(time(22), time(8), BERLIN, frozenset({4})), at("2026-07-04 07:00"), at("2026-07-04 08:00")),
        (QuietHours(time(22), time(8), BERLIN, frozenset({4})), at("2026-07-04 23:00"), None),
        (QuietHours(time(22), time(8), BERLIN, frozenset({4})), at("2026-07-03 07:00"), None),
        (QuietHours(time(0), time(0), BERLIN, frozenset({5})), at("2026-07-04 00:00"), at("2026-07-05 00:00")),
        (QuietHours(time(0), time(0), BERLIN, frozenset({5})), at("2026-07-05 00:00"), None),
        (QuietHours(time(0), time(8), ZoneInfo("Asia/Shanghai")), utc("2026-07-01 23:00"), utc("2026-07-02 00:00")),
        # Clocks go forward at 02:00 on the 29th of March: a night of 9 hours, without a 02:30.
        (NIGHT, utc("2026-03-28 21:00"), utc("2026-03-29 06:00")),
        (NIGHT, utc("2026-03-29 06:00"), None),
        (QuietHours(time(1), time(2, 30), BERLIN), utc("2026-03-29 01:15"), utc("2026-03-29 01:30")),
        (QuietHours(time(2, 15), time(2, 45), BERLIN), utc("2026-03-29 01:20"), utc("2026-03-29 01:45")),
        # And back at 03:00 on the 25th of October: 11 hours; 02:30 comes twice.
        (NIGHT, utc("2026-10-24 20:00"), utc("2026-10-25 07:00")),
        (NIGHT, utc("2026-10-25 06:59:59"), utc("2026-10-25 07:00")),
        (QuietHours(time(2, 15), time(2, 45), BERLIN), utc("2026-10-25 00:20"), utc("2026-10-25 00:45")),
        (QuietHours(time(2, 15), time(2, 45), BERLIN), utc("2026-10-25 01:20"), None),
    ],
)  # fmt: skip
def test_quiet_hours(hours: QuietHours, now: float, until: float | None) -> None:
    assert hours.until(now) == until


MINUTES = st.integers(0, 24 * 60 - 1).map(lambda minute: time(minute // 60, minute % 60))
HOURS = st.builds(
    QuietHours,
    MINUTES,
    MINUTES,
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "UTC"]).map(ZoneInfo),
    st.frozensets(st.integers(0, 6)),
)


@given(HOURS, st.floats(utc("2026-01-01"), utc("2027-01-01")))
@example(QuietHours(time(2, 30), time(2, 15), BERLIN), utc("2026-10-25 00:20"))
def test_quiet_ends_in_the_future(hours: QuietHours, now: float) -> None:
    until = hours.until(now)
    assert until is None or now < until <= now + 25 * 3600


@given(HOURS, st.floats(utc("2026-01-01"), utc("2027-01-01")))
def test_it_is_quiet_when_the_clock_says_so(hours: QuietHours, now: float) -> None:
    """On all days but those on which the clocks change."""
    here = datetime.fromtimestamp(now, hours.timezone)
    around = [here + timedelta(days=days) for days in (-2, 2)]
    if len({moment.utcoffset() for moment in around}) > 1:
        return
    clock, yesterday = here.time().replace(tzinfo=None), (here.weekday() - 1) % 7
    if hours.start < hours.end:
        quiet = hours.start <= clock < hours.end and here.weekday() in hours.days
    else:
        quiet = (clock >= hours.start and here.weekday() in hours.days) or (
            clock < hours.end and yesterday in hours.days
        )
    assert (hours.until(now) is not None) is quiet


def test_of_several_quiet_hours_the_longest_counts() -> None:
    weekend = QuietHours(time(0), time(0), BERLIN, frozenset({5, 6}))
    policy = Policy(quiet=(NIGHT, weekend))
    assert policy.quiet_until(at("2026-07-04 07:00")) == at("2026-07-05 00:00")
    assert policy.quiet_until(at("2026-07-03 12:00")) is None


# The pace.


def test_a_pace() -> None:
    bucket = Bucket(Pace(3, 10.0), 100.0)
    taken = []
    for now in (100.0, 100.0, 100.0, 100.0, 109.9, 110.0, 115.0, 500.0, 500.0, 500.0, 500.0):
        if bucket.tokens(now):
            assert bucket.next(now) == now
            bucket.take()
            taken.append(now)
        else:
            assert bucket.next(now) > now
    assert taken == [100.0, 100.0, 100.0, 110.0, 500.0, 500.0, 500.0]


@given(st.integers(1, 9), st.floats(0.1, 1e5), st.floats(1e9, 2e9), st.lists(st.floats(0, 100), max_size=40))
def test_never_more_than_the_pace_allows(burst: int, seconds: float, now: float, pauses: list[float]) -> None:
    bucket, begun, sent = Bucket(Pace(burst, seconds), now), now, 0
    for pause in pauses:
        while bucket.tokens(now):
            bucket.take()
            sent += 1
        assert sent <= burst + (now - begun) / seconds + 1e-3
        now = bucket.next(now)
        assert bucket.tokens(now) == 1  # as it said
        now += pause


def test_a_clock_that_is_set_back() -> None:
    bucket = Bucket(Pace(2, 10.0), 1000.0)
    for _ in range(2):
        bucket.take()
    assert bucket.tokens(500.0) == 0
    assert bucket.next(500.0) == 510.0
