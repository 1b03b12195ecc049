"""Series and scales: the baseline is what its definition says, suspects wait outside, and snapshots hold everything."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin_detectors.scale import LARGEST, Scale
from tocsin_detectors.series import FLOORS, MAD_TO_SIGMA, PATIENCE, TAILS_TO_SIGMA, WINDOW, Series

LINEAR = Scale("linear")
SCALES = [LINEAR, Scale("logit"), Scale("symlog", 0.01), Scale("symlog", 1e-8)]

number = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-2, 2) | st.sampled_from([0.0, -0.0, 1.0])
streams = st.lists(st.tuples(number, st.integers(1, 12)), min_size=1, max_size=20).map(
    lambda runs: [value for value, length in runs for _ in range(length)]
)


def filled(scale: Scale, values: Any) -> Series:
    series = Series(scale)
    for step, value in enumerate(values):
        series.push(step, value, scale.transform(value))
    return series


def naive_baseline(window: list[float], kind: str) -> tuple[float, float, int, float]:
    """Median, spread, count and size of a window, straight from their definitions."""
    values = np.sort(np.asarray(window))
    count = len(values)
    median = float(np.median(values))
    # The tenth part of the values at either end, at least one of five and more, is a tail.
    tail = 0 if count < 5 else max(count // 10, 1)
    low, high = float(values[tail]), float(values[count - 1 - tail])
    mad = float(np.quantile(np.abs(values - median), 0.5, method="lower"))
    size = max(abs(median), abs(low), abs(high))
    floor = FLOORS[kind] * (size if kind == "linear" else 1)
    return median, max(MAD_TO_SIGMA * mad, (high - low) / TAILS_TO_SIGMA, floor, 1e-12), count, size


@pytest.mark.parametrize("scale", SCALES)
@given(stream=streams)
@settings(deadline=None)
def test_the_baseline_is_what_its_definition_says(scale: Scale, stream: list[float]):
    series = Series(scale)
    assert series.baseline is None
    for step, value in enumerate(stream):
        series.push(step, value, scale.transform(value))
        window = series.snapshot()["window"]
        assert 1 <= len(window) <= WINDOW
        baseline = series.baseline
        assert baseline is not None
        median, spread, count, size = naive_baseline(window, scale.kind)
        assert baseline.count == count
        assert baseline.median == pytest.approx(median, rel=1e-9, abs=1e-300)
        assert baseline.size == pytest.approx(size, rel=1e-9)
        assert baseline.least <= baseline.spread * (1 + 1e-12)
        assert baseline.spread == pytest.approx(spread, rel=1e-9)


@pytest.mark.parametrize("scale", SCALES)
@given(stream=streams, data=st.data())
@settings(deadline=None)
def test_restored_at_any_value_equals_uninterrupted(scale: Scale, stream: list[float], data: Any):
    cut = data.draw(st.integers(0, len(stream)))
    steady, interrupted = filled(scale, stream[:cut]), Series(scale)
    interrupted.restore(json.loads(json.dumps(steady.snapshot(), allow_nan=False)))
    for step, value in enumerate(stream[cut:], start=cut):
        for series in (steady, interrupted):
            series.push(step, value, scale.transform(value))
    assert interrupted.snapshot() == steady.snapshot()
    assert repr(interrupted.smoothed(9)) == repr(steady.smoothed(9))
    if steady.baseline is None:
        assert interrupted.baseline is None
    else:
        assert interrupted.baseline is not None
        assert interrupted.baseline.snapshot() == steady.baseline.snapshot()


def wobble(level: float, count: int) -> list[float]:
    return [level * (1 + 0.05 * (index % 3 - 1)) for index in range(count)]


def median_of(series: Series) -> float:
    assert series.baseline is not None
    return series.baseline.median


def test_a_spike_stays_out_of_the_window():
    series = filled(LINEAR, [*wobble(1, 20), 50.0, *wobble(1, 5)])
    assert max(series.snapshot()["window"]) < 2
    assert series.suspects == []
    assert series.count == 26


def test_a_shift_waits_outside_until_it_has_lasted():
    series = filled(LINEAR, wobble(1, 30))
    for held_back, value in enumerate(wobble(5, PATIENCE - 1), start=1):
        series.push(30, value, value)
        assert median_of(series) == pytest.approx(1, rel=0.05)
        assert len(series.suspects) == held_back
    series.push(60, 5.0, 5.0)
    assert median_of(series) == pytest.approx(5, rel=0.05)
    assert series.suspects == []
    assert len(series.snapshot()["window"]) == PATIENCE


def test_suspects_on_both_sides_are_no_level():
    series = filled(LINEAR, [*wobble(1, 30), *[9.0, -9.0] * PATIENCE])
    assert len(series.suspects) < PATIENCE


def test_a_slow_drift_is_followed():
    drift = [math.exp(0.005 * row) for row in range(600)]
    series = filled(Scale("symlog", 0.01), drift)
    assert series.scale.inverse(median_of(series)) == pytest.approx(drift[-WINDOW // 2], rel=0.05)


def test_restart_forgets_what_was_normal():
    series = filled(LINEAR, wobble(1, 30))
    series.restart()
    assert series.baseline is None
    assert math.isnan(series.smoothed(5))
    series.push(31, 7.0, 7.0)
    assert median_of(series) == 7


def test_a_resume_keeps_the_window_and_forgets_what_is_undone():
    series = filled(LINEAR, [*wobble(1, 30), 5.0, 5.0, 5.0])
    series.resume(28)
    assert median_of(series) == pytest.approx(1, rel=0.05)
    assert series.suspects == []
    assert math.isnan(series.smoothed(5))


def test_a_resume_from_before_the_window_moved_begins_anew():
    series = filled(LINEAR, [*wobble(1, 30), *wobble(5, 40)])
    series.resume(60)
    assert median_of(series) == pytest.approx(5, rel=0.05)
    series = filled(LINEAR, [*wobble(1, 30), *wobble(5, 40)])
    series.resume(40)
    assert series.baseline is None


def test_smoothed_is_the_median_of_the_last_values():
    series = filled(LINEAR, [9.0, 1.0, 2.0, 100.0, 3.0])
    assert series.smoothed(3) == 3
    assert series.smoothed(16) == 3
    assert math.isnan(Series(LINEAR).smoothed(3))


@pytest.mark.parametrize("scale", SCALES)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_scale_can_be_inverted(scale: Scale, value: float):
    x = scale.transform(value)
    assert math.isfinite(x)
    clipped = min(max(value, -LARGEST), LARGEST)
    assert scale.inverse(x) == pytest.approx(clipped, rel=1e-9, abs=1e-300)
    assert scale.transform(-value) == -x


@pytest.mark.parametrize("scale", SCALES)
@given(pair=st.tuples(number, number))
def test_a_scale_is_monotone(scale: Scale, pair: tuple[float, float]):
    low, high = sorted(pair)
    assert scale.transform(low) <= scale.transform(high)


@given(ratio=st.floats(1.1, 1e6), level=st.floats(1, 1e6))
def test_far_above_its_linear_part_a_symlog_difference_is_the_log_of_a_ratio(ratio: float, level: float):
    scale = Scale("symlog", 1e-8)
    assert scale.transform(level * ratio) - scale.transform(level) == pytest.approx(math.log(ratio), rel=1e-3)


def test_the_inverse_of_a_distance_beyond_all_numbers_is_infinite():
    assert Scale("symlog").inverse(1e6) == math.inf
    assert Scale("symlog").inverse(-1e6) == -math.inf
