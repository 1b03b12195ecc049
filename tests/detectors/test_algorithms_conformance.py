"""One conformance suite for every algorithm: whatever is exported has to be registered here and to pass all of it."""

import inspect
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin_detectors import algorithms
from tocsin_detectors.algorithms import (
    Bound,
    Drawdown,
    FromStart,
    Frozen,
    LevelShift,
    Plateau,
    Point,
    RankShift,
    Reading,
    RepeatedSpikes,
    Test,
    Trend,
)
from tocsin_detectors.scale import Scale
from tocsin_detectors.series import Series
from tocsin_detectors.texts import translate

LINEAR = Scale("linear")
SHARE = Scale("logit")
SYMLOG = Scale("symlog", 0.01)
STATE_BOUND = 4096  # characters of JSON


class Bench:
    """One algorithm on one series, driven as the engine drives it."""

    def __init__(self, test: Test, scale: Scale) -> None:
        self.test = test
        self.series = Series(scale)
        self.algorithm = test.start()
        self.row = 0

    def feed(self, value: float, *, pretraining: bool = False) -> Reading:
        x = self.series.scale.transform(value)
        reading = self.algorithm.update(Point(self.row, self.row, value, x, pretraining), self.series)
        self.series.push(self.row, value, x)
        self.row += 1
        return reading

    def state(self) -> str:
        """The algorithm's state; fails if it isn't strict JSON."""
        return json.dumps(self.algorithm.snapshot(), allow_nan=False)

    def reborn(self) -> "Bench":
        """A bench that knows only the snapshots of this one."""
        other = Bench(self.test, self.series.scale)
        other.algorithm.restore(json.loads(self.state()))
        other.series.restore(json.loads(json.dumps(self.series.snapshot(), allow_nan=False)))
        other.row = self.row
        return other


@dataclass(frozen=True)
class Case:
    """Where an algorithm has to fire.

    Attributes:
        stream: its last values are abnormal, and ``at`` is the index of the first value that gives a sign.
        pretraining: so many values at the start come while only the critic trains.
    """

    test: Test
    scale: Scale
    stream: tuple[float, ...]
    at: int
    pretraining: int = 0

    def play(self, bench: Bench | None = None) -> list[Reading]:
        bench = bench or Bench(self.test, self.scale)
        return [
            bench.feed(value, pretraining=index < self.pretraining)
            for index, value in enumerate(self.stream)
            if index >= bench.row
        ]


@dataclass(frozen=True)
class Entry:
    """An algorithm's registration.

    Attributes:
        cases: streams on which it must fire, in every direction that it has.
        quiet: a test with useful parameters, that must stay quiet on noise around 1.
        invalid: parameters that must be refused.
    """

    cases: tuple[Case, ...]
    quiet: tuple[Test, ...]
    invalid: tuple[dict[str, Any], ...]


def wobble(level: float, count: int, share: float = 0.05) -> tuple[float, ...]:
    """A steady series: the level, a little above and a little below by turns."""
    return tuple(level * (1 + share * (index % 3 - 1)) for index in range(count))


def ramp(start: float, end: float, count: int) -> tuple[float, ...]:
    return tuple(start + (end - start) * index / (count - 1) for index in range(count))


def growth(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor ** (index / (count - 1)) for index in range(count))


CONVERGED = (*growth(9, 0.1, 20), *wobble(0.9, 20))
SPIKY = (*wobble(1, 20), *(value for _ in range(4) for value in (*wobble(1, 5), 9)), *wobble(1, 5))

