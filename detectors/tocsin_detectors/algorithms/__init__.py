"""The online tests: one file each, all alike. They know numbers and no RL."""

from tocsin_detectors.algorithms.base import QUIET, UNDECIDED, Algorithm, Direction, Point, Reading, Test
from tocsin_detectors.algorithms.bound import Bound
from tocsin_detectors.algorithms.drawdown import Drawdown
from tocsin_detectors.algorithms.from_start import FromStart
from tocsin_detectors.algorithms.frozen import Frozen
from tocsin_detectors.algorithms.level_shift import LevelShift
from tocsin_detectors.algorithms.plateau import Plateau
from tocsin_detectors.algorithms.rank_shift import RankShift
from tocsin_detectors.algorithms.repeated_spikes import RepeatedSpikes
from tocsin_detectors.algorithms.trend import Trend

__all__ = [
    "QUIET",
    "UNDECIDED",
    "Algorithm",
    "Bound",
    "Direction",
    "Drawdown",
    "FromStart",
    "Frozen",
    "LevelShift",
    "Plateau",
    "Point",
    "RankShift",
    "Reading",
    "RepeatedSpikes",
    "Test",
    "Trend",
]
