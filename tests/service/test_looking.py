"""What the dashboard asks for: all runs at once, a run's curves, news as they happen, and the page's own files."""

from __future__ import annotations

import gzip
import http.client
import json
import math
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from tests.service.stores import ACKNOWLEDGEMENT, INCIDENT, OpenStore, add, change, events, positions, record, summary

from tocsin_detectors.algorithms import Bound
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_detectors.rules import Condition, Guarded, shipped_rules
from tocsin_detectors.runbooks.wording import signs_of
from tocsin_service.dashboard import files
from tocsin_service.dashboard.changes import Changes
from tocsin_service.dashboard.history import History, read_behind
from tocsin_service.dashboard.overview import POINTS, Overview
from tocsin_service.presentation import PLAIN
from tocsin_service.store import Record

RUNS = Path(__file__).resolve().parents[1] / "data" / "runs"
STATIC = files.FOLDER


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RUNS / f"{name}.jsonl").read_text().splitlines()]


class TestOverview:
    def test_runs_at_a_glance(self, api: Any) -> None:
        api.call("PUT", "/v1/runs/bad", {"framework": "trl", "labels": {"team": "rl"}})
        api.post(recorded("collapse_lr_x100"), run="bad")
        api.call("PUT", "/v1/runs/good", {"finished": True})
        api.settle()
        answer = api.get("/v1/overview?lang=zh").json
        found = {one["run"]: one for one in answer["runs"]}
        assert answer["total"] == 2
        assert found["bad"]["worst"]["severity"] == "critical"
        assert found["bad"]["worst"]["title"].startswith("模型崩溃")
        assert (found["bad"]["step"], found["bad"]["labels"]) == (180, {"team": "rl"})
        assert found["bad"]["values"] == [one["metrics"]["reward"] for one in recorded("collapse_lr_x100")[-POINTS:]]
        assert (found["good"]["state"], found["good"]["worst"], found["good"]["values"]) == ("finished", None, [])

    def test_a_run_that_says_nothing_for_longer_than_its_pace_allows_is_silent(self, open_store: OpenStore) -> None:
        store = open_store()
        for step in range(6):
            add(store, record(step), now=1000.0 + 60 * step)
        (now,) = Overview(store).read(10, 1300.0, PLAIN)
        assert now["state"] == "running"
        (later,) = Overview(store).read(10, 1300.0 + 601, PLAIN)
        assert later["state"] == "silent"

    def test_small_curves_grow_with_the_log(self, open_store: OpenStore) -> None:
        store, sent = open_store(), [math.nan, *map(float, range(1, 3 * POINTS))]
        overview = Overview(store)
        for cut in (0, 1, 10, 70, 75, 3 * POINTS):
            done = overview.read(10, 0.0, PLAIN)
            begun = done[0]["vectors"] if done else 0
            records = [record(step, reward=sent[step]) for step in range(begun, cut)]
            if records:
                add(store, *records)
                (run,) = overview.read(10, 0.0, PLAIN)
                assert run["metric"] == "critic/score/mean"
                expected = ["NaN" if math.isnan(value) else value for value in sent[:cut][-POINTS:]]
                assert run["values"] == expected


