"""Whether, why and when a receiver is told: the decision, as tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.service.delivering import ALERT, INCIDENT

from tocsin_detectors.alerts import Alert, Incident, Severity, State
from tocsin_service.acknowledgements import Acknowledgement
from tocsin_service.delivery import News, Reason
from tocsin_service.delivery.decision import Nothing, Tell, Wait, Why, backoff, decide
from tocsin_service.delivery.muting import silent_until
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.quiet import QuietHours
from tocsin_service.silences import Matchers, Silence
from tocsin_service.store import Claim, Told

W, C, I = Severity.WARNING, Severity.CRITICAL, Severity.INFO  # noqa: E741 - short names make the table readable
F, R = State.FIRING, State.RESOLVED
NOW = 1000.0
SEEN = Acknowledgement("run", "i1", "ada", "mine", 900.0)
ALWAYS_QUIET = Policy(quiet=(QuietHours(time(0), time(0), ZoneInfo("UTC")),))  # NOW is 16 minutes after midnight
HOURLY = Policy(remind_seconds=3600.0)
MIRROR = Policy(mirrors=True, remind_seconds=1.0)


def claim(told: Any, now: Any, *, seen: bool = False, told_at: float = 0.0) -> Claim:
    """(rule, severity, state): what the receiver knows, what is true; ``seen``: somebody has acknowledged it."""
    rule, severity, state = now
    return Claim(
        receiver="chat",
        incident_id="i1",
        news=1,
        tries=0,
        told=None if told is None else Told(*told[:3], time=told_at, acknowledged="seen" in told),
        incident=replace(INCIDENT, rule=rule, severity=severity, state=state),
        acknowledged=SEEN if seen else None,
    )


@pytest.mark.parametrize(
    ("told", "now", "reason"),
    [
        (None, ("kl", W, F), Reason.OPENED),
        (None, ("kl", C, F), Reason.OPENED),
        (None, ("kl", I, F), None),
        (None, ("kl", W, R), None),  # over before anybody could be told: no news
        (None, ("kl", C, R), Reason.RESOLVED),
        (("kl", W, F), ("kl", W, F), None),  # it grew
        (("kl", W, F), ("entropy", W, F), None),
        (("kl", W, F), ("kl", C, F), Reason.ESCALATED),
        (("kl", W, F), ("model_collapse", C, F), Reason.ESCALATED),
        (("kl", C, F), ("model_collapse", C, F), Reason.ESCALATED),
        (("model_collapse", C, F), ("model_collapse", C, F), None),
        (("kl", C, F), ("kl", C, R), Reason.RESOLVED),
        (("kl", W, F), ("kl", C, R), Reason.RESOLVED),  # escalated and over in between
        (("kl", W, F), ("kl", W, R), None),
        (("kl", C, R), ("kl", C, R), None),
    ],
)
def test_why(told: Any, now: Any, reason: Reason | None) -> None:
    assert decide(claim(told, now), Policy(), NOW) == (Nothing(Why.UP_TO_DATE) if reason is None else Tell(reason))


@pytest.mark.parametrize(
    ("told", "now", "reason"),
    [
        (None, ("kl", C, F), Reason.OPENED),  # the message says who looks after it
        (("kl", C, F), ("kl", C, F), Reason.ACKNOWLEDGED),
        (("kl", W, F), ("kl", W, F), Reason.ACKNOWLEDGED),
        (("kl", C, F, "seen"), ("kl", C, F), None),
        (("kl", W, F, "seen"), ("kl", C, F), Reason.ESCALATED),  # getting worse is told all the same
        (("kl", W, F), ("kl", C, F), Reason.ESCALATED),
        (("kl", C, F), ("kl", C, R), Reason.RESOLVED),
        (("kl", C, R), ("kl", C, R), None),  # nobody has to look after it any more
        (("kl", W, F), ("kl", W, R), None),
    ],
)
def test_somebody_looks_after_it(told: Any, now: Any, reason: Reason | None) -> None:
    decision = decide(claim(told, now, seen=True), HOURLY, NOW + 9e9)  # nobody is reminded then
    assert decision == (Nothing(Why.UP_TO_DATE) if reason is None else Tell(reason))


@pytest.mark.parametrize(
    ("told", "now", "after", "decision"),
    [
        (("kl", C, F), ("kl", C, F), 3599.0, Wait(NOW + 3600, Why.REMINDER)),
        (("kl", C, F), ("kl", C, F), 3600.0, Tell(Reason.REMINDED)),
        (("kl", C, F), ("model_collapse", C, F), 3600.0, Tell(Reason.ESCALATED)),
        (("kl", W, F), ("kl", W, F), 9999.0, Nothing(Why.UP_TO_DATE)),
        (("kl", C, R), ("kl", C, R), 9999.0, Nothing(Why.UP_TO_DATE)),
        (("kl", C, F), ("kl", C, R), 9999.0, Tell(Reason.RESOLVED)),
    ],
)
def test_reminders(told: Any, now: Any, after: float, decision: Any) -> None:
    assert decide(claim(told, now, told_at=NOW), HOURLY, NOW + after) == decision
    if decision == Tell(Reason.REMINDED):
        assert decide(claim(told, now, told_at=NOW), Policy(), NOW + after) == Nothing(Why.UP_TO_DATE)
        assert decide(claim(told, now, told_at=NOW), HOURLY, NOW + after, silent_until=NOW + 9e9) == Wait(
            NOW + after + 60, Why.SILENCED
        )


@pytest.mark.parametrize(
    ("told", "now", "decision"),
    [
        (None, ("kl", W, F), Wait(NOW + 60, Why.SILENCED)),
        (None, ("kl", C, F), Wait(NOW + 60, Why.SILENCED)),
        (None, ("kl", C, R), Nothing(Why.SILENCED)),  # it came and went in silence
        (("kl", C, F), ("kl", C, R), Wait(NOW + 60, Why.SILENCED)),
        (("kl", W, F), ("kl", C, F), Wait(NOW + 60, Why.SILENCED)),
        (("kl", W, F), ("kl", W, F), Nothing(Why.UP_TO_DATE)),
    ],
)
def test_silenced(told: Any, now: Any, decision: Any) -> None:
    assert decide(claim(told, now), Policy(), NOW, silent_until=NOW + 3600) == decision


def test_the_end_of_a_silence_is_not_missed() -> None:
    assert decide(claim(None, ("kl", C, F)), Policy(), NOW, silent_until=NOW + 5) == Wait(NOW + 5, Why.SILENCED)


@pytest.mark.parametrize(
    ("told", "now", "decision"),
    [
        (None, ("kl", W, F), Wait(NOW + 600, Why.QUIET_HOURS)),
        (None, ("kl", C, F), Tell(Reason.OPENED)),
        (("kl", W, F), ("kl", C, F), Tell(Reason.ESCALATED)),
        (("kl", C, F), ("kl", C, R), Tell(Reason.RESOLVED)),
        (("kl", W, F), ("kl", W, F), Nothing(Why.UP_TO_DATE)),
        (None, ("kl", W, R), Nothing(Why.UP_TO_DATE)),
    ],
)
def test_quiet_hours(told: Any, now: Any, decision: Any) -> None:
    assert decide(claim(told, now), ALWAYS_QUIET, NOW) == decision


def test_news_of_a_warning_wait_for_the_end_of_the_quiet_hours() -> None:
    morning = 86_400.0 - 5
    ack = claim(("kl", W, F), ("kl", W, F), seen=True)
    assert decide(ack, ALWAYS_QUIET, morning) == Wait(86_400.0, Why.QUIET_HOURS)


@pytest.mark.parametrize(
    ("told", "now", "decision"),
    [
        (None, ("kl", C, F), Nothing(Why.ROUTED_ELSEWHERE)),
        # Who was told of it hears how it goes on.
        (("kl", W, F), ("kl", C, F), Tell(Reason.ESCALATED)),
        (("kl", C, F), ("kl", C, R), Tell(Reason.RESOLVED)),
    ],
)
def test_for_others(told: Any, now: Any, decision: Any) -> None:
    assert decide(claim(told, now), Policy(), NOW, routed=False) == decision


@pytest.mark.parametrize("told", [None, ("kl", W, F), ("kl", W, R), ("kl", C, F, "seen")])
@pytest.mark.parametrize("now", [("kl", W, F), ("kl", W, R), ("kl", C, F), ("kl", C, R)])
def test_a_mirror_hears_of_every_change(told: Any, now: Any) -> None:
    assert decide(claim(told, now, seen=True), MIRROR, NOW) == Tell(Reason.CHANGED)
    assert isinstance(decide(claim(told, now), MIRROR, NOW, silent_until=NOW + 1), Wait | Nothing)


def test_a_mirror_hears_no_info_and_obeys_routes() -> None:
    assert decide(claim(None, ("kl", I, F)), MIRROR, NOW) == Nothing(Why.UP_TO_DATE)
    assert decide(claim(None, ("kl", C, F)), MIRROR, NOW, routed=False) == Nothing(Why.ROUTED_ELSEWHERE)


def test_what_a_new_fold_removed() -> None:
    gone = replace(claim(None, ("kl", C, F)), incident=None)
    assert decide(gone, Policy(), NOW) == Nothing(Why.GONE)


def test_backoff_grows_and_is_bounded() -> None:
    assert [backoff(tries) for tries in (1, 2, 3, 20, 5000)] == [1, 2, 4, 300, 300]


def test_each_reminder_has_an_id_of_its_own() -> None:
    def id_of(reason: Reason, told_at: float | None) -> str:
        return News(reason, INCIDENT, told_at=told_at).id

    assert id_of(Reason.REMINDED, 1.0) == id_of(Reason.REMINDED, 1.0) != id_of(Reason.REMINDED, 2.0)
    assert id_of(Reason.OPENED, None) == id_of(Reason.OPENED, 1.0)


# Silences.


def member(rule: str, severity: Severity = W, state: State = F) -> Alert:
    return replace(ALERT, id=f"a-{rule}", rule=rule, severity=severity, state=state)


def incident(rule: str, severity: Severity = W, state: State = F) -> Incident:
    return replace(INCIDENT, rule=rule, severity=severity, state=state)


ENTROPY = member("entropy_collapse", C)
KL = member("kl_jump")


@pytest.mark.parametrize(
    ("of", "members", "silenced", "silent"),
    [
        (incident("kl_jump"), [KL], [{}], True),
        (incident("kl_jump"), [KL], [], False),
        (incident("kl_jump"), [KL], [{"rule": "kl_*"}], True),
        (incident("kl_jump"), [KL], [{"rule": "entropy_*"}], False),
        (incident("kl_jump"), [KL], [{"run": "run"}], True),
        (incident("kl_jump"), [KL], [{"run": "ru"}], False),
        (incident("kl_jump"), [KL], [{"labels": {"team": "rl*"}}], True),
        (incident("kl_jump"), [KL], [{"labels": {"team": "x"}}], False),
        (incident("kl_jump"), [KL], [{"severity": W}], True),
        (incident("kl_jump"), [KL], [{"severity": C}], False),
        # A silence of one rule doesn't hide what another found.
        (incident("entropy_collapse", C), [KL, ENTROPY], [{"rule": "kl_jump"}], False),
        (incident("entropy_collapse", C), [KL, ENTROPY], [{"rule": "entropy_collapse"}], False),
        (incident("entropy_collapse", C), [KL, ENTROPY], [{"rule": "kl_jump"}, {"rule": "entropy_*"}], True),
        (incident("entropy_collapse", C), [KL, ENTROPY], [{"severity": W}], False),
        # What doesn't fire any more, or was never urgent, is no reason to tell.
        (incident("entropy_collapse", C), [replace(KL, state=R), ENTROPY], [{"rule": "entropy_*"}], True),
        (incident("kl_jump"), [KL, member("gap", I)], [{"rule": "kl_jump"}], True),
        (incident("kl_jump", C, R), [replace(KL, state=R), replace(ENTROPY, state=R)], [{"rule": "kl_*"}], False),
        # A collapse has a rule of its own, and is more than its members.
        (incident("model_collapse", C), [KL, ENTROPY], [{"rule": "kl_*"}, {"rule": "entropy_*"}], False),
        (incident("model_collapse", C), [KL, ENTROPY], [{"rule": "model_collapse"}], True),
        (incident("model_collapse", C), [KL, KL], [{"severity": W}], False),
        (incident("kl_jump"), [], [{"rule": "kl_jump"}], True),  # of its members nothing is known
    ],
)  # fmt: skip
def test_what_a_silence_covers(of: Incident, members: list[Alert], silenced: list[Any], silent: bool) -> None:
    silences = [Silence(str(number), Matchers(**one), 0.0, 2000.0 + number) for number, one in enumerate(silenced)]
    found = silent_until(silences, NOW, of, members, {"team": "rl"})
    assert found == (2000.0 if silent else None)


def test_a_silence_has_a_time() -> None:
    silence = Silence("s", Matchers(), 1000.0, 2000.0)
    ends = [silent_until([silence], now, INCIDENT, (ALERT,), {}) for now in (999.0, 1000.0, 1999.0, 2000.0)]
    assert ends == [None, 2000.0, 2000.0, None]


def test_of_several_silences_the_longest_counts() -> None:
    silences = [Silence(str(end), Matchers(), 0.0, end) for end in (1500.0, 3000.0, 2000.0)]
    assert silent_until(silences, NOW, INCIDENT, (ALERT,), {}) == 3000.0
