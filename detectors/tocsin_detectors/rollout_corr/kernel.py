"""The inner loop of the core as machine code for CPUs: the columns of ``block.Seen``, without padding or copies.

A row is taken in pieces that fit the first-level cache, each by short loops that a compiler turns into vector code.
Sums of a piece are float32, of pieces float64. A piece with a log-ratio beyond the clamp or not finite, which its sum
and extremes tell, is taken by slower loops that keep to the letter what NaN and infinities have to do.

The one exponential is our own: with x = n ln 2 + r, |r| <= ln 2 / 2, expm1(x) = 2^n p(r) + (2^n - 1), where p is the
Taylor polynomial of expm1 of degree 7; exact to about 1e-7 of the value, also near 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["COLUMNS", "OPTION_COLUMNS", "PIECE", "scan_mask", "see_rows"]

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Bytes: TypeAlias = NDArray[np.uint8]
Integers: TypeAlias = NDArray[np.int64]

PIECE = 1024  # tokens
CLAMP = np.float32(20.0)
COLUMNS = (
    "old", "d", "hi", "lo", "k3_free", "c2", "e2", "rollout", "e", "k3", "c1", "saturated", "nan", "bad_old",
    "bad_rollout", "a1", "a2", "high", "low", "inside", "a_hi", "a_lo", "kept_all",
)  # fmt: skip
OPTION_COLUMNS = ("b1", "b2", "kept", "high", "low", "s", "s_hi", "s_lo")
(
    OLD, D, HI, LO, K3_FREE, C2, E2, ROLLOUT, E, K3, C1, SATURATED, NAN, BAD_OLD, BAD_ROLLOUT, A1, A2, HIGH, LOW,
    INSIDE, A_HI, A_LO, KEPT_ALL,
) = range(len(COLUMNS))  # fmt: skip
K1, K2 = 1, 2

# Compilers may reorder sums (that makes vectors of them), and nothing else: NaN and infinities keep their meaning.
_SUM = {"reassoc", "nsz", "contract"}
_FINITE = {"reassoc", "nsz", "contract", "nnan"}


def _compiled(**flags: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """To machine code at the first call; kept on disk for the next process where there is a place for it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        always = {"nogil": True, "error_model": "numpy", **flags}
        try:
            fast: Callable[..., Any] = numba.njit(cache=True, **always)(function)
        except RuntimeError:  # no directory that can be written
            fast = numba.njit(**always)(function)
        return fast

    return decorate


@_compiled(fastmath=_SUM)
def _subtract(old: Floats, rollout: Floats, d: Floats) -> tuple[np.float32, np.float32]:
    """D = old - rollout; the sums of old and of d."""
    total, difference = np.float32(0), np.float32(0)
    for j in range(old.shape[0]):
        x = old[j] - rollout[j]
        d[j] = x
        total += old[j]
        difference += x
    return total, difference


@_compiled(fastmath=_FINITE)
def _extremes(values: Floats) -> tuple[float, float]:
    """Maximum and minimum of values none of which is NaN."""
    most, least = values[0], values[0]
    for j in range(values.shape[0]):
        most = max(most, values[j])
        least = min(least, values[j])
    return most, least


@_compiled()
def _extremes_with_nan(values: Floats) -> tuple[float, float]:
    most, least = values[0], values[0]
    for j in range(values.shape[0]):
        most, least = _more(most, values[j]), _less(least, values[j])
    return most, least


@_compiled()
def _more(most: float, value: float) -> float:
    """The larger one; NaN if one is."""
    return value if most == most and not value <= most else most  # noqa: PLR0124 - NaN


@_compiled()
def _less(least: float, value: float) -> float:
    return value if least == least and not value >= least else least  # noqa: PLR0124 - NaN


