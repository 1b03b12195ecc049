"""How much of a text repeats itself.

    repetition = 1 - distinct n-grams / n-grams,  n = 16 characters

0 for a text in which no sixteen characters occur twice, near 1 for one that goes round in circles, whatever its
language: Chinese has no spaces to count words by. Prose stays below 0.1, code and tables are higher, a loop of a few
words comes above 0.9. A text shorter than two n-grams has 0.

The n-grams are told apart by a 64-bit polynomial hash, built by doubling in four passes over the text; of a text beyond
2^17 characters its beginning and its end are looked at, so the time of one text is bounded and that of many is linear.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tocsin_detectors.rollouts.columns import Floats

__all__ = ["GRAM", "repetition"]

GRAM = 16
LONGEST = 2**17
BASE = 0x9E3779B97F4A7C15  # odd, its bits well mixed


def repetition(texts: Sequence[str]) -> Floats:
    """``[N]``: the share of each text that repeats itself, 0 to 1."""
    return np.array([_of(text) for text in texts], dtype=np.float64)


def _of(text: str) -> float:
    if len(text) > LONGEST:
        text = text[: LONGEST // 2] + text[-LONGEST // 2 :]
    grams = len(text) - GRAM + 1
    if grams < 2:
        return 0.0
    hashes = _hashes(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64))
    hashes.sort()
    distinct = 1 + int(np.count_nonzero(hashes[1:] != hashes[:-1]))
    return 1.0 - distinct / grams


def _hashes(points: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A number for each n-gram: of twice the length from two of half the length, modulo 2^64."""
    power = BASE
    for width in (1, 2, 4, 8):
        points = points[:-width] * np.uint64(power) + points[width:]
        # What is added next is as often multiplied as the first half will be, so equal grams have equal numbers.
        power = power * power % 2**64
    return points
