"""What reaches the server: everything, once, in order, whatever the server does meanwhile."""

from __future__ import annotations

import json
import logging
import math
import random
import threading

import pytest

import tocsin


def test_vectors_arrive_in_order_with_step_time_and_a_sequence_of_their_own(server, connect):
    run = connect(url=server.url)
    for step in range(300):
        run.log({"reward": step / 2, "kl": 0.1}, step, time=1000.0 + step)
    assert run.finish(30)
    assert server.steps() == list(range(300))
    assert server.vectors[7]["metrics"] == {"reward": 3.5, "kl": 0.1}
    assert server.vectors[7]["time"] == 1007.0
    sequences = [vector["sequence"] for vector in server.vectors]
    assert len(set(sequences)) == 300
    assert len({sequence.rpartition("-")[0] for sequence in sequences}) == 1
    assert run.stats() == {
        "logged": 300,
        "delivered": 300,
        "waiting": 0,
        "spooled": 0,
        "dropped": {},
        "skipped": 0,
        "recovered": 0,
    }
    assert run.dropped == 0


def test_nothing_is_sent_or_started_before_the_first_log(server, connect):
    before = threading.active_count()
    run = connect(url=server.url, config={"algorithm": "grpo"})
    assert threading.active_count() == before
    assert run.finish(30)
    assert not server.requests


def test_config_goes_first_and_once(server, connect):
    run = connect("run 1/ü", url=server.url, config={"algorithm": "grpo", "labels": {"team": "a"}})
    run.log({"x": 1}, 1)
    run.log({"x": 1}, 2)
    assert run.finish(30)
    first, *rest, last = server.requests
    assert (first.method, first.path) == ("PUT", "/v1/runs/run%201_%C3%BC")
    assert first.json == {"algorithm": "grpo", "labels": {"team": "a"}}
    assert (last.method, last.path, last.json) == ("PUT", first.path, {"finished": True})
    assert {request.path for request in rest} == {"/v1/runs/run%201_%C3%BC/steps"}


def test_config_is_put_again_if_it_failed(server, connect):
    answers = iter([503, 503, 200])
    server.decide = lambda asked: server.Reply(next(answers) if asked.method == "PUT" else 202)
    run = connect(url=server.url, config={"algorithm": "grpo"})
    run.log({"x": 1}, 1)
    assert run.finish(30)
    assert [request.method for request in server.requests] == ["PUT", "PUT", "PUT", "POST"]


def test_a_config_that_the_server_cannot_take_does_not_hold_the_vectors_back_for_ever(server, connect, caplog):
    server.decide = lambda asked: server.Reply(503 if asked.method == "PUT" else 202, {"Retry-After": "0"})
    run = connect(url=server.url, config={"algorithm": "grpo"})
    run.log({"x": 1}, 1)
    assert run.finish(60)
    assert server.steps() == [1]
    assert sum("server_error" in message for message in caplog.messages) == 1


def test_a_refused_config_is_said_and_the_vectors_go_on(server, connect, caplog):
    server.decide = lambda asked: server.Reply(422 if asked.method == "PUT" else 202, {}, b'{"error": "no"}')
    run = connect(url=server.url, config={"algorithm": object()})
    run.log({"x": 1}, 1)
    run.log({"x": 1}, 2)
    assert run.finish(30)
    assert [
        message for message in caplog.messages if "the config is not used" in message and '"error": "no"' in message
    ]
    assert server.steps() == [1, 2]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_answer_that_asks_to_try_again_loses_nothing(server, connect, caplog, status):
    server.script.extend([server.Reply(status, {"Retry-After": "0"}), server.Reply(status)])
    run = connect(url=server.url)
    run.log({"x": 1}, 1)
    server.wait(lambda s: len(s.posts()) >= 1)
    run.log({"x": 2}, 2)
    assert run.finish(30)
    assert server.steps() == [1, 2]
    assert len(server.posts()) >= 3
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_a_post_whose_answer_was_lost_is_repeated_and_changes_nothing(server, connect):
    stored = server.Reply(202, drop_answer=True)
    server.script.append(stored)
    run = connect(url=server.url)
    run.log({"x": 1}, 1)
    assert run.finish(30)
    assert server.steps() == [1]
    assert server.repeated == 1