@_compiled(fastmath={"contract"})
def _expm1(d: Floats, k: Floats, scratch: Floats, bits: NDArray[np.int32]) -> None:
    """K = expm1(d) for d within the clamp. ``bits`` are the integers in the memory of ``scratch``."""
    shift = np.float32(12582912.0 + 127.0)  # 1.5 * 2^23, where floats count in ones, and the exponent's bias
    for j in range(d.shape[0]):
        scratch[j] = d[j] * np.float32(1.4426950408889634) + shift
    for j in range(d.shape[0]):
        n = scratch[j] - shift
        r = d[j] - n * np.float32(0.693145751953125) - n * np.float32(1.428606765330187e-06)
        p = np.float32(1 / 720) + r * np.float32(1 / 5040)
        p = np.float32(1 / 120) + r * p
        p = np.float32(1 / 24) + r * p
        p = np.float32(1 / 6) + r * p
        p = np.float32(0.5) + r * p
        k[j] = r + r * r * p
    for j in range(d.shape[0]):
        bits[j] = bits[j] << 23
    for j in range(d.shape[0]):
        k[j] = scratch[j] * k[j] + (scratch[j] - np.float32(1))


@_compiled(fastmath=_SUM)
def _moments(d: Floats, k: Floats) -> tuple[np.float32, np.float32, np.float32]:
    """Sums of k - d, of k² and of d²."""
    gap, squares, d_squares = np.float32(0), np.float32(0), np.float32(0)
    for j in range(d.shape[0]):
        gap += k[j] - d[j]
        squares += k[j] * k[j]
        d_squares += d[j] * d[j]
    return gap, squares, d_squares


@_compiled()
def _see_plain(row: Doubles, total: float, difference: float, d: Floats, k: Floats) -> None:
    gap, squares, d_squares = _moments(d, k)
    row[OLD] += total
    row[D] += difference
    row[E] += difference
    row[ROLLOUT] += np.float64(total) - np.float64(difference)
    row[K3_FREE] += gap
    row[K3] += gap
    row[C1] += np.float64(gap) + np.float64(difference)
    row[C2] += squares
    row[E2] += d_squares


@_compiled()
def _see_wide(row: Doubles, old: Floats, rollout: Floats, d: Floats, k: Floats) -> None:
    """Like ``_see_plain`` for any values; leaves log-ratios within the clamp in d, and their expm1 in k."""
    least, most = np.float32(math.expm1(-CLAMP)), np.float32(math.expm1(CLAMP))
    for j in range(d.shape[0]):
        x = d[j]
        free = np.float32(math.expm1(x))
        row[OLD] += old[j]
        row[ROLLOUT] += rollout[j]
        row[D] += x
        row[K3_FREE] += free - x
        row[SATURATED] += abs(x) > CLAMP
        row[NAN] += math.isnan(x)
        row[BAD_OLD] += not math.isfinite(old[j])
        row[BAD_ROLLOUT] += not math.isfinite(rollout[j])
        e = CLAMP if x > CLAMP else max(x, -CLAMP)
        w = most if free > most else max(free, least)
        d[j], k[j] = e, w
        row[E] += e
        row[K3] += w - e
        row[C1] += w
        row[C2] += np.float64(w) * np.float64(w)
        row[E2] += np.float64(e) * np.float64(e)


@_compiled(fastmath=_SUM)
def _truncate(k: Floats, a: Floats, lower: float, upper: float) -> tuple[int, int]:
    """Weights less 1, at most ``upper``, in a; how many were above ``upper``, and below ``lower``."""
    high, low = 0, 0
    for j in range(k.shape[0]):
        a[j] = min(k[j], upper)
        high += k[j] > upper
        low += k[j] < lower
    return high, low


@_compiled(fastmath=_SUM)
def _cut_out(k: Floats, a: Floats, lower: float, upper: float) -> tuple[int, int, int]:
    """Weights less 1 in a, those outside of the bounds as -1; how many were above, below and inside."""
    high, low, inside = 0, 0, 0
    for j in range(k.shape[0]):
        within = (k[j] >= lower) & (k[j] <= upper)
        a[j] = k[j] if within else np.float32(-1)
        high += k[j] > upper
        low += k[j] < lower
        inside += within
    return high, low, inside


@_compiled(fastmath=_SUM)
def _spread(values: Floats) -> tuple[np.float32, np.float32]:
    """Sums of the values less the first, and of the squares of that: exact where all are equal."""
    first = values[0]
    total, squares = np.float32(0), np.float32(0)
    for j in range(values.shape[0]):
        x = values[j] - first
        total += x
        squares += x * x
    return total, squares


