"""What a check shows: curves in the terminal, and a page that stands by itself."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_service.cli import main
from tocsin_service.commands.verdict import judge
from tocsin_service.pictures.curves import Curve
from tocsin_service.pictures.plots import Marks, plot
from tocsin_service.pictures.sparklines import ONSET, sparkline

WORDS = {"onset": "onset", "said": "said", "baseline": "baseline", "limit": "limit"}
TRACKERS = Path(__file__).parents[1] / "data" / "trackers"


class Page(HTMLParser):
    """The elements of a page, its text, and whatever it would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.loads: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in {"meta", "line", "path", "circle", "rect", "br"}:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "style"} or name.startswith("on"):
                self.loads.append(f"{name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def rows(broken: str = "actor/kl_loss") -> list[dict[str, Any]]:
    """A run whose KL is a thousandfold from step 60 on."""
    metrics = {broken: 0.01, "critic/score/mean": 0.5, "actor/grad_norm": 1.0}
    return [
        {"step": step, "metrics": {n: v * (1 + math.sin(step * 7) / 20) * (1000 if n == broken and step >= 60 else 1)
                                   for n, v in metrics.items()}}
        for step in range(1, 90)
    ]  # fmt: skip


def write(path: Path, told: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in told))
    return str(path)


def test_the_terminal_shows_the_curve_around_the_onset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path / "run.jsonl", rows())]) == 1
    out = capsys.readouterr().out
    [line] = [line for line in out.splitlines() if ONSET in line][:1]
    before, after = line.split(ONSET)
    assert before.strip() == "\u2581" * 48
    assert re.fullmatch("[\u2586-\u2588]{24} steps 12 to 83", after)
    main(["check", "--lang", "zh", str(tmp_path / "run.jsonl")])
    assert "第 12 至 83 步" in capsys.readouterr().out


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_stands_by_itself(tmp_path: Path, lang: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    quiet = write(tmp_path / "quiet.jsonl", rows("unknown/metric"))
    arguments = ["check", write(tmp_path / "run.jsonl", rows()), quiet, "--html", str(file), "--lang", lang]
    assert main(arguments) == 1
    text = file.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert page.loads == []
    assert not {"script", "link", "img", "iframe", "object"} & {*page.tags}
    assert "run" in page.text
    assert "quiet" in page.text
    told = {
        "en": ["onset 60", "What to do", "baseline 0.0", "a baseline of 0.0"],
        "zh": ["起始 60", "处置建议", "基线 0.0", "基线为 0.0"],
    }
    assert all(words in page.text for words in told[lang])
    assert capsys.readouterr().out
    style = text.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text


def test_names_of_a_trainer_are_only_text_in_a_page(tmp_path: Path) -> None:
    hostile = '</style><script>alert("1")</script>&<b>\x1b'
    told = rows()
    for row in told:
        row["metrics"] = {f"<i>'\"{name}" if "grad" in name else name: v for name, v in row["metrics"].items()}
        if row["step"] >= 60:
            row["metrics"] = dict.fromkeys(row["metrics"], math.nan)
    file = tmp_path / "report.html"
    main(["check", "--run", hostile, write(tmp_path / "run.jsonl", told), "--html", str(file)])
    text = file.read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "i"} & {*page.tags}
    assert hostile.replace("\x1b", "\N{REPLACEMENT CHARACTER}") in page.text
    assert "<i>'\"actor/grad_norm" in page.text
    assert "\x1b" not in text
    assert page.loads == []


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path / "run.jsonl", rows()), "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "can't be written" in capsys.readouterr().err


def test_a_folder_gives_a_verdict_on_each_of_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "metrics.jsonl", rows())
    assert main(["check", "--json", str(tmp_path)]) == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [verdict["run"] for verdict in told] == ["a", "b"]
    assert main(["check", "--json", str(TRACKERS / "wandb"), str(TRACKERS / "tensorboard")]) == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [verdict["vectors"] for verdict in told] == [12, 12]
    assert all("non_finite" in {alert["rule"] for alert in verdict["alerts"]} for verdict in told)


def test_curves_are_in_the_unit_of_the_catalogue_and_of_their_attempt() -> None:
    vectors = [StepVector(row["step"], dict(row["metrics"]), 1.0 + row["step"]) for row in rows()]
    again = [StepVector(v.step, {n: x * 1.5 for n, x in v.metrics.items()}, 1000.0 + v.step) for v in vectors[29:]]
    config = RunConfig()
    verdict = judge("run", [*vectors, *again], config)
    assert (verdict.attempts, verdict.starts) == (2, [89])
    curves = verdict.curves([*vectors, *again], config)
    first, second = (
        next(alert for alert in verdict.alerts.values() if alert.attempt == n and alert.metric == "actor/kl_loss")
        for n in (0, 1)
    )
    assert list(curves[first.id].steps) == list(range(1, 90))
    assert list(curves[second.id].steps) == list(range(30, 90))
    assert curves[second.id].values[0] == vectors[29].metrics["actor/kl_loss"] * 1.5
    assert all(alert.id in curves for alert in verdict.alerts.values() if alert.metric in vectors[0].metrics)


def test_a_negated_alias_is_drawn_as_it_is_judged(recorded: Any) -> None:
    """Every curve of a recorded run goes through the value that its alert tells of."""
    seen = 0
    for run in recorded[::3]:
        verdict = judge(run.name, run.vectors, run.config)
        curves = verdict.curves(run.vectors, run.config)
        for alert in verdict.alerts.values():
            value = alert.evidence.value
            if alert.id not in curves or "median of the last" in alert.evidence.detail:
                continue
            if math.isfinite(value):
                points = zip(curves[alert.id].steps, curves[alert.id].values, strict=True)
                assert any(found == value and step >= alert.onset_step for step, found in points), alert
                seen += 1
    assert seen > 5


anything = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0])
curves = st.lists(st.tuples(st.integers(0, 2**53), anything), min_size=1, max_size=2000, unique_by=lambda p: p[0]).map(
    lambda points: Curve([step for step, _ in sorted(points)], [value for _, value in sorted(points)])
)


@settings(max_examples=30, deadline=None)
@given(curves, st.integers(0, 2**53), st.integers(0, 2**53), anything, anything)
@example(Curve([0, 1], [0.0, 5e-324]), 0, 0, 0.0, 0.0)
def test_any_curve_can_be_drawn(curve: Curve, onset: int, fired: int, baseline: float, limit: float) -> None:
    assert len(sparkline(curve, onset)) == len(curve.steps) + 1
    drawn = plot(curve, Marks(onset, fired, baseline, limit, WORDS, 'a <title> & "more"'))
    svg = ET.fromstring(drawn)  # noqa: S314 our own
    for element in svg.iter():
        for name in ("x", "y", "x1", "y1", "cx", "cy", "width"):
            assert math.isfinite(float(element.get(name, "0")))
        assert not re.search("nan|inf", element.get("d", ""))
    assert len(drawn) < 60_000


def test_a_sparkline_marks_what_is_not_finite_and_tells_small_values_apart() -> None:
    curve = Curve(range(6), [0.01, 0.02, 0.01, math.nan, 5.0, math.inf])
    assert sparkline(curve, 4) == "▁▁▁×│█×"
    assert sparkline(Curve(range(3), [1.0, 1.0, 1.0]), 0) == "│▁▁▁"
    assert sparkline(Curve([1], [math.nan]), 9) == "×│"