def test_a_closed_idle_connection_is_no_failure(server, connect, caplog):
    server.script.append(server.Reply(202, {"Connection": "close"}))
    run = connect(url=server.url)
    run.log({"x": 1}, 1)
    server.wait(lambda s: s.steps() == [1])
    run.log({"x": 1}, 2)
    server.wait(lambda s: s.steps() == [1, 2])
    answered = threading.Event()  # cut an idle connection, not one whose answer is still on its way
    while run.stats()["delivered"] < 2:
        assert not answered.wait(0.001)
    server.cut()
    run.log({"x": 1}, 3)
    assert run.finish(30)
    assert server.steps() == [1, 2, 3]
    assert not caplog.messages


def test_the_connection_is_kept_open(server, connect):
    run = connect(url=server.url)
    for step in range(5):
        run.log({"x": 1}, step)
        server.wait(lambda s, step=step: s.steps()[-1:] == [step])
    assert server.connections == 1
    assert run.finish(30)


def test_vectors_logged_while_a_post_is_under_way_go_together_and_zipped(server, connect):
    released = threading.Event()
    server.script.append(server.Reply(when=released))
    run = connect(url=server.url)
    run.log({"x": 1}, 0)
    server.wait(lambda s: len(s.posts()) == 1)
    for step in range(1, 200):
        run.log({"a/long/metric/name": 1}, step)
    released.set()
    assert run.finish(30)
    first, second = server.posts()
    assert "Content-Encoding" not in first.headers
    assert second.headers["Content-Encoding"] == "gzip"
    assert len(second.json) == 199


def test_a_body_that_is_too_large_is_split(server, connect, caplog):
    server.decide = lambda asked: server.Reply(413 if len(asked.body) > 3000 else 202)
    run = connect(url=server.url)
    server.script.append(server.Reply(503))
    for step in range(100):
        run.log({"metric": 1}, step)
    run.log({f"metric/{i}": 1 for i in range(1000)}, 100)
    run.log({"metric": 1}, 101)
    assert not run.finish(30)
    assert server.steps() == [*range(100), 101]
    assert run.stats()["dropped"] == {"too_large": 1}
    assert caplog.messages[-1].endswith("101 of 102 vectors delivered; 1 too_large")


@pytest.mark.parametrize("bad", [{0}, {63}, {31, 32}, {5, 50}, set(range(10)), set(range(64))])
def test_only_the_malformed_vectors_of_a_batch_are_dropped(server, connect, caplog, bad):
    server.decide = lambda asked: server.Reply(
        422 if any(v["step"] in bad for v in asked.json) else 202, {}, b'{"error": "bad"}'
    )
    server.script.append(server.Reply(503))
    run = connect(url=server.url)
    for step in range(64):
        run.log({"x": 1}, step)
    assert not run.finish(30)
    assert server.steps() == [step for step in range(64) if step not in bad]
    assert run.stats()["dropped"] == {"refused": len(bad)}
    assert sum("refused" in message and '"bad"' in message for message in caplog.messages) == 1


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "unauthorised"), (403, "unauthorised"), (404, "not_found"), (308, "status_308")]
)
def test_what_no_retry_can_change_is_dropped_counted_and_said_once(server, connect, caplog, status, reason):
    server.decide = lambda _: server.Reply(status, {"Location": "http://elsewhere/"})
    run = connect(url=server.url)
    for step in range(3):
        run.log({"x": 1}, step)
        server.wait(lambda s, step=step: s.posts() and s.posts()[-1].json[-1]["step"] == step)
    assert not run.finish(30)
    assert run.stats()["dropped"] == {reason: 3}
    assert run.dropped == 3
    said, summary = caplog.messages
    assert f"HTTP {status} http://elsewhere/" in said
    assert "0 of 3 vectors delivered; 3 " + reason in summary


def test_a_killed_server_loses_nothing_once_it_is_back(start, connect, caplog, said):
    server = start()
    run = connect(url=server.url)
    for step in range(50):
        run.log({"x": step}, step)
    server.wait(lambda s: len(s.vectors) == 50)
    server.stop()
    for step in range(50, 1050):
        run.log({"x": step}, step)
    said.wait("unreachable")
    assert not run.finish(0)
    again = start(restarted=server)
    for step in range(1050, 1100):
        run.log({"x": step}, step)
    assert run.finish(60)
    assert again.steps() == list(range(1100))
    assert run.dropped == 0
    assert sum("unreachable" in message for message in caplog.messages) == 1