@_compiled()
def _add_spread(row: Doubles, column: int, values: Floats) -> None:
    """Add to two columns the sums of the values and of their squares."""
    total, squares = _spread(values)
    first, n = np.float64(values[0]), values.shape[0]
    row[column] += total + n * first
    row[column + 1] += squares + 2 * first * total + n * first * first


@_compiled()
def _see_weights(row: Doubles, k: Floats, a: Floats, bounds: Floats, icepop: bool, wide: bool) -> None:
    lower, upper = bounds[0], bounds[1]
    if icepop:
        high, low, inside = _cut_out(k, a, lower, upper)
        row[INSIDE] += inside
        most, least = _extremes_with_nan(a) if wide else _extremes(a)
        row[A_HI], row[A_LO] = _more(row[A_HI], most), _less(row[A_LO], least)
    else:
        high, low = _truncate(k, a, lower, upper)
        if math.isnan(upper):
            a[:] = upper
    _add_spread(row, A1, a)
    row[HIGH] += high
    row[LOW] += low


@_compiled(fastmath={"contract"})
def _statistic(d: Floats, k: Floats, s: Floats, estimator: int) -> None:
    if estimator == K1:
        np.negative(d, s)
    elif estimator == K2:
        for j in range(d.shape[0]):
            s[j] = np.float32(0.5) * d[j] * d[j]
    else:
        np.subtract(k, d, s)


@_compiled(fastmath=_SUM)
def _judge(s: Floats, bounded: Floats, together: Bytes, lower: float, upper: float) -> tuple[np.float32, int, int, int]:
    """The statistic within the bounds; its sum as it is; how many are kept, above and below. ``together`` is and-ed."""
    total, kept, high, low = np.float32(0), 0, 0, 0
    for j in range(s.shape[0]):
        x = s[j]
        above, below = x > upper, x < lower
        bounded[j] = upper if above else lower if below else x
        inside = (x >= lower) & (x <= upper)
        together[j] &= inside
        total += x
        kept += inside
        high += above
        low += below
    return total, kept, high, low


@_compiled()
def _see_rejections(  # noqa: PLR0917 - compiled code takes no keyword arguments fast
    row: Doubles, d: Floats, k: Floats, s: Floats, bounded: Floats, together: Bytes, options: Floats, wide: bool
) -> None:
    together[:] = 1
    for number in range(options.shape[0]):
        estimator, lower, upper = int(options[number, 0]), options[number, 1], options[number, 2]
        column = len(COLUMNS) + number * len(OPTION_COLUMNS)
        _statistic(d, k, s, estimator)
        total, kept, high, low = _judge(s, bounded, together, lower, upper)
        if math.isnan(lower) or math.isnan(upper):
            bounded[:] = np.float32(np.nan)
        _add_spread(row, column, bounded)
        row[column + 2] += kept
        row[column + 3] += high
        row[column + 4] += low
        row[column + 5] += total
        if estimator != K1:
            most, least = _extremes_with_nan(s) if wide else _extremes(s)
            row[column + 6] = _more(row[column + 6], most)
            row[column + 7] = _less(row[column + 7], least)
    kept_all = 0
    for j in range(together.shape[0]):
        kept_all += together[j]
    row[KEPT_ALL] += kept_all


@_compiled()
def _start_row(row: Doubles) -> None:
    row[:] = 0
    for column in (HI, A_HI):
        row[column] = -np.inf
    for column in (LO, A_LO):
        row[column] = np.inf
    for column in range(len(COLUMNS) + 6, row.shape[0], len(OPTION_COLUMNS)):
        row[column] = -np.inf
        row[column + 1] = np.inf


@_compiled()
def _gather(mask: Bytes, start: int, places: Integers) -> tuple[int, int]:
    """The next valid slots from ``start`` on; how many there are (0: no more), and where to go on."""
    found = 0
    slot = start
    while slot < mask.shape[0] and found < places.shape[0]:
        places[found] = slot
        found += mask[slot]
        slot += 1
    return found, slot


