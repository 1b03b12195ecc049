"""Pictures of incidents: real curves of recorded runs, hostile names, and a bounded line of those who wait."""

from __future__ import annotations

import asyncio
import math
import struct
import sys
import threading
import zlib
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin_detectors.alerts import Alert, Evidence, Incident, Severity
from tocsin_service.access.links import Links
from tocsin_service.commands.verdict import judge
from tocsin_service.pictures import MOST_KEPT, MOST_WAITING, Pictures, PicturesBusy, drawn
from tocsin_service.pictures.curves import Curve
from tocsin_service.presentation import Presentation

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
SECRET = "0123456789abcdef" * 2
HOSTILE = [
    "$\\frac{1}{$",
    "$x$",
    "\\$",
    "a" * 256,
    "\N{PILE OF POO}\u4e2d\u6587\u0e01",
    "{run}%s%(x)d",
    "_",
    "\u202etxt",
]


def size_of(picture: bytes) -> tuple[int, int]:
    """Width and height in pixels; every part of the file is checked against its sum."""
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    place, kinds = 8, []
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        body = picture[place + 4 : place + 8 + length]
        (known,) = struct.unpack(">I", picture[place + 8 + length : place + 12 + length])
        assert zlib.crc32(body) == known
        kinds.append(body[:4])
        place += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def incident(**changes: Any) -> dict[str, Any]:
    fields = {"id": "i", "run": "run", "attempt": 0, "rule": "r", "title": "Something broke", "onset_step": 60}
    more = {"first_sign": "a", "last_good_step": 59, "members": ("a",), "meaning": "", "remedies": ()}
    return Presentation().incident(Incident(**{**fields, **more, "severity": Severity.CRITICAL, **changes}))


def alert(name: str = "a", metric: str = "kl", **changes: Any) -> dict[str, Any]:
    fields = {"id": name, "run": "run", "attempt": 0, "rule": "r", "family": "f", "severity": Severity.CRITICAL}
    more = {"metric": metric, "source": metric, "onset_step": 60, "fired_step": 62, "summary": "", "meaning": ""}
    evidence = Evidence(5.0, baseline=1.0, limit=2.0, detail="5 against a baseline of 1")
    return Presentation().alert(Alert(**{**fields, **more, "remedies": (), "evidence": evidence, **changes}))


def curve(values: list[float] | None = None) -> Curve:
    values = values or [math.sin(step) + (5 if step >= 60 else 0) for step in range(90)]
    return Curve(range(len(values)), values)


@needs_matplotlib
class TestDrawing:
    def test_every_collapse(self, collapse: Any) -> None:
        told = judge(collapse.name, collapse.vectors, collapse.config)
        curves = told.curves(collapse.vectors, collapse.config)
        shown = Presentation()
        for one in told.incidents.values():
            alerts = [shown.alert(told.alerts[member]) for member in one.members]
            width, height = size_of(drawn(shown.incident(one), alerts, curves))
            assert width == 1200
            assert 400 <= height <= 1400

    def test_as_many_curves_as_can_be_seen(self) -> None:
        heights = []
        for count in (1, 2, 4, 9):
            alerts = [alert(str(number), f"metric {number}") for number in range(count)]
            picture = drawn(incident(), alerts, {one["id"]: curve() for one in alerts})
            heights.append(size_of(picture)[1])
        assert heights == sorted(heights)
        assert heights[2] == heights[3]

    def test_the_same_metric_once(self) -> None:
        alerts = [alert("a", rule="one"), alert("b", rule="two")]
        both = drawn(incident(), alerts, {"a": curve(), "b": curve()})
        assert both == drawn(incident(), alerts[:1], {"a": curve()})

    def test_the_critical_ones_come_before_the_early_ones(self) -> None:
        alerts = [alert(str(n), f"m{n}", severity=Severity.WARNING, onset_step=50) for n in range(4)]
        curves = {str(number): curve() for number in range(5)}
        assert drawn(incident(), [*alerts, alert("4", "m4")], curves) != drawn(incident(), alerts, curves)

    def test_without_a_curve_it_says_the_numbers(self) -> None:
        spoken = drawn(incident(), [alert()], {})
        assert size_of(spoken)[0] == 1200
        assert spoken != drawn(incident(), [], {})

    @pytest.mark.parametrize("name", HOSTILE)
    def test_names_are_text(self, name: str) -> None:
        picture = drawn(incident(run=name, title=name), [alert(metric=name, rule=name)], {"a": curve()})
        assert size_of(picture)[0] == 1200
        assert size_of(drawn(incident(run=name, title=name), [alert(metric=name, rule=name)], {}))[0] == 1200

    def test_no_name_turns_the_text_around_it_around(self) -> None:
        one, other = (drawn(incident(run=run), [], {}) for run in ("exp?txt", "exp\u202etxt"))
        assert one == other

    def test_a_name_in_dollars_is_no_formula(self) -> None:
        # As a formula both would look the same.
        one, other = (drawn(incident(title=title), [], {}) for title in ("$x$", "${x}$"))
        assert one != other

    @pytest.mark.parametrize(
        "values",
        [
            [math.nan] * 90,
            [math.inf, -math.inf, math.nan] * 30,
            [0.0] * 90,
            [1e308, -1e308] * 45,
            [5e-324] * 90,
            [1e-9] * 80 + [1e9] * 10,
            [1.0],
            [1.0, math.nan] * 45,
        ],
    )
    def test_any_numbers(self, values: list[float]) -> None:
        evidence = Evidence(values[-1], baseline=values[0], limit=values[-1], detail="x")
        assert size_of(drawn(incident(), [alert(evidence=evidence)], {"a": curve(values)}))[0] == 1200

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.floats(width=64), min_size=1, max_size=30), st.integers(0, 30), st.text(max_size=20))
    def test_whatever_comes(self, values: list[float], onset: int, name: str) -> None:
        one = alert(metric=name, onset_step=onset, fired_step=onset + 1)
        assert size_of(drawn(incident(title=name), [one], {"a": curve(values)}))[0] == 1200

    def test_a_spike_among_very_many_values_is_seen(self) -> None:
        flat = [1.0] * 20_000
        spike = [*flat[:777], 9.0, *flat[778:]]
        evidence = Evidence(1.0, baseline=1.0, limit=10.0)
        one, other = (drawn(incident(), [alert(evidence=evidence)], {"a": curve(v)}) for v in (flat, spike))
        assert one != other

    def test_in_chinese_where_a_font_has_it(self) -> None:
        assert size_of(drawn(incident(title="模型崩溃"), [alert()], {"a": curve()}, "zh"))[0] == 1200


