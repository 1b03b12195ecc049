"""Series in a few characters: what a metric does, step by step, for tests of rules.

    0.5             one value                         0.5x10          ten of them
    1+0.1x20        20 values from 1, each 0.1 more   8-0.5x4         8, 7.5, 7, 6.5
    0.001*1.05x60   60 values, each 1.05 times the last
    0.5~0.02x50     50 values with normal noise of standard deviation 0.02; ~5% is 5 % of each value
    _               no value at this step (the metric is absent)       NaN  Inf  -Inf
    (0.1x9 5)x4     a group, repeated
    0.5x*           as many as the other series have (only at the end)

Noise depends on nothing but the metric's name, the case's seed and the position: every run gives the same values.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from statistics import NormalDist

__all__ = ["MOST_ROWS", "NotationError", "Pattern"]

MOST_ROWS = 10_000
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_ITEM = re.compile(
    rf"(?P<start>[-+]?{_NUMBER}|_|NaN|[-+]?Inf)(?:(?P<op>[-+*])(?P<by>{_NUMBER}))?"
    rf"(?:~(?P<noise>{_NUMBER})(?P<percent>%?))?(?:x(?P<count>\d{{1,6}}|\*))?"
)
_GROUP = re.compile(r"\((?P<inside>[^()]*)\)(?:x(?P<count>\d{1,6}|\*))?")
_WORDS = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}
_NORMAL = NormalDist()


class NotationError(ValueError):
    """The text is no series; the message says which part and what it may be."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Values that follow one rule; ``start`` None: absent."""

    start: float | None
    op: str
    by: float
    noise: float
    relative: bool
    count: int

    def value(self, index: int) -> float | None:
        if self.start is None or not self.op:
            return self.start
        try:
            return self.start * self.by**index if self.op == "*" else self.start + self.by * index
        except OverflowError:
            return math.copysign(math.inf, self.start)


class Pattern:
    """A series as it was written.

    Attributes:
        rows: values that are written out.
        open: it ends with ``x*``, so it goes on as long as the others.

    Raises:
        NotationError: it can't be read, or is longer than 10,000 values.
    """

    def __init__(self, text: str) -> None:
        self._runs: list[_Run] = []
        self._tail: list[_Run] = []  # what is repeated until the end
        position = 0
        while position < len(text):
            if text[position].isspace():
                position += 1
                continue
            if self._tail:
                raise NotationError("x* may only stand at the very end")
            position = self._read_part(text, position)
        self.rows = sum(run.count for run in self._runs)
        self.open = bool(self._tail)
        if not self.rows and not self.open:
            raise NotationError("a series needs a value; 0.5x10 is ten times 0.5")
        if self.rows > MOST_ROWS:
            raise NotationError(f"{self.rows} values; a case has at most {MOST_ROWS}")

    def values(self, rows: int, key: str) -> list[float | None]:
        """The series; None where the metric is absent.

        Args:
            rows: its length, at least ``rows``.
            key: what the noise depends on.
        """
        found: list[float | None] = []
        runs = list(self._runs)
        while True:
            for run in runs:
                for index in range(min(run.count, rows - len(found))):
                    found.append(_disturb(run, run.value(index), f"{key} {len(found)}"))
            if len(found) >= rows:
                return found
            runs = self._tail

    def _read_part(self, text: str, position: int) -> int:
        match = _GROUP.match(text, position)
        if match is not None:
            inside = [_read_run(part) for part in match["inside"].split()]
            if not inside:
                raise NotationError("a group () needs values")
            if any(run.count == 0 for run in inside):
                raise NotationError("x* can't stand inside a group")
            self._append(inside, match["count"])
            return _after(text, match.end())
        match = _ITEM.match(text, position)
        if match is None:
            raise NotationError(_complain(text[position:].split(maxsplit=1)[0]))
        run = _read_run(match[0])
        if run.count:
            self._append([run], "1")
        else:
            self._tail = [_Run(run.start, run.op, run.by, run.noise, run.relative, MOST_ROWS)]
        return _after(text, match.end())

    def _append(self, runs: list[_Run], count: str | None) -> None:
        if count == "*":
            self._tail = runs
            return
        times = _count(count)
        if len(self._runs) + len(runs) * times > MOST_ROWS:
            raise NotationError(f"more than {MOST_ROWS} values; a case has at most that many")
        self._runs.extend(runs * times)


def _after(text: str, end: int) -> int:
    """Where the next part begins; parts are apart."""
    if end < len(text) and not text[end].isspace():
        raise NotationError(_complain(text[:end].rsplit(maxsplit=1)[-1] + text[end:].split(maxsplit=1)[0]))
    return end


def _read_run(part: str) -> _Run:
    match = _ITEM.fullmatch(part)
    if match is None:
        raise NotationError(_complain(part))
    start = None if match["start"] == "_" else _WORDS.get(match["start"].lower())
    if start is None and match["start"] != "_":
        start = float(match["start"])
    by = float(match["by"] or 0.0)
    percent = bool(match["percent"])
    noise = float(match["noise"] or 0.0) * (0.01 if percent else 1.0)
    count = 0 if match["count"] == "*" else _count(match["count"])
    return _Run(start, match["op"] or "", -by if match["op"] == "-" else by, noise, percent, count)


def _count(text: str | None) -> int:
    count = 1 if text is None else int(text)
    if not 1 <= count <= MOST_ROWS:
        raise NotationError(f"x{text}: a part is repeated 1 to {MOST_ROWS} times")
    return count


def _complain(part: str) -> str:
    return f"{part[:40]!r} is no part of a series; write e.g. 0.5x10, 1+0.1x20, 0.5~0.02x50, _, NaN or (1x9 30)x4"


def _disturb(run: _Run, value: float | None, key: str) -> float | None:
    if value is None or not run.noise:
        return value
    digest = hashlib.blake2b(key.encode(), digest_size=6).digest()
    normal = _NORMAL.inv_cdf((int.from_bytes(digest) + 0.5) / 2**48)
    return value * (1 + run.noise * normal) if run.relative else value + run.noise * normal
