"""What people do about alerts through the API: acknowledge, silence, mute, and what the audit log says of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin_service.audit import Act
from tocsin_service.silences import MOST_SILENCES, Matchers, Silence

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
WHO = {"author": "mia", "comment": "meant so"}
HOUR = 3600


@pytest.fixture
def broken(api: Any) -> Any:
    """A service with two runs whose loss is NaN, one of them labelled."""
    api.call("PUT", "/v1/runs/exp-1", {"labels": {"team": "rl"}})
    for run in ("exp-1", "prod-1"):
        api.post([{"step": step, "metrics": {"actor/pg_loss": float("nan")}} for step in range(3)], run=run)
    api.settle()
    return api


def incident_of(api: Any, run: str) -> dict[str, Any]:
    (incident,) = api.get(f"/v1/runs/{run}/incidents").json["incidents"]
    return dict(incident)


def silence(api: Any, **wanted: Any) -> Any:
    return api.call("POST", "/v1/silences", {"hours": 1, **WHO, **wanted})


def silenced(api: Any) -> set[str]:
    return {one["run"] for one in api.get("/v1/incidents").json["incidents"] if one["silenced"] is not None}


def acts(api: Any) -> list[tuple[str, str, str]]:
    found = api.get("/v1/audit").json["acts"]
    return [(one["actor"], one["action"], one["subject"]) for one in found if one["action"] != "start"]


class TestAcknowledging:
    def test_it_shows_everywhere(self, broken: Any) -> None:
        before = incident_of(broken, "exp-1")
        assert before["acknowledged"] is None
        path = f"/v1/runs/exp-1/incidents/{before['id']}"
        began = time.time()
        answer = broken.call("POST", f"{path}/acknowledge", {"author": "mia", "comment": "on it"})
        assert answer.status == 200
        by = answer.json["acknowledged"]
        assert (by["author"], by["comment"]) == ("mia", "on it")
        assert began <= by["time"] <= time.time()
        assert answer.json == broken.get(path).json
        (alert,) = answer.json["alerts"]
        assert alert["acknowledged"] == by
        for listing in ("/v1/incidents", "/v1/alerts", "/v1/runs/exp-1/alerts", "/v1/runs/exp-1/incidents"):
            (kind,) = (found := broken.get(listing).json)
            assert {one["run"]: one["acknowledged"] for one in found[kind]}["exp-1"] == by
        assert incident_of(broken, "prod-1")["acknowledged"] is None

    def test_the_latest_counts(self, broken: Any) -> None:
        path = f"/v1/runs/exp-1/incidents/{incident_of(broken, 'exp-1')['id']}"
        for author in ("mia", "mia", "tom"):
            answer = broken.call("POST", f"{path}/acknowledge", {"author": author})
            assert (answer.status, answer.json["acknowledged"]["author"]) == (200, author)

    @pytest.mark.parametrize("run", ["exp-1", "prod-1", "nobody"])
    def test_of_what_there_is_not(self, broken: Any, run: str) -> None:
        wrong = incident_of(broken, "prod-1" if run == "exp-1" else "exp-1")["id"]
        assert broken.get(f"/v1/runs/{run}/incidents/{wrong}").status == 404
        assert broken.call("POST", f"/v1/runs/{run}/incidents/{wrong}/acknowledge", WHO).status == 404
        assert acts(broken)[0][1] == "configure"  # nothing was written down

    @pytest.mark.parametrize(
        ("body", "fields"),
        [
            ({}, {"author"}),
            ({"author": ""}, {"author"}),
            ({"author": "a\nb", "comment": "\x1b[2J"}, {"author", "comment"}),
            ({"author": 7, "comment": "x" * 1001}, {"author", "comment"}),
            ({"author": "a", "colour": "red"}, {"'colour'"}),
        ],
    )
    def test_every_problem_is_told(self, broken: Any, body: dict[str, Any], fields: set[str]) -> None:
        path = f"/v1/runs/exp-1/incidents/{incident_of(broken, 'exp-1')['id']}/acknowledge"
        answer = broken.call("POST", path, body)
        assert answer.status == 422
        assert {one["field"] for one in answer.json["problems"]} == fields


class TestSilences:
    @pytest.mark.parametrize(
        ("wanted", "runs"),
        [
            ({"matchers": {"run": "exp-*"}}, {"exp-1"}),
            ({"matchers": {"run": None, "rule": "non_*"}}, {"exp-1", "prod-1"}),
            ({"matchers": {"rule": "kl_*"}}, set()),
            ({"matchers": {"severity": "critical"}}, {"exp-1", "prod-1"}),
            ({"matchers": {"severity": "warning"}}, set()),
            ({"matchers": {"labels": {"team": "r?"}}}, {"exp-1"}),
            ({"matchers": {"labels": {"team": "vision"}}}, set()),
            ({"all": True}, {"exp-1", "prod-1"}),
            ({"all": True, "starts": time.time() + HOUR}, set()),
        ],
    )
    def test_what_it_matches(self, broken: Any, wanted: dict[str, Any], runs: set[str]) -> None:
        made = silence(broken, **wanted)
        assert made.status == 200
        assert silenced(broken) == runs
        assert made.json in broken.get("/v1/silences").json["silences"]

    def test_a_collapse_is_not_hidden_by_the_silence_of_a_sign(self, api: Any, recorded: Any) -> None:
        (run,) = (one for one in recorded if one.name == "collapse_lr_x100")
        api.call("PUT", "/v1/runs/run", run.told)
        api.post(run.bodies, run="run")
        api.settle()
        silence(api, id="sign", matchers={"rule": "reward_collapse"})
        assert silenced(api) == set()
        alerts = api.get("/v1/alerts").json["alerts"]
        assert {one["rule"] for one in alerts if one["silenced"]} == {"reward_collapse"}
        silence(api, matchers={"rule": "model_collapse"})
        assert silenced(api) == {"run"}

    def test_its_life(self, broken: Any) -> None:
        now = time.time()
        later = silence(broken, id="later", all=True, starts=now + HOUR).json
        assert (later["id"], later["state"], later["ends"]) == ("later", "pending", pytest.approx(now + 2 * HOUR))
        made = silence(broken, matchers={"run": "exp-1"}).json
        assert made["state"] == "active"
        assert [one["id"] for one in broken.get("/v1/silences?state=active").json["silences"]] == [made["id"]]
        over = broken.call("DELETE", f"/v1/silences/{made['id']}")
        assert (over.status, over.json["state"]) == (200, "expired")
        assert silenced(broken) == set()
        assert broken.call("DELETE", f"/v1/silences/{made['id']}").json == over.json  # again changes nothing
        states = {one["id"]: one["state"] for one in broken.get("/v1/silences").json["silences"]}
        assert states == {"later": "pending", made["id"]: "expired"}

    def test_one_of_the_same_id_is_replaced(self, broken: Any) -> None:
        for run in ("exp-*", "prod-*"):
            silence(broken, id="mine", matchers={"run": run})
        (one,) = broken.get("/v1/silences").json["silences"]
        assert one["matchers"]["run"] == "prod-*"

    def test_ends_as_a_time(self, broken: Any) -> None:
        ends = time.time() + 50
        made = broken.call("POST", "/v1/silences", {"all": True, "ends": ends, **WHO})
        assert (made.status, made.json["ends"]) == (200, ends)

    @pytest.mark.parametrize(
        ("wanted", "fields"),
        [
            ({}, {"matchers"}),
            ({"matchers": {}}, {"matchers"}),
            ({"matchers": {"run": "**", "rule": "*"}}, {"matchers"}),
            ({"all": "yes"}, {"all"}),
            ({"matchers": {"run": ""}}, {"matchers.run"}),
            ({"matchers": {"run": 3, "rule": "a\x00"}}, {"matchers.run", "matchers.rule"}),
            ({"matchers": {"severity": "bad"}}, {"matchers.severity"}),
            (
                {"matchers": {"severity": ["info"], "run": {}, "labels": []}},
                {"matchers." + one for one in ("severity", "run", "labels")},
            ),
            ({"matchers": {"labels": {"a": 1}}}, {"matchers.labels"}),
            ({"matchers": {"labels": dict.fromkeys(map(str, range(17)), "*")}}, {"matchers.labels"}),
            ({"matchers": {"metric": "kl"}}, {"matchers"}),
            ({"matchers": ["run"]}, {"matchers"}),
            ({"all": True, "hours": 0}, {"hours"}),
            ({"all": True, "hours": 366 * 24}, {"hours"}),
            ({"all": True, "hours": True}, {"hours"}),
            ({"all": True, "hours": float("nan")}, {"hours"}),
            ({"all": True, "hours": None}, {"ends"}),
            ({"all": True, "ends": 4e9}, {"ends"}),
            ({"all": True, "starts": 1.7e9}, {"hours"}),  # over already
            ({"all": True, "starts": "now"}, {"starts"}),
            ({"all": True, "starts": 4e9}, {"starts"}),
            ({"all": True, "hours": None, "ends": 1.7e9}, {"ends"}),
            ({"all": True, "hours": None, "ends": 4e9}, {"ends"}),
            ({"all": True, "id": "a b"}, {"id"}),
            ({"all": True, "id": "a/b"}, {"id"}),
            ({"all": True, "author": None, "comment": ""}, {"author", "comment"}),
            ({"id": 7, "author": [], "comment": {}, "hours": "4"}, {"id", "author", "comment", "hours"}),
        ],
    )
    def test_every_problem_is_told(self, shared_api: Any, wanted: dict[str, Any], fields: set[str]) -> None:
        answer = silence(shared_api, **wanted)
        assert answer.status == 422
        assert {one["field"] for one in answer.json["problems"]} == fields
        assert shared_api.get("/v1/silences").json == {"silences": []}

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(JSON, JSON, JSON, JSON)
    def test_whatever_is_sent_is_answered(
        self, shared_api: Any, matchers: Any, id_: Any, times: Any, rest: Any
    ) -> None:
        body = {"matchers": matchers, "id": id_, "starts": times, "ends": times, "hours": rest, "all": rest}
        assert shared_api.call("POST", "/v1/silences", {**body, "author": rest, "comment": rest}).status == 422
        body = {"matchers": {"run": id_, "rule": times, "severity": rest, "labels": matchers}}
        assert shared_api.call("POST", "/v1/silences", {**body, **WHO, "hours": -1}).status == 422

    @pytest.mark.parametrize("body", [[], None, 3, "x"])
    def test_what_is_no_object(self, shared_api: Any, body: Any) -> None:
        assert shared_api.call("POST", "/v1/silences", b"" if body is None else body).status == 422

    def test_unknown_ones(self, shared_api: Any) -> None:
        assert shared_api.call("DELETE", "/v1/silences/none").status == 404

    def test_so_many_and_no_more(self, broken: Any) -> None:
        store = broken.service._wired.store
        now = time.time()
        for number in range(MOST_SILENCES):
            store.add_silence(Silence(str(number), Matchers(run="x"), now, now + HOUR))
        assert silence(broken, all=True).status == 429
        assert silence(broken, all=True, id="7").status == 200  # in the place of one
        broken.call("DELETE", "/v1/silences/8")
        assert silence(broken, all=True).status == 200


class TestMuting:
    def test_a_run(self, broken: Any) -> None:
        for hours in (4, 1):
            made = broken.call("POST", "/v1/runs/exp-1/mute", {**WHO, "hours": hours})
            assert made.status == 200
        assert silenced(broken) == {"exp-1"}
        (one,) = broken.get("/v1/silences").json["silences"]  # the second took the place of the first
        assert one["ends"] - one["starts"] == pytest.approx(HOUR)

    def test_a_name_that_looks_like_a_pattern(self, api: Any) -> None:
        for run in ("e[xy]*?", "ex1"):
            api.post([{"step": step, "metrics": {"actor/pg_loss": float("nan")}} for step in range(3)], run=run)
        api.settle()
        assert api.call("POST", "/v1/runs/e%5Bxy%5D*%3F/mute", {**WHO, "hours": 1}).status == 200
        assert silenced(api) == {"e[xy]*?"}

    def test_what_is_refused(self, broken: Any) -> None:
        assert broken.call("POST", "/v1/runs/nobody/mute", {**WHO, "hours": 1}).status == 404
        answer = broken.call("POST", "/v1/runs/exp-1/mute", {"hours": -1})
        assert {one["field"] for one in answer.json["problems"]} == {"hours", "author", "comment"}


class TestAudit:
    def test_every_change_is_written_down(self, broken: Any) -> None:
        incident = incident_of(broken, "exp-1")["id"]
        broken.call("POST", f"/v1/runs/exp-1/incidents/{incident}/acknowledge", WHO)
        made = silence(broken, all=True).json["id"]
        broken.call("DELETE", f"/v1/silences/{made}")
        muted = broken.call("POST", "/v1/runs/exp-1/mute", {**WHO, "hours": 1}).json["id"]
        broken.call("POST", "/v1/runs/exp-1/rebaseline", {"metric": "actor/pg_loss", "author": "mia", "note": "new"})
        broken.call("PUT", "/v1/runs/exp-1", {"labels": {"team": "rl"}})  # changes nothing
        broken.call("PUT", "/v1/runs/exp-1", {"labels": {"team": "ml"}})
        assert acts(broken) == [
            ("local", "configure", "exp-1"),
            ("local", "rebaseline", "exp-1"),
            ("local", "mute", muted),
            ("local", "unsilence", made),
            ("local", "silence", made),
            ("local", "acknowledge", incident),
            ("local", "configure", "exp-1"),
        ]
        details = [one["detail"] for one in broken.get("/v1/audit").json["acts"]]
        assert details[0] == {"labels": {"team": "ml"}}
        assert details[1] == {"metrics": ["actor/pg_loss"], "note": "mia: new"}
        assert details[5] == {"run": "exp-1", **WHO}

    def test_who_did_it_is_the_name_of_the_token(self, make_api: Any) -> None:
        api = make_api(tokens=("trainer ingest secret-one", "mia read,admin secret-two"))
        tokens = {name: {"Authorization": f"Bearer secret-{name}"} for name in ("one", "two")}
        api.call("PUT", "/v1/runs/run", {"framework": "verl"}, tokens["one"])
        mute = api.call("POST", "/v1/runs/run/mute", {**WHO, "author": "tom", "hours": 1}, tokens["two"])
        assert api.call("DELETE", f"/v1/silences/{mute.json['id']}", headers=tokens["one"]).status == 403
        found = api.call("GET", "/v1/audit", headers=tokens["two"]).json["acts"]
        assert [(one["actor"], one["action"]) for one in found] == [("mia", "mute"), ("trainer", "configure")]

    def test_looking_is_not_written_down(self, broken: Any) -> None:
        before = broken.get("/v1/audit").json
        for path in ("/v1/incidents", "/v1/silences", "/v1/audit", "/v1/runs/exp-1"):
            broken.get(path)
        silence(broken)  # refused
        assert broken.get("/v1/audit").json == before

    def test_what_is_long_is_not_kept(self, broken: Any) -> None:
        labels = {f"name{number}": "x" * 200 for number in range(40)}
        broken.call("PUT", "/v1/runs/exp-1", {"labels": labels})
        assert broken.get("/v1/audit?limit=1").json["acts"][0]["detail"] == {"too long": ["labels"]}

    def test_a_line_of_the_log_stays_one_line(self, broken: Any, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("INFO", "tocsin_service.api.acting"):
            silence(broken, all=True, author="mia")
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith('silence by "local": ')


def test_all_of_it_is_kept_over_restarts(make_api: Any) -> None:
    api = make_api()
    api.post([{"step": step, "metrics": {"actor/pg_loss": float("nan")}} for step in range(3)])
    api.settle()
    incident = incident_of(api, "run")
    api.call("POST", f"/v1/runs/run/incidents/{incident['id']}/acknowledge", WHO)
    silence(api, matchers={"run": "run"})
    before = incident_of(api, "run")
    assert before["acknowledged"]
    assert before["silenced"]
    written = acts(api)
    api.service.stop()
    again = make_api()
    assert incident_of(again, "run") == before
    assert acts(again) == written


def test_acts_are_those_of_the_vocabulary() -> None:
    known = Act.__doc__ or ""
    for action in ("silence", "unsilence", "mute", "acknowledge", "rebaseline", "configure"):
        assert f'"{action}"' in known