def test_finish_gives_up_in_time_and_later_vectors_still_go(server, connect, caplog):
    released = threading.Event()
    server.script.append(server.Reply(when=released))
    run = connect(url=server.url)
    run.log({"x": 1}, 1)
    server.wait(lambda s: len(s.posts()) == 1)
    assert not run.finish(0.01)
    assert "0 of 1 vectors delivered; 1 still waiting" in caplog.messages[-1]
    released.set()
    run.log({"x": 1}, 2)
    assert run.finish(30)
    run.log({"x": 1}, 3)
    assert run.finish(30)
    assert server.steps() == [1, 2, 3]


def test_steps_are_counted_where_none_is_given(server, connect):
    with connect(url=server.url) as run:
        run.log({"x": 1})
        run.log({"x": 1})
        run.log({"x": 1}, 10)
        run.log({"x": 1})
    assert server.steps() == [0, 1, 10, 11]


def test_token_attempt_and_user_agent_are_sent(server, connect):
    run = connect(url=server.url + "/base/", token=" s3cret\n", attempt=2)  # noqa: S106 no secret of anything
    run.log({"x": 1}, 1)
    assert run.finish(30)
    assert server.requests[0].headers["Authorization"] == "Bearer s3cret"
    assert server.requests[0].path == "/base/v1/runs/run/steps"
    assert server.vectors[0]["attempt"] == 2


def test_non_finite_values_are_sent_as_they_are(server, connect):
    run = connect(url=server.url)
    run.log({"a": math.nan, "b": math.inf, "c": -math.inf, "d": None, "e": 10**400}, 1)
    assert run.finish(30)
    body = server.posts()[0].body.decode()
    assert '"a":NaN' in body
    assert '"b":Infinity' in body
    assert '"c":-Infinity' in body
    assert '"d":NaN' in body
    assert '"e":Infinity' in body


def test_many_threads_lose_and_mix_nothing(server, connect):
    run = connect(url=server.url)

    def work(thread):
        for i in range(200):
            run.log({"thread": thread, "i": i}, i)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.finish(30)
    assert len(server.vectors) == 1600
    assert len({vector["sequence"] for vector in server.vectors}) == 1600
    for n in range(8):
        assert [v["metrics"]["i"] for v in server.vectors if v["metrics"]["thread"] == n] == list(range(200))


def test_the_trainers_random_state_is_left_alone(dead, connect):
    state = random.getstate()
    run = connect(url=dead)
    run.log({"x": 1}, 1)
    assert not run.finish(0.01)
    assert random.getstate() == state


@pytest.mark.parametrize("body", [[{"rule": "kl_jump"}], {"alerts": [{"rule": "kl_jump"}]}])
def test_alerts_are_those_of_the_server(server, connect, body):
    server.decide = lambda _: server.Reply(200, {}, json.dumps(body).encode())
    assert connect("a b", url=server.url).alerts() == [{"rule": "kl_jump"}]
    assert server.requests[0].path == "/v1/runs/a%20b/alerts"


@pytest.mark.parametrize(("status", "body"), [(404, b"{}"), (200, b"no json"), (200, b"7")])
def test_alerts_are_none_if_the_server_does_not_tell(server, connect, caplog, monkeypatch, status, body):
    monkeypatch.setenv("TOCSIN_DEBUG", "0")
    server.decide = lambda _: server.Reply(status, {}, body)
    assert connect(url=server.url).alerts() == []
    assert len(caplog.messages) <= 1


def test_the_modules_functions_mean_the_run_of_the_last_init(server):
    first = tocsin.init("first", url=server.url)
    second = tocsin.init("second", url=server.url)
    tocsin.log({"x": 1}, step=1, time=5.0)
    assert tocsin.finish(30)
    assert first.finish(30)
    assert (first.stats()["logged"], second.stats()["logged"]) == (0, 1)
    assert server.posts()[0].path == "/v1/runs/second/steps"