REGISTRY: dict[type[Test], Entry] = {
    Bound: Entry(
        cases=(
            Case(Bound(above=2), LINEAR, (1, 2, 2.1, 3), at=2),
            Case(Bound(below=0.01), SYMLOG, (1, 0.5, 0.01, 0.001), at=3),
            Case(Bound(beyond=1e-3), LINEAR, (0, 1e-3, -5e-4, -2e-3), at=3),
            Case(Bound(above=0.5, skip=3), SHARE, (0.9, 0.9, 0.9, 0.9), at=3),
        ),
        quiet=(Bound(above=10), Bound(below=-10), Bound(beyond=20)),
        invalid=({}, {"above": 1.0, "below": 0.0}, {"above": 1.0, "below": 0.0, "beyond": 1.0}),
    ),
    LevelShift: Entry(
        cases=(
            Case(LevelShift("up", ratio=2.5), SYMLOG, (*wobble(1, 20), 3, 3, 3), at=20),
            Case(LevelShift("down", ratio=2.5), SYMLOG, (*wobble(1, 20), 0.2, 0.2), at=20),
            Case(LevelShift("both", ratio=2.5), SYMLOG, (*wobble(1, 20), 0.2, 0.2), at=20),
            Case(LevelShift("both", relative=0.35), LINEAR, (*wobble(-1, 20), 1, 1), at=20),
            Case(LevelShift("up", absolute=0.2), SHARE, (*wobble(0.05, 20), 0.6, 0.6), at=20),
            Case(LevelShift("up", ratio=2.5, smooth=5), SYMLOG, (*wobble(1, 20), 9, 9, 9, 9), at=22),
            Case(LevelShift("up", ratio=2.5, local=8), SYMLOG, (*wobble(1, 20), 3, 3, 3), at=20),
        ),
        quiet=(
            LevelShift("both", z=5, ratio=2.5, relative=0.5),
            LevelShift("both", z=3, ratio=1.6, relative=0.5, smooth=5, local=16, min_rows=12),
        ),
        invalid=(
            {"z": 0.0},
            {"ratio": 1.0},
            {"relative": 0.0},
            {"absolute": -0.1},
            {"min_rows": 1},
            {"smooth": 0},
            {"smooth": 4},
            {"smooth": 17},
            {"local": -1},
            {"local": 17},
        ),
    ),
    Drawdown: Entry(
        cases=(
            Case(Drawdown(share=0.5, z=3, smooth=3, min_rows=8), LINEAR, (*ramp(0, 1, 21), *ramp(1, 0, 21)), at=32),
            Case(Drawdown(share=0.5, z=3, smooth=3, min_rows=8), LINEAR, (*wobble(-1, 30), -2, -2, -2), at=31),
        ),
        quiet=(Drawdown(share=0.6, z=3, smooth=15, min_rows=30),),
        invalid=({"share": 0.0}, {"z": -1.0}, {"smooth": 1}, {"smooth": 17}, {"smooth": 4}),
    ),
    Trend: Entry(
        cases=(
            Case(Trend("up", ratio=3, block=3, blocks=8, skip=3), SYMLOG, growth(1, 30, 45), at=26),
            Case(Trend("down", ratio=3, block=3, blocks=8, skip=3), SYMLOG, growth(30, 1 / 30, 45), at=26),
            Case(Trend("up", relative=0.5, block=3, blocks=8, skip=3), LINEAR, ramp(1, 9, 45), at=26),
            Case(Trend("up", ratio=3, block=3, blocks=8, skip=3, magnitude=True), SYMLOG, growth(-1, 30, 45), at=26),
        ),
        quiet=(Trend("up", z=3.3, ratio=3.0), Trend("down", z=3.3, ratio=3.0, relative=0.8)),
        invalid=({"z": 0.0}, {"ratio": 1.0}, {"block": 2}, {"blocks": 5}, {"blocks": 41}, {"z": 4.0, "blocks": 10}),
    ),
    Plateau: Entry(
        cases=(
            Case(Plateau(ratio=1.5), SYMLOG, (*CONVERGED, *wobble(2, 6)), at=44, pretraining=40),
            Case(Plateau(ratio=1.5, settle=10), SYMLOG, (*CONVERGED, *wobble(4, 6)), at=42),
        ),
        quiet=(Plateau(ratio=1.5),),
        invalid=({"ratio": 1.0}, {"z": 0.0}, {"smooth": 1}, {"smooth": 17}, {"smooth": 4}),
    ),
    FromStart: Entry(
        cases=(
            Case(FromStart(ratio=0.1, early=5, smooth=3), LINEAR, (*wobble(1, 9), 0.05, 0.05, 0.05), at=10),
            Case(FromStart(ratio=4, early=5, smooth=3, skip=2), SYMLOG, (9, 9, *wobble(1, 9), 5, 5, 5), at=12),
        ),
        quiet=(FromStart(ratio=0.1), FromStart(ratio=5)),
        invalid=({"ratio": 0.0}, {"ratio": 1.0}, {"early": 2}, {"smooth": 2}, {"smooth": 16}, {"skip": -1}),
    ),
    RepeatedSpikes: Entry(
        cases=(
            Case(RepeatedSpikes(count=3, rows=32, z=8, ratio=5), SYMLOG, SPIKY, at=37),
            Case(RepeatedSpikes(count=3, rows=32, z=8, absolute=2), LINEAR, SPIKY, at=37),
        ),
        quiet=(RepeatedSpikes(count=4, rows=64, z=8, ratio=5, absolute=2),),
        invalid=({"count": 1}, {"rows": 7}, {"rows": 129}, {"z": 0.0}, {"ratio": 1.0}, {"absolute": 0.0}),
    ),
    RankShift: Entry(
        cases=(
            Case(RankShift("down", later=8, earlier=24), LINEAR, (*wobble(1, 32), *wobble(0.5, 12)), at=39),
            Case(RankShift("up", later=8, earlier=24), SYMLOG, (*wobble(1, 32), *wobble(9, 12)), at=39),
        ),
        quiet=(RankShift("down"), RankShift("up")),
        invalid=({"z": 0.0}, {"relative": 0.0}, {"later": 4}, {"later": 41}, {"earlier": 19}, {"earlier": 121}),
    ),
    Frozen: Entry(
        cases=(
            Case(Frozen(rows=5), LINEAR, (1, 2, 3, 3, 3, 3, 3, 3), at=6),
            Case(Frozen(rows=3, at=0.0), SYMLOG, (4, 4, 4, 4, 0, 0, 0), at=6),
        ),
        quiet=(Frozen(rows=2),),
        invalid=({"rows": 1}, {"at": math.inf}, {"at": math.nan}),
    ),
}