class TestTheLine:
    def test_who_asks_again_gets_the_same(self) -> None:
        made = []

        async def ask() -> None:
            pictures = Pictures()
            both = await asyncio.gather(*(pictures.get("key", lambda: made.append(1) or b"x") for _ in range(5)))
            assert both == [b"x"] * 5
            assert await pictures.get("key", lambda: made.append(1) or b"x") == b"x"
            pictures.stop()

        asyncio.run(ask())
        assert made == [1]

    def test_only_so_many_wait(self) -> None:
        gate = threading.Event()

        async def ask() -> None:
            pictures = Pictures()
            waiting = [
                asyncio.create_task(pictures.get(n, lambda: gate.wait(30) and b"x")) for n in range(MOST_WAITING)
            ]
            await asyncio.sleep(0)
            with pytest.raises(PicturesBusy):
                await pictures.get("one more", lambda: b"x")
            waiting[0].cancel()  # takes it from nobody else
            gate.set()
            assert await asyncio.gather(*waiting[1:]) == [b"x"] * (MOST_WAITING - 1)
            assert await pictures.get(0, lambda: b"again") == b"x"
            pictures.stop()

        asyncio.run(ask())

    def test_what_fails_is_tried_anew(self) -> None:
        async def ask() -> None:
            pictures = Pictures()
            with pytest.raises(ZeroDivisionError):
                await pictures.get("key", lambda: bytes(1 // 0))
            assert await pictures.get("key", lambda: b"x") == b"x"
            pictures.stop()

        asyncio.run(ask())

    def test_only_so_many_are_kept(self) -> None:
        async def ask() -> None:
            pictures = Pictures()
            for number in range(MOST_KEPT + 1):
                await pictures.get(number, lambda: b"x")
            assert await pictures.get(1, lambda: b"new") == b"x"
            assert await pictures.get(0, lambda: b"new") == b"new"
            pictures.stop()

        asyncio.run(ask())


class TestServed:
    def where(self, api: Any) -> str:
        (found,) = api.get("/v1/incidents").json["incidents"]
        return Links("", SECRET).make("picture", found["run"], found["id"])

    def broken(self, make_api: Any, **more: Any) -> Any:
        api = make_api(public_url="https://tocsin.example", link_secret=SECRET, pictures=True, **more)
        api.post([{"step": step, "metrics": {"$kl": 1.0 if step < 40 else math.nan}} for step in range(45)])
        api.settle()
        return api

    @needs_matplotlib
    def test_as_a_picture(self, make_api: Any) -> None:
        api = self.broken(make_api)
        answer = api.get(self.where(api))
        assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
        assert size_of(answer.data)[0] == 1200

    @needs_matplotlib
    def test_vectors_are_taken_while_it_is_drawn(self, make_api: Any) -> None:
        api = self.broken(make_api)
        answers = []
        drawer = threading.Thread(target=lambda: answers.append(api.get(self.where(api)).status))
        drawer.start()
        step = 45
        while drawer.is_alive():
            assert api.post({"step": step, "metrics": {"x": 1.0}}).status == 202
            step += 1
        drawer.join()
        assert answers == [200]

    def test_without_matplotlib_it_says_what_is_missing(self, make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        api = self.broken(make_api)
        answer = api.get(self.where(api))
        assert answer.status == 404
        assert "tocsin[pictures]" in answer.json["error"]

    @needs_matplotlib
    def test_what_is_about_steps_has_a_picture_of_words(self, make_api: Any) -> None:
        api = make_api(public_url="https://tocsin.example", link_secret=SECRET, pictures=True)
        api.post([{"step": step, "metrics": {"kl": 1.0}} for step in (*range(60), 600)])
        api.settle()
        assert size_of(api.get(self.where(api)).data)[0] == 1200