class TestCharts:
    def test_curves_by_family_are_the_numbers_that_were_sent(self, api: Any) -> None:
        sent = recorded("collapse_lr_x100")
        api.call("PUT", "/v1/runs/run", {"framework": "trl"})
        api.post(sent)
        api.settle()
        charts = api.get("/v1/runs/run/charts?points=5000").json
        assert charts["families"][0]["family"] == "reward"
        curves = {one["metric"]: one for family in charts["families"] for one in family["metrics"]}
        assert {one["source"] for one in curves.values()} <= set(sent[0]["metrics"])
        for metric in ("actor/entropy", "actor/grad_norm", "critic/score/mean", "num_tokens"):
            (part,) = curves[metric]["parts"]
            told = api.get(f"/v1/runs/run/series?metric={metric}&limit=5000").json["series"][0]
            assert (part["steps"], part["values"]) == (told["steps"], told["values"])

    def test_one_metric_some_steps_few_points(self, api: Any) -> None:
        api.post([{"step": step, "metrics": {"x": 1.0, "y": "NaN" if step == 77 else 2}} for step in range(500)])
        query = "/v1/runs/run/charts?metric=y&first=50&last=449&points=32"
        (family,) = api.get(query).json["families"]
        (curve,) = family["metrics"]
        (part,) = curve["parts"]
        assert (family["family"], curve["metric"]) == ("other", "y")
        assert part["steps"][0] == 50
        assert part["steps"][-1] == 449
        assert len(part["steps"]) <= 32
        assert part["values"][part["steps"].index(77)] == "NaN"
        assert api.get("/v1/runs/run/charts?family=kl").json["families"] == []
        assert api.get("/v1/runs/run/charts?family=nonsense").status == 422
        assert api.get("/v1/runs/other/charts").status == 404

    def test_a_resume_opens_a_part_of_its_own(self, open_store: OpenStore) -> None:
        store = open_store()
        first = [Record(StepVector(step, {"loss": step / 10}, 100.0 + step)) for step in range(8)]
        second = [Record(StepVector(step, {"loss": step / 20}, 200.0 + step)) for step in range(4, 7)]
        add(store, *first, Record(RunConfig(framework="trl")), *second)
        with History(store).curves(summary(store)) as curves:
            ((source, _, parts),) = curves.columns.values()
            assert source == "loss"
            assert [(part.attempt, list(part.steps)) for part in parts] == [(0, list(range(8))), (1, [4, 5, 6])]
            assert (curves.attempt, curves.complete, curves.position) == (1, True, positions(store)[-1])
            assert [(one.attempt, one.first, one.last) for one in curves.lives] == [(0, 0, 7), (1, 4, 6)]
            assert [(one.begun, one.ended) for one in curves.lives] == [(100.0, 107.0), (204.0, 206.0)]

    def test_what_came_in_behind_a_position(self, open_store: OpenStore) -> None:
        store = open_store()
        add(store, *(record(step) for step in range(5)))
        with History(store).curves(summary(store)) as curves:
            position = curves.position
        assert read_behind(store, "r", None, 0, position).columns == {}
        add(store, record(5))
        newer = read_behind(store, "r", None, 0, position)
        ((_, _, (part,)),) = newer.columns.values()
        assert list(part.steps) == [5]
        assert newer.position > position


class TestRules:
    def test_what_makes_a_sign_is_said_in_words(self, shared_api: Any) -> None:
        told = {one["name"]: one["tests"] for one in shared_api.get("/v1/rules").json["rules"]}
        assert all(told.values())
        assert [text for texts in told.values() for text in texts if re.search(r"\w=|\w\(|None|True|False", text)] == []
        assert told["non_finite"][0].startswith("Any metric is NaN or infinite.")

    def test_those_of_a_rule_file_too(self) -> None:
        shipped = next(one for one in shipped_rules() if one.name == "kl_collapse")
        guarded = Guarded(Bound(above=0.25, skip=3), (Condition.DENSE,))
        (said,) = signs_of(replace(shipped, name="ours", tests=(guarded,)))
        assert said.startswith("The value is above 0.25, after the first 3 values, whatever the run's own history.")
        assert said.endswith(" Counts only while the run's profile isn't `moe`.")
        assert signs_of(replace(shipped, name="ours", tests=())) == []


class TestChanges:
    def test_whatever_shows_is_a_change(self, open_store: OpenStore) -> None:
        store, now = open_store(), [0.0]
        changes = Changes(store, lambda: now[0])
        seen = []

        def look() -> None:
            now[0] += 1.0
            seen.append((changes.of("r"), changes.of(None)))

        look()
        add(store, record(1), record(2))
        look()
        store.commit("r", change(0, positions(store)[-1], events()))
        look()
        assert store.acknowledge(ACKNOWLEDGEMENT)
        look()
        add(store, Record(RunConfig(finished=True)))
        look()
        assert len({one for one, _ in seen}) == len({every for _, every in seen}) == len(seen)
        look()
        assert seen[-1] == seen[-2]
        assert INCIDENT.id not in repr(seen[-1])

    def test_many_who_ask_cost_one_look(self, open_store: OpenStore) -> None:
        store = open_store()
        changes = Changes(store, lambda: 0.0)
        before = changes.of("r")
        add(store, record(1))
        assert changes.of("r") == before


class Stream:
    """Reads the events of a stream one by one."""

    def __init__(self, address: str, query: str) -> None:
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._connection.request("GET", f"/v1/events{query}")
        self.answer = self._connection.getresponse()

    def next(self) -> dict[str, Any] | None:
        """The next event's data; None when the stream has ended."""
        while line := self.answer.readline():
            if line.startswith(b"data:"):
                return json.loads(line[5:])
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self._connection.close()


