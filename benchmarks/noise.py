"""What each test says of pure noise, and how late it is: false alarms and delay, as rules use it and with its defaults.

    python benchmarks/noise.py [--noise 0.1] [--series 20] [--length 600] [--details]

A series of a usual level (100 times where its logarithmic scale begins; 0.5; a share of 0.2 or 0.8) carries noise of a
tenth of the level: white, AR(1) with 0.6, or Student-t with 3 degrees of freedom, all of the same variance. An alarm is
what would fire as an alert: the rule's number of signs, with its recovery between alarms. Then the level changes, by
one and a half times the larger of the least effect that the test asks for and the noise that it wants to see exceeded:
at once; over its blocks for a trend; as a spike at every eighth value for repeated spikes; a frozen metric stands
still.
A bound's level is three standard deviations inside its limit, and moves to as many outside.
"""

from __future__ import annotations

import argparse
import math
import statistics
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.signal import lfilter

from tocsin_detectors.algorithms import (
    Bound,
    Drawdown,
    FromStart,
    Frozen,
    LevelShift,
    Plateau,
    Point,
    RankShift,
    RepeatedSpikes,
    Test,
    Trend,
)
from tocsin_detectors.catalogue import Catalogue
from tocsin_detectors.rules import Guarded, Rule, shipped_rules
from tocsin_detectors.scale import Scale
from tocsin_detectors.series import Series
from tocsin_detectors.watch import Watch

NOISES = ("white", "AR(1) 0.6", "t(3)")
HEALTHY = 150  # values before the change
PATIENCE = 120  # values after it, and after a trend's or critic's own time
DEFAULTS: tuple[Test, ...] = (
    Bound(above=1.0), Drawdown(), FromStart(), Frozen(), LevelShift(), Plateau(), RankShift(), RepeatedSpikes(),
    Trend(),
)  # fmt: skip

Change = Callable[[float, int], float]


@dataclass(frozen=True)
class Use:
    """One way in which a test is used."""

    rule: Rule
    test: Test
    scale: Scale

    @property
    def label(self) -> str:
        return type(self.test).__name__


@dataclass
class Measured:
    """Per kind of noise: values seen, alarms among them, delays of the alarms after the change, changes missed."""

    values: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NOISES, 0))
    alarms: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NOISES, 0))
    delays: dict[str, list[int]] = field(default_factory=lambda: {noise: [] for noise in NOISES})
    missed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NOISES, 0))

    def add(self, other: Measured) -> None:
        for noise in NOISES:
            self.values[noise] += other.values[noise]
            self.alarms[noise] += other.alarms[noise]
            self.delays[noise] += other.delays[noise]
            self.missed[noise] += other.missed[noise]

    def row(self) -> str:
        cells = []
        for noise in NOISES:
            alarms, values = self.alarms[noise], self.values[noise]
            between = f"{values / alarms:.0f}" if alarms else f">{values}"
            delay = f"{statistics.median(self.delays[noise]):.0f}" if self.delays[noise] else "-"
            cells.append(f"{alarms:8d}{between:>9s}{delay:>6s}{self.missed[noise]:5d}")
        return "".join(cells)


def uses() -> Iterator[Use]:
    """Every test of every shipped rule alone, then the classes' defaults."""
    catalogue = Catalogue()
    for rule in shipped_rules():
        metric = catalogue.resolve(rule.metrics[0].replace("{source}", "x").replace("{function}", "x")).metric
        scale = rule.scale or (metric.scale if metric is not None else Scale())
        for entry in rule.tests:
            test = entry.test if isinstance(entry, Guarded) else entry
            yield Use(replace(rule, tests=(test,)), test, scale)
    some = next(iter(shipped_rules()))
    for test in DEFAULTS:
        scale = Scale() if isinstance(test, (Drawdown, Bound, RankShift)) else Scale("symlog", 1e-3)
        yield Use(replace(some, name="(defaults)", tests=(test,), signs=2, among=3), test, scale)


def noise_of(kind: str, rng: np.random.Generator, length: int) -> np.ndarray:
    """Noise of variance 1."""
    if kind == "white":
        return rng.standard_normal(length)
    if kind == "t(3)":
        return rng.standard_t(3, length) / math.sqrt(3)
    shocks = rng.standard_normal(length + 50) * math.sqrt(1 - 0.6**2)
    return np.asarray(lfilter([1.0], [1.0, -0.6], shocks))[50:]


def level_of(use: Use, noise: float) -> float:
    if isinstance(use.test, Bound):
        limit, inside = limit_of(use.test), 3 * noise
        return limit - (inside if use.test.below is None else -inside) * (abs(limit) or 1.0)
    if use.scale.kind == "symlog":
        return 100 * use.scale.linear
    if use.scale.kind == "logit":
        return 0.8 if getattr(use.test, "direction", "up") == "down" else 0.2
    return 0.5


def limit_of(bound: Bound) -> float:
    return next(limit for limit in (bound.above, bound.below, bound.beyond) if limit is not None)


def values_of(use: Use, level: float, noise: np.ndarray) -> list[float]:
    """The level with noise (relative to it), as the metric's range allows."""
    if isinstance(use.test, Bound):
        return [float(level + (abs(limit_of(use.test)) or 1.0) * x) for x in noise]
    if use.scale.kind == "symlog":
        return [float(level * math.exp(x)) for x in noise]
    values = level * (1 + noise)
    return [float(value) for value in (np.clip(values, 0, 1) if use.scale.kind == "logit" else values)]


