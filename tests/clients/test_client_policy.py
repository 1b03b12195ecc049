from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin._policy import LONGEST_RETRY_AFTER, Action, Decision, decide


@pytest.mark.parametrize(
    ("status", "action", "reason"),
    [
        (200, Action.DELIVERED, ""),
        (202, Action.DELIVERED, ""),
        (None, Action.RETRY, "unreachable"),
        (408, Action.RETRY, "server_error"),
        (425, Action.RETRY, "server_error"),
        (429, Action.RETRY, "throttled"),
        (500, Action.RETRY, "server_error"),
        (503, Action.RETRY, "server_error"),
        (599, Action.RETRY, "server_error"),
        (400, Action.SPLIT, "refused"),
        (422, Action.SPLIT, "refused"),
        (413, Action.SPLIT, "too_large"),
        (401, Action.DROP, "unauthorised"),
        (403, Action.DROP, "unauthorised"),
        (407, Action.DROP, "unauthorised"),
        (404, Action.DROP, "not_found"),
        (405, Action.DROP, "not_found"),
        (301, Action.DROP, "status_301"),
        (418, Action.DROP, "status_418"),
    ],
)
def test_every_status_has_its_decision(status, action, reason):
    decision = decide(status, {}, 0, 0.5)
    assert (decision.action, decision.reason) == (action, reason)
    assert (decision.delay > 0) == (action is Action.RETRY)


def test_delays_double_up_to_a_ceiling():
    delays = [decide(None, {}, attempt, 0.0).delay for attempt in range(9)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert decide(None, {}, 10**9, 0.999).delay <= 30.0


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        ({"retry-after": "7"}, 7.5),
        ({"retry-after": " 0 "}, 0.5),
        ({"retry-after": "9" * 400}, LONGEST_RETRY_AFTER + 0.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:28:10 GMT"}, 0.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}, 0.375),
        ({"retry-after": "-5"}, 0.375),
        ({"retry-after": "1e9"}, 0.375),
        ({"retry-after": "soon"}, 0.375),
        ({"retry-after": "²"}, 0.375),
    ],
)
def test_retry_after_is_obeyed_if_it_makes_sense(headers, delay):
    assert decide(503, headers, 0, 0.5).delay == delay


@given(
    st.none() | st.integers(100, 999),
    st.dictionaries(st.sampled_from(["retry-after", "date"]), st.text(max_size=40)),
    st.integers(0, 10**6),
    st.floats(0, 1, exclude_max=True),
)
def test_any_answer_gives_a_bounded_decision(status, headers, attempt, jitter):
    decision = decide(status, headers, attempt, jitter)
    assert isinstance(decision, Decision)
    assert 0.0 <= decision.delay <= LONGEST_RETRY_AFTER + 1
