"""Samples after a resume, which repeats steps: they are those of the alert's attempt, whether rows name it or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from tests.service.rollout_rows import post, rows

from tocsin_service.api.rollout_models import SamplesModel
from tocsin_service.commands.samples import alert_lines
from tocsin_service.lives import Life
from tocsin_service.rollouts.attempts import Seam, Within, line, within

START = 1.7e9
RESUMED, RESUME_TIME = 50, 1000.0  # the step to which it goes back, and seconds until it does
LIVES = (Life(0, None, 0, 79, 0.0, 79.0), Life(1, None, 50, 99, 1050.0, 1099.0), Life(2, None, 90, 120, 2090.0, 2120.0))
Written = tuple[int, int]  # attempt and step


def resumed(api: Any, run: str, written: Sequence[Written], *, named: bool) -> dict[int, Any]:
    """A run that collapses at step 60, goes back to step 50, and collapses at step 70; its samples by attempt."""
    begins = {0: START, 1: START + RESUME_TIME}
    for attempt, steps, onset in ((0, range(80), 60), (1, range(RESUMED, 100), 70)):
        name = {"attempt": attempt + 7} if named else {}
        for _, step in (one for one in written if one[0] == attempt):
            # What was written comes before the metrics of its step; where an attempt is named, times tell nothing.
            time = START + 1e6 if named else begins[attempt] + step - 0.5
            sent = post(api, rows(4, response=f"{attempt}/{step}"), run, step=step, time=time, measure="false", **name)
            assert sent.status == 202
        vectors = [
            {
                "step": step,
                "metrics": {"critic/score/mean": 0.8 + attempt / 100 if step < onset else 0.0},
                "time": begins[attempt] + step,
            }
            for step in steps
        ]
        api.post([{**one, **name} for one in vectors], run)
    api.settle()
    alerts = [one for one in api.get(f"/v1/runs/{run}/alerts").json["alerts"] if one["rule"] == "reward_collapse"]
    return {one["attempt"]: api.get(f"{one['samples']}?limit=1").json for one in alerts}


def shown(samples: Any, side: str) -> Any:
    """The attempt and step at a glance, and what was written there."""
    if samples[side] is None:
        assert not any(kind[side] for kind in samples["evidence"])
        return None
    (text,) = {row["response"] for kind in samples["evidence"] for row in kind[side]}
    assert samples[side]["rows"] == 4  # those of one attempt
    return (samples[side]["attempt"], samples[side]["step"]), text


@pytest.mark.parametrize("named", [False, True])
def test_each_attempt_has_its_own(shared_api: Any, named: bool) -> None:
    steps = (40, 58, 62, 66, 72)
    found = resumed(
        shared_api,
        f"each-{named}",
        [(0, step) for step in steps] + [(1, step) for step in steps if step > 50],
        named=named,
    )
    for samples in found.values():
        SamplesModel.model_validate(samples)
    assert shown(found[0], "onset") == ((0, 62), "0/62")
    assert shown(found[0], "healthy") == ((0, 58), "0/58")
    assert shown(found[1], "onset") == ((1, 72), "1/72")
    assert shown(found[1], "healthy") == ((1, 66), "1/66")


@pytest.mark.parametrize("named", [False, True])
def test_before_its_first_step_an_attempt_is_the_one_it_goes_on_from(shared_api: Any, named: bool) -> None:
    found = resumed(shared_api, f"before-{named}", [(0, 40), (0, 58), (0, 66), (0, 72)], named=named)
    assert shown(found[1], "healthy") == ((0, 40), "0/40")
    lines = list(alert_lines(found[1]))
    assert lines[0].startswith("the last step before: step 40 of attempt 0: 4 rows")
    assert "-- step 40 of attempt 0 (healthy)" in lines
    assert shown(found[1], "onset") is None


@pytest.mark.parametrize("named", [False, True])
def test_the_first_rollouts_of_an_attempt_are_older_than_its_first_metrics(shared_api: Any, named: bool) -> None:
    found = resumed(shared_api, f"first-{named}", [(0, RESUMED), (1, RESUMED)], named=named)
    assert shown(found[1], "healthy") == ((1, RESUMED), f"1/{RESUMED}")
    assert shown(found[0], "healthy") == ((0, RESUMED), f"0/{RESUMED}")


def test_which_rows_are_of_which_attempt() -> None:
    first, second = Seam(79.0, 79, 1050.0), Seam(1099.0, 99, 2090.0)
    assert [within(LIVES, attempt) for attempt in range(4)] == [
        Within(before=first),
        Within(after=first, before=second),
        Within(after=second),
        Within(),
    ]
    assert within((), 0) == Within()
    computed = Life(0, None, 48, 48, 0.0, 0.0, logged=False)  # rollouts came before any step
    assert within([computed, *LIVES[1:]], 1) == Within(before=second)
    gone = within(LIVES[1:], 0)  # the log of the first attempt is gone: what was written before the second is of it
    assert gone.before is not None
    assert gone.before.begun == 1050.0
    unknown = (Life(0, 3, 0, 9, None, None), Life(1, 4, 5, 9, None, None))
    assert within(unknown, 1) == Within(told=4)


def test_which_steps_led_there() -> None:
    assert list(line(LIVES, 2, 110)) == [(2, 110), (1, 90), (0, 50)]
    assert list(line(LIVES, 1, 70)) == [(1, 70), (0, 50)]
    assert list(line(LIVES, 0, 70)) == [(0, 70)]
    assert list(line((), 0, 70)) == [(0, 70)]
    assert list(line(LIVES[2:], 2, 110)) == [(2, 110), (1, 90)]
    skipped = (LIVES[0], replace(LIVES[1], logged=False), LIVES[2])
    assert list(line(skipped, 2, 110)) == [(2, 110), (0, 90)]
    back_twice = (*LIVES[:2], Life(2, None, 20, 30, 2000.0, 2010.0))
    assert list(line(back_twice, 2, 25)) == [(2, 25), (1, 20), (0, 20)]
