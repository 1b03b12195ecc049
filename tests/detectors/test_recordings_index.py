"""The recorded training runs are what their index says they are."""

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data"
RUNS = DATA / "runs"
INDEX: list[dict[str, Any]] = json.loads((RUNS / "index.json").read_text(encoding="utf-8"))
HEALTHY = [entry for entry in INDEX if entry["label"] == "healthy"]
COLLAPSED = [entry for entry in INDEX if entry["label"] == "collapse"]


def named(entries: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("entry", entries, ids=[entry["name"] for entry in entries])


def refuse_constant(token: str) -> None:
    pytest.fail(f"{token} is not strict JSON: record it as text")


def rows_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    lines = (RUNS / entry["file"]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse_constant) for line in lines]


@pytest.fixture
def recording_index(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DATA))
    return __import__("recording_index")


def test_index_and_files_match_one_to_one() -> None:
    listed = [entry["file"] for entry in INDEX]
    assert sorted(listed) == sorted(path.name for path in RUNS.glob("*.jsonl"))
    assert len({entry["name"] for entry in INDEX}) == len(INDEX)


def test_there_is_something_to_judge_by() -> None:
    assert len(HEALTHY) >= 3
    assert len(COLLAPSED) >= 7
    assert {entry["algorithm"] for entry in HEALTHY} == {entry["algorithm"] for entry in COLLAPSED} == {"grpo", "ppo"}


@named(INDEX)
def test_every_step_is_there_once_and_in_order(entry: dict[str, Any]) -> None:
    rows = rows_of(entry)
    assert [row["step"] for row in rows] == list(range(1, entry["steps"] + 1))
    times = [row["time"] for row in rows]
    assert times == sorted(times)


@named(INDEX)
def test_lines_hold_numbers_or_their_texts(entry: dict[str, Any]) -> None:
    for row in rows_of(entry):
        assert row.keys() == {"step", "time", "metrics"}
        for name, value in row["metrics"].items():
            assert value in (None, "NaN", "Infinity", "-Infinity") or type(value) in (int, float), (row["step"], name)


@named(HEALTHY)
def test_healthy_run_learns_and_holds_what_it_learned(entry: dict[str, Any]) -> None:
    name = "reward" if entry["algorithm"] == "grpo" else "objective/scores"
    rewards = [row["metrics"][name] for row in rows_of(entry) if name in row["metrics"]]
    quarter = len(rewards) // 4
    start, end = fmean(rewards[:10]), fmean(rewards[-quarter:])
    middle = fmean(rewards[-2 * quarter : -quarter])
    assert end > start + 0.3
    assert end > 0.95 * middle
    bad = [reward < 0.8 * middle for reward in rewards[-quarter:]]
    assert sum(bad) <= 1  # a single bad batch that heals at once is healthy


@named(HEALTHY)
def test_healthy_run_was_not_sabotaged(entry: dict[str, Any], recording_index: Any) -> None:
    assert (entry["sabotage"], entry["sabotage_step"], entry["onset_step"], entry["shows_in"]) == (None, None, None, [])
    assert entry["steps"] >= 240
    assert recording_index.shown_in(rows_of(entry), COLLAPSED[0]["sabotage_step"]) == {}


@named(COLLAPSED)
def test_collapse_shows_at_its_onset(entry: dict[str, Any], recording_index: Any) -> None:
    rows = rows_of(entry)
    assert entry["sabotage"]
    assert 1 < entry["sabotage_step"] <= entry["onset_step"] <= entry["sabotage_step"] + 2
    assert entry["steps"] >= entry["onset_step"] + 30
    shown = recording_index.shown_in(rows, entry["sabotage_step"])
    assert entry["shows_in"] == list(shown)
    assert len(entry["shows_in"]) >= 3
    assert entry["onset_step"] == min(shown.values())


@named(INDEX)
def test_config_is_what_a_trainer_would_tell(entry: dict[str, Any]) -> None:
    assert entry["config"] == {
        "algorithm": entry["algorithm"],
        "framework": "trl",
        "group_size": entry["group_size"],
        "temperature": entry["temperature"],
    }
    assert entry["trainer"].keys() == {"torch", "transformers", "trl"}


def made_up(values: list[Any]) -> list[dict[str, Any]]:
    return [{"step": step, "metrics": {"m": value}} for step, value in enumerate(values, start=1)]


HEALTHY_VALUES = [1.0 + 0.1 * math.sin(step) for step in range(60)]


@pytest.mark.parametrize(
    ("after", "first"),
    [
        (HEALTHY_VALUES[:20], None),
        ([1.0, 5.0, 1.0, 5.0, 1.0, 1.0], None),  # comes back each time
        ([1.0, 1.0, 5.0, 5.0, 1.0, 5.0, 5.0], 63),  # four of five
        ([1.2] * 5, None),  # within the margin
        ([0.5] * 5, 61),
        ([-1.0] * 5, 61),
        (["NaN"] * 5, 61),
        ([None] * 5, 61),
        ([1.0] * 50 + [5.0] * 5, None),  # too late to be the sabotage's doing
    ],
)
def test_onset_rule(after: list[Any], first: int | None, recording_index: Any) -> None:
    assert recording_index.first_step_out(made_up(HEALTHY_VALUES + after), "m", 61) == first