CASES = [
    pytest.param(case, id=f"{kind.__name__}-{number}")
    for kind, entry in REGISTRY.items()
    for number, case in enumerate(entry.cases)
]
KINDS = [pytest.param(kind, id=kind.__name__) for kind in REGISTRY]

number = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-2, 2),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, 1e-12, 1e12, 1.7e308, -1.7e308]),
)
# Runs of equal values, so that baselines form, shifts last and series are constant.
streams = st.lists(st.tuples(number, st.integers(1, 25)), min_size=1, max_size=12).map(
    lambda runs: [value for value, length in runs for _ in range(length)]
)
scales = st.one_of(
    st.just(LINEAR),
    st.just(SHARE),
    st.sampled_from([1e-12, 1e-5, 0.01, 1.0]).map(lambda linear: Scale("symlog", linear)),
)
# Every registered test, those of the cases and the quiet ones.
tests = st.sampled_from(
    [test for entry in REGISTRY.values() for test in (*(case.test for case in entry.cases), *entry.quiet)]
)


def test_every_exported_algorithm_is_registered():
    exported = {
        thing
        for thing in map(algorithms.__dict__.get, algorithms.__all__)
        if inspect.isclass(thing) and issubclass(thing, Test) and thing is not Test
    }
    assert exported == set(REGISTRY), "register each algorithm with the streams on which it must fire"


@pytest.mark.parametrize("case", CASES)
def test_fires_at_the_expected_value_and_not_before(case: Case):
    signs = [index for index, reading in enumerate(case.play()) if reading.sign]
    assert signs, "it never fires"
    assert signs[0] == case.at


@pytest.mark.parametrize("case", CASES)
def test_a_sign_carries_its_evidence(case: Case):
    for index, reading in enumerate(case.play()):
        assert not (reading.sign and reading.clear)
        if not reading.sign:
            assert not reading.severe
            continue
        assert translate(str(reading.detail), "zh") != str(reading.detail)
        assert reading.limit is None or math.isfinite(reading.limit)
        assert reading.limit is not None or reading.baseline is not None
        assert reading.window is not None
        assert reading.window >= 1
        assert reading.onset is None or 0 <= reading.onset <= index


@pytest.mark.parametrize("case", CASES)
def test_restored_at_any_value_equals_uninterrupted(case: Case):
    whole = case.play()
    bench = Bench(case.test, case.scale)
    for index, expected in enumerate(whole):
        assert case.play(bench.reborn()) == whole[index:]
        assert bench.feed(case.stream[index], pretraining=index < case.pretraining) == expected