@_compiled()
def _see_piece(
    row: Doubles, old: Floats, rollout: Floats, buffers: Floats, together: Bytes, bounds: Floats, options: Floats
) -> None:
    """One piece of a row. Leaves applied weights less 1 in the third buffer, verdicts in ``together``."""
    n = old.shape[0]
    d, k, a, s, bounded = buffers[0, :n], buffers[1, :n], buffers[2, :n], buffers[3, :n], buffers[4, :n]
    total, difference = _subtract(old, rollout, d)
    most, least = _extremes(d)
    wide = not (math.isfinite(difference) and math.isfinite(total) and most <= CLAMP and least >= -CLAMP)
    if wide:
        most, least = _extremes_with_nan(d)
        _see_wide(row, old, rollout, d, k)
    else:
        _expm1(d, k, s, s.view(np.int32))
        _see_plain(row, total, difference, d, k)
    row[HI], row[LO] = _more(row[HI], most), _less(row[LO], least)
    if bounds.shape[0]:
        _see_weights(row, k, a, bounds, bounds.shape[0] == 3, wide)
    if options.shape[0]:
        _see_rejections(row, d, k, s, bounded, together[:n], options, wide)


@_compiled()
def see_rows(  # noqa: PLR0917
    old: Floats,
    rollout: Floats,
    mask: Bytes,
    starts: Integers,
    widths: Integers,
    lengths: Integers,
    bounds: Floats,
    options: Floats,
    table: Doubles,
    weights: Floats,
    kept: Bytes,
) -> None:
    """Fill ``table``, ``[R, columns]``, with the statistics of R rows.

    Args:
        old: log-probabilities of the training engine, flat.
        rollout: those of the inference engine.
        mask: flat, 1 where valid; empty if no row has holes.
        starts: ``[R]``, where a row begins.
        widths: ``[R]``, slots of a row up to its last valid one.
        lengths: ``[R]``, its valid tokens.
        bounds: of weights, less 1: nothing (no weights), (lower, upper) to truncate, (lower, upper, 0) to cut out.
        options: ``[K, 3]``, rejection options: estimator (1 to 3), lower, upper.
        table: to be filled: ``COLUMNS``, then ``OPTION_COLUMNS`` of each option.
        weights: flat, to be filled; or empty.
        kept: flat, to be filled; or empty.
    """
    buffers = np.empty((7, PIECE), np.float32)
    together = np.empty(PIECE, np.uint8)
    places = np.empty(PIECE, np.int64)
    for r in range(starts.shape[0]):
        row, start = table[r], starts[r]
        _start_row(row)
        holes = widths[r] != lengths[r]
        at, end = 0, widths[r]
        while at < end:
            if holes:
                n, after = _gather(mask[start : start + end], at, places)
                if n == 0:
                    break
                piece_old, piece_rollout = buffers[5, :n], buffers[6, :n]
                for j in range(n):
                    piece_old[j], piece_rollout[j] = old[start + places[j]], rollout[start + places[j]]
            else:
                n = min(PIECE, end - at)
                after = at + n
                piece_old, piece_rollout = old[start + at : start + after], rollout[start + at : start + after]
            _see_piece(row, piece_old, piece_rollout, buffers, together, bounds, options)
            for j in range(n if weights.shape[0] else 0):
                weights[start + (places[j] if holes else at + j)] = buffers[2, j] + np.float32(1)
            for j in range(n if kept.shape[0] else 0):
                kept[start + (places[j] if holes else at + j)] = together[j]
            at = after


@_compiled()
def _count(values: Bytes) -> np.uint8:
    """How many of at most 128 values are 1."""
    count = np.uint8(0)
    for j in range(values.shape[0]):
        count += values[j]
    return count


@_compiled()
def scan_mask(mask: Bytes, lengths: Integers, widths: Integers) -> None:
    """Per row of ``mask``, ``[B, T]`` of 0 and 1: how many are 1, and how many slots up to the last of them."""
    rows, width = mask.shape
    for r in range(rows):
        line = mask[r]
        end, count = width, 0
        while end >= 128 and _count(line[end - 128 : end]) == 0:
            end -= 128
        while end and not line[end - 1]:
            end -= 1
        for start in range(0, end, 128):
            count += _count(line[start : min(start + 128, end)])
        lengths[r], widths[r] = count, end
