"""Thinning out a curve: nothing that anyone would look for is lost."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin_service.dashboard.downsample import FEWEST, thin

numbers = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 1.0, math.nan, math.inf]))
curves = st.one_of(
    st.lists(numbers, max_size=600),
    st.tuples(st.integers(0, 3000), st.lists(numbers, max_size=40)).map(lambda made: [0.5] * made[0] + made[1]),
)
budgets = st.integers(FEWEST, 700)


def extremes(values: np.ndarray) -> tuple[float, float] | None:
    finite = values[np.isfinite(values)]
    return (finite.min(), finite.max()) if len(finite) else None


@given(curves, budgets)
def test_it_is_a_part_of_the_curve_and_no_more_than_asked_for(values: list[float], most: int) -> None:
    kept = thin(np.array(values, float), most)
    assert len(kept) <= most
    assert (np.diff(kept) > 0).all()
    assert len(kept) == len(values) or len(values) > most
    if values:
        assert kept[0] == 0
        assert kept[-1] == len(values) - 1


@given(curves, budgets)
def test_extremes_and_what_is_no_number_stay(values: list[float], most: int) -> None:
    all_values = np.array(values, float)
    left = all_values[thin(all_values, most)]
    assert extremes(left) == extremes(all_values)
    for kind in (np.isnan, np.isposinf, np.isneginf):
        assert kind(left).any() == kind(all_values).any()


@given(st.integers(1, 20_000), st.data(), budgets, st.sampled_from([1e9, -1e9, math.nan, math.inf, -math.inf]))
def test_a_lone_spike_never_disappears(count: int, data: st.DataObject, most: int, spike: float) -> None:
    values = np.sin(np.arange(count))
    place = data.draw(st.integers(0, count - 1))
    values[place] = spike
    assert place in thin(values, most)


def test_every_stretch_keeps_its_own_extremes() -> None:
    values = np.zeros(10_000)
    spikes = np.arange(50, 10_000, 100)
    values[spikes] = 1 + np.arange(len(spikes))
    assert set(spikes) <= set(thin(values, 600))