@given(test=tests, scale=scales, stream=streams, data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_finite_stream_is_judged_alike_after_a_restore(test: Test, scale: Scale, stream: list[float], data: Any):
    cut = data.draw(st.integers(0, len(stream)))
    pretraining = data.draw(st.integers(0, len(stream)))
    steady, interrupted = Bench(test, scale), Bench(test, scale)
    for index, value in enumerate(stream):
        if index >= cut and (index - cut) % 7 == 0:
            interrupted = interrupted.reborn()
        expected = steady.feed(value, pretraining=index < pretraining)
        assert repr(interrupted.feed(value, pretraining=index < pretraining)) == repr(expected)
        assert interrupted.state() == steady.state()


@given(test=tests, scale=scales, stream=streams)
@settings(max_examples=100, deadline=None)
def test_release_resume_and_restart_are_defined_at_any_value(test: Test, scale: Scale, stream: list[float]):
    bench, fresh = Bench(test, scale), Bench(test, scale)
    for index, value in enumerate(stream):
        bench.feed(value)
        let_go = bench.algorithm.release if index % 5 else bench.algorithm.resume
        if index % 4 == 0:
            let_go()
            once = bench.state()
            let_go()
            assert bench.state() == once, "letting go twice is letting go once"
    bench.algorithm.restart()
    bench.series = Series(scale)
    bench.row = 0
    assert bench.state() == fresh.state()
    assert [bench.feed(value) for value in stream] == [fresh.feed(value) for value in stream]


@given(scale=st.sampled_from([LINEAR, SHARE, SYMLOG]), stream=streams)
@settings(max_examples=100, deadline=None)
def test_up_and_down_are_mirror_images(scale: Scale, stream: list[float]):
    pairs: list[tuple[Test, Test]] = [
        (LevelShift("up", absolute=0.1), LevelShift("down", absolute=0.1)),
        (LevelShift("both"), LevelShift("both")),
        (Trend("up", block=3, blocks=8), Trend("down", block=3, blocks=8)),
        (Bound(above=0.5, severe=1.5), Bound(below=-0.5, severe=-1.5)),
        (Bound(beyond=0.5), Bound(beyond=0.5)),
    ]
    for upward, downward in pairs:
        up, down = Bench(upward, scale), Bench(downward, scale)
        for value in stream:
            here, there = up.feed(value), down.feed(-value)
            assert (here.sign, here.clear, here.severe) == (there.sign, there.clear, there.severe)


def white(rng: random.Random) -> Iterator[float]:
    while True:
        yield 1 + 0.1 * rng.gauss(0, 1)


def autoregressive(rng: random.Random) -> Iterator[float]:
    state = 0.0
    while True:
        state = 0.6 * state + math.sqrt(1 - 0.36) * rng.gauss(0, 1)
        yield 1 + 0.1 * state


def heavy_tailed(rng: random.Random) -> Iterator[float]:
    while True:
        chi = sum(rng.gauss(0, 1) ** 2 for _ in range(3))
        yield max(1 + 0.1 * rng.gauss(0, 1) / math.sqrt(chi / 3), 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [white, autoregressive, heavy_tailed])
def test_stays_quiet_on_noise(kind: type[Test], noise: Any):
    for test in REGISTRY[kind].quiet:
        for seed in range(20):
            bench = Bench(test, SYMLOG if seed % 2 else LINEAR)
            values = noise(random.Random(seed))  # noqa: S311 - noise that has to be the same every time
            signs = [bench.feed(next(values)).sign for _ in range(1000)]
            alarms = [row for row in range(2, 1000) if sum(signs[row - 2 : row + 1]) >= 2]
            assert not alarms, f"{test} made an alarm of noise, seed {seed}, at {alarms[0]}"


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_bounded(kind: type[Test]):
    entry = REGISTRY[kind]
    for test in (*(case.test for case in entry.cases), *entry.quiet):
        bench = Bench(test, SYMLOG)
        rng = random.Random(7)  # noqa: S311 - noise that has to be the same every time
        sizes = []
        for row in range(5000):
            bench.feed(math.exp(rng.gauss(row / 500, 0.5)), pretraining=row < 2000)
            if row % 100 == 99:
                sizes.append(len(bench.state()))
        assert max(sizes) <= STATE_BOUND


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        pytest.param(kind, wrong, id=f"{kind.__name__}-{wrong}")
        for kind, entry in REGISTRY.items()
        for wrong in entry.invalid
    ],
)
def test_senseless_parameters_are_refused(kind: type[Test], parameters: dict[str, Any]):
    with pytest.raises(ValueError, match=kind.__name__):
        kind(**parameters)
