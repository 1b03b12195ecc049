from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin._policy import LONGEST_RETRY_AFTER, UNREACHABLE, Action, Verdict, delay, judge_redis, judge_status


@pytest.mark.parametrize(
    ("status", "action", "reason"),
    [
        (200, Action.DELIVERED, ""),
        (202, Action.DELIVERED, ""),
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
    assert judge_status(status, {}) == Verdict(action, reason)


@pytest.mark.parametrize(
    ("error", "action", "reason"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", Action.RETRY, "server_error"),
        ("LOADING Redis is loading the dataset in memory", Action.RETRY, "server_error"),
        ("READONLY You can't write against a read only replica.", Action.RETRY, "server_error"),
        ("MASTERDOWN Link with MASTER is down", Action.RETRY, "server_error"),
        ("MISCONF Redis is configured to save RDB snapshots, but", Action.RETRY, "server_error"),
        ("BUSY Redis is busy running a script.", Action.RETRY, "server_error"),
        ("NOREPLICAS Not enough good replicas to write.", Action.RETRY, "server_error"),
        ("CLUSTERDOWN The cluster is down", Action.RETRY, "server_error"),
        ("ERR max number of clients reached", Action.RETRY, "server_error"),
        ("ERR something new", Action.RETRY, "server_error"),
        ("", Action.RETRY, "server_error"),
        ("NOAUTH Authentication required.", Action.DROP, "unauthorised"),
        ("WRONGPASS invalid username-password pair or user is disabled.", Action.DROP, "unauthorised"),
        ("NOPERM User default has no permissions to run the 'xadd' command", Action.DROP, "unauthorised"),
        ("ERR AUTH <password> called without any password configured", Action.DROP, "unauthorised"),
        ("ERR Client sent AUTH, but no password is set", Action.DROP, "unauthorised"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Action.DROP, "not_found"),
        ("ERR unknown command 'XADD'", Action.DROP, "not_found"),
        ("ERR DB index is out of range", Action.DROP, "not_found"),
        ("MOVED 3999 10.0.0.1:6381", Action.DROP, "not_found"),
        ("ERR Protocol error: invalid bulk length", Action.SPLIT, "too_large"),
    ],
)
def test_every_redis_error_has_its_decision(error, action, reason):
    assert judge_redis(error) == Verdict(action, reason)


def test_delays_double_up_to_a_ceiling():
    delays = [delay(UNREACHABLE, attempt, 0.0) for attempt in range(9)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert delay(UNREACHABLE, 10**9, 0.999) <= 30.0


@pytest.mark.parametrize(
    ("headers", "wait"),
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
def test_retry_after_is_obeyed_if_it_makes_sense(headers, wait):
    assert delay(judge_status(503, headers), 0, 0.5) == wait


@given(
    st.integers(100, 999),
    st.dictionaries(st.sampled_from(["retry-after", "date"]), st.text(max_size=40)),
    st.integers(0, 10**6),
    st.floats(0, 1, exclude_max=True),
)
def test_any_answer_gives_a_bounded_decision(status, headers, attempt, jitter):
    verdict = judge_status(status, headers)
    assert isinstance(verdict, Verdict)
    assert 0.0 <= delay(verdict, attempt, jitter) <= LONGEST_RETRY_AFTER + 1