class TestEvents:
    def test_a_step_and_an_alert_are_heard_of(self, api: Any) -> None:
        api.post([{"step": 1, "metrics": {"actor/pg_loss": 1.0}}])
        api.settle()
        with Stream(api.address, "?run=run") as stream:
            assert stream.answer.getheader("content-type", "").startswith("text/event-stream")
            first = stream.next()
            assert first is not None
            assert first["vectors"] == 1
            api.post([{"step": step, "metrics": {"actor/pg_loss": "NaN"}} for step in (2, 3, 4)])
            while (later := stream.next()) is not None and later["said"] == first["said"]:
                pass
            assert later is not None
            assert later["vectors"] == 4

    def test_it_ends_when_asked_to_and_when_the_service_stops(self, api: Any) -> None:
        with Stream(api.address, "?seconds=0") as brief:
            assert brief.next() is not None
            assert brief.next() is None
        with Stream(api.address, "") as long:
            assert long.next() is not None
            stopped = threading.Thread(target=api.service.stop)
            stopped.start()
            assert long.next() is None  # else it would have gone on for minutes
            stopped.join(30)
            assert not stopped.is_alive()

    def test_there_is_an_end_to_how_many_may_listen(self, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tocsin_service.api.looking.MOST_STREAMS", 1)
        with Stream(api.address, "") as one, Stream(api.address, "") as other:
            assert one.next() is not None
            assert other.answer.status == 429

    def test_an_unknown_run(self, api: Any) -> None:
        assert api.get("/v1/events?run=nobody").status == 404
        assert api.get("/v1/events?run=..").status == 422


class TestFiles:
    def test_the_page_is_served_with_a_strict_policy(self, shared_api: Any) -> None:
        answer = shared_api.get("/dashboard/")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/html")
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
        assert b"<script>" not in answer.data
        assert b"style=" not in answer.data

    def test_every_file_is_kept_until_it_changes(self, shared_api: Any) -> None:
        for name in files.static_files():
            answer = shared_api.get(f"/dashboard/{name}")
            assert (answer.status, answer.data) == (200, (STATIC / name).read_bytes())
            packed = shared_api.call("GET", f"/dashboard/{name}", headers={"accept-encoding": "gzip"})
            unpacked = gzip.decompress(packed.data) if "content-encoding" in packed.headers else packed.data
            assert unpacked == answer.data
            again = shared_api.call("GET", f"/dashboard/{name}", headers={"if-none-match": answer.headers["etag"]})
            assert (again.status, again.data) == (304, b"")
            assert again.headers["cache-control"] == "no-cache"
            assert {one.headers["vary"] for one in (answer, packed, again)} == {"accept-encoding"}

    def test_packed_and_plain_are_told_apart(self, shared_api: Any) -> None:
        def ask(accepted: str, known: str = "") -> Any:
            headers = {"accept-encoding": accepted, **({"if-none-match": known} if known else {})}
            return shared_api.call("GET", "/dashboard/main.js", headers=headers)

        plain, packed = ask("identity").headers["etag"], ask("gzip").headers["etag"]
        assert plain != packed
        for accepted, tag, encoding in (
            ("gzip, br", packed, "gzip"),
            ("br, GZIP;q=0.5", packed, "gzip"),
            ("gzip;q=0", plain, None),
            ("gzip; q=0.0, *", plain, None),
            ("x-gzip", plain, None),
        ):
            answer = ask(accepted)
            assert (answer.headers["etag"], answer.headers.get("content-encoding")) == (tag, encoding)
        assert ask("gzip", plain).status == ask("identity", packed).status == 200  # known in the other way alone
        for known in (packed, f"W/{packed}", f'"other", {packed}', "*"):
            answer = ask("gzip", known)
            assert (answer.status, answer.headers["etag"]) == (304, packed)
        assert ask("gzip", packed.strip('"')).status == 200

    @pytest.mark.parametrize("path", ["nothing.js", "../files.py", "%2e%2e/files.py", "..%2ffiles.py", "vendor", "/"])
    def test_there_is_no_way_to_another_file(self, shared_api: Any, path: str) -> None:
        assert shared_api.get(f"/dashboard/{path}").status in {404, 422}

    def test_nothing_comes_from_elsewhere_and_nothing_is_parsed_as_html(self) -> None:
        for path in STATIC.rglob("*"):
            if path.suffix in {".js", ".html", ".css"} and "vendor" not in path.parts:
                text = path.read_text()
                assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path
                addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
                assert addresses <= {"http://www.w3.org/2000/svg"}, path

    def test_both_languages_have_every_text(self) -> None:
        keys = {
            lang: set(re.findall(r"^  (\w+):", (STATIC / "texts" / f"{lang}.js").read_text(), re.MULTILINE))
            for lang in ("en", "zh")
        }
        assert keys["en"] == keys["zh"]
        assert len(keys["en"]) > 50

    def test_the_library_stands_beside_its_licence_and_version(self) -> None:
        vendor = STATIC / "vendor" / "uplot"
        version = (vendor / "VERSION").read_text().strip()
        assert f"(v{version})" in (vendor / "uPlot.esm.js").read_text()
        assert "MIT" in (vendor / "LICENSE").read_text()