def change_of(use: Use, level: float, noise: float) -> tuple[Change, int]:
    """How values change with the rows since the change began, and how many rows a test is given to see it."""
    test, scale = use.test, use.scale
    sign = -1 if getattr(test, "direction", "up") == "down" or isinstance(test, (Drawdown,)) else 1
    unit = noise * (1.0 if scale.kind == "symlog" else abs(level))  # the noise in the unit of the scale
    ramp = 1
    match test:
        case Frozen():
            still = level if test.at is None else test.at
            return (lambda _value, _row: still), test.rows + 10
        case Bound():
            move = 6 * noise * (abs(limit_of(test)) or 1.0) * (1 if test.below is None else -1)
            return (lambda value, _row: value + move), PATIENCE
        case LevelShift() if scale.kind == "symlog":
            effect = max(math.log(test.ratio), math.log1p(test.absolute / level), test.z * unit)
        case LevelShift():
            relative = 0.0 if scale.kind == "logit" and test.absolute else test.relative
            effect = max(relative * (1.0 if scale.kind == "logit" else level), test.absolute, test.z * unit)
        case Trend():
            # On a linear scale it asks for a part of the largest level, which is the last one.
            part = test.relative / max(1 - test.relative, 0.25)
            effect = math.log(test.ratio) if scale.kind == "symlog" else part * level
            ramp = test.block * test.blocks
        case RepeatedSpikes():
            effect = max(math.log(test.ratio) if scale.kind == "symlog" else test.absolute, test.z * unit)
        case Plateau():
            effect = max(2 * math.log(test.ratio), test.z * unit)
        case FromStart():
            effect, sign = abs(math.log(test.ratio)), 1 if test.ratio > 1 else -1
        case Drawdown():
            effect = max(test.share * scale.transform(level), test.z * unit)
        case RankShift():
            effect = max(test.relative * abs(scale.transform(level)), unit)
        case _:
            raise AssertionError(f"no change known for {test}")
    size = 1.5 * sign * effect
    every = 8 if isinstance(test, RepeatedSpikes) else 1
    return partial(shift, scale=scale, size=size, ramp=ramp, every=every), PATIENCE + ramp


def shift(value: float, row: int, *, scale: Scale, size: float, ramp: int, every: int) -> float:
    if row % every:
        return value
    part = size * min(1.0, (row + 1) / ramp)
    if scale.kind == "symlog":
        return value * math.exp(part)
    return min(max(value + part, 0.0), 1.0) if scale.kind == "logit" else value + part


def alarms_of(use: Use, values: list[float], limit: int | None = None) -> list[int]:
    """The rows at which the rule's alert would fire; with ``limit`` only the first from that row on."""
    series, watch, fired = Series(use.scale), Watch(use.rule), []
    for row, value in enumerate(values):
        point = Point(row, row, value, use.scale.transform(value))
        reading = watch.judge(point, series, lambda _condition: True)
        transition = watch.advance(reading, row) if reading.sign or watch.active else None
        if transition == "fired":
            fired.append(row)
            if limit is not None and row >= limit:
                break
        elif transition == "resolved":
            watch.release()
        series.push(row, value, point.x)
    return fired


def measure(use: Use, *, noise: float, series: int, length: int) -> Measured:
    measured = Measured()
    level = level_of(use, noise)
    change, patience = change_of(use, level, noise)
    for kind in NOISES:
        rng = np.random.default_rng(zlib.crc32(f"{use.rule.name} {use.test} {kind}".encode()))
        for _ in range(series):
            quiet = values_of(use, level, noise * noise_of(kind, rng, length))
            measured.values[kind] += length
            measured.alarms[kind] += len(alarms_of(use, quiet))
        for _ in range(series):
            values = values_of(use, level, noise * noise_of(kind, rng, HEALTHY + patience))
            values[HEALTHY:] = [change(value, row) for row, value in enumerate(values[HEALTHY:])]
            late = [row - HEALTHY for row in alarms_of(use, values, HEALTHY) if row >= HEALTHY]
            measured.delays[kind] += late[:1]
            measured.missed[kind] += not late
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.1, help="standard deviation as a part of the level")
    parser.add_argument("--series", type=int, default=60, help="series for each use and kind of noise")
    parser.add_argument("--length", type=int, default=600, help="values of a quiet series")
    parser.add_argument("--details", action="store_true", help="every use, not only sums by algorithm")
    arguments = parser.parse_args()
    settings = {"noise": arguments.noise, "series": arguments.series, "length": arguments.length}
    sums: dict[tuple[str, str], Measured] = {}
    counts: dict[tuple[str, str], int] = {}
    print(f"noise of {arguments.noise} of the level; alarms, one in how many values, median delay, changes missed")
    print(" " * 46 + "".join(f"{noise:>28s}" for noise in NOISES))
    print(" " * 46 + f"{'alarms':>8s}{'one in':>9s}{'delay':>6s}{'miss':>5s}" * len(NOISES))
    for use in uses():
        key = (use.label, "defaults" if use.rule.name == "(defaults)" else "as rules use it")
        if isinstance(use.test, Bound) and use.test.until is not None:
            continue  # it speaks of the first rows only
        measured = measure(use, **settings)
        sums.setdefault(key, Measured()).add(measured)
        counts[key] = counts.get(key, 0) + 1
        if arguments.details:
            print(f"{use.label:16s}{use.rule.name:30s}{measured.row()}")
    for key, measured in sorted(sums.items()):
        print(f"{key[0]:16s}{key[1]:16s}{counts[key]:5d} sets    {measured.row()}")


if __name__ == "__main__":
    main()
