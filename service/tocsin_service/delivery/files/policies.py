"""How a receiver wants to be told, as a file writes it: quiet hours, pace, reminders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import time
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from tocsin_detectors.rulefile.problems import nearest
from tocsin_detectors.rulefile.tree import Mapping as Tree
from tocsin_detectors.rulefile.tree import Node, Scalar
from tocsin_detectors.rulefile.values import Reading
from tocsin_service.delivery.making import KINDS
from tocsin_service.delivery.pace import Pace
from tocsin_service.delivery.policy import Policy
from tocsin_service.delivery.quiet import DAYS, QuietHours

__all__ = ["POLICY_KEYS", "read_policy"]

POLICY_KEYS = ("quiet_hours", "pace", "remind_hours")
QUIET_KEYS = ("from", "to", "timezone")
TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
MIDNIGHT = "24:00"


def read_policy(reading: Reading, written: Tree, name: str, kind: str) -> Policy:
    """The policy of the receiver ``name`` of that kind; what is wrong is noted."""
    given, mirrors = written.entries, KINDS[kind].mirrors
    for key in ("pace", "remind_hours") if mirrors else ():
        if key in given:
            reading.problems.add(written.lines[key], f"{name}: {kind} has a pace of its own; leave {key} out here")
    remind = _within(reading, given, "remind_hours", (0.01, 720.0), name)
    return Policy(
        quiet=tuple(_quiet(reading, given["quiet_hours"], name)) if "quiet_hours" in given else (),
        pace=_pace(reading, given["pace"], name) if "pace" in given else Pace(),
        remind_seconds=None if remind is None else remind * 3600,
        mirrors=mirrors,
    )


def _pace(reading: Reading, node: Node, name: str) -> Pace:
    what = f"{name}: pace"
    written = reading.mapping(node, what, ("burst", "seconds"))
    if written is None:
        return Pace()
    burst = _within(reading, written.entries, "burst", (1, 1000), what, int)
    seconds = _within(reading, written.entries, "seconds", (0.1, 86_400.0), what)
    usual = Pace()
    return Pace(usual.burst if burst is None else int(burst), usual.seconds if seconds is None else seconds)


def _within(
    reading: Reading,
    entries: Mapping[str, Node],
    key: str,
    bounds: tuple[float, float],
    what: str,
    kind: type[int | float] = float,
) -> float | None:
    """The number of that key; None if it isn't given, or with a note if it isn't between the bounds."""
    if key not in entries:
        return None
    value: float | None = reading.value(entries[key], kind, f"{what}: {key}")
    if value is not None and not bounds[0] <= value <= bounds[1]:
        reading.problems.add(entries[key].line, f"{what}: {key} has to be from {bounds[0]:g} to {bounds[1]:g}")
        return None
    return value


def _quiet(reading: Reading, node: Node, name: str) -> Iterator[QuietHours]:
    """One span, or a list of them."""
    what = f"{name}: quiet_hours"
    for item in (node,) if isinstance(node, Tree) else reading.sequence(node, what):
        written = reading.mapping(item, what, (*QUIET_KEYS, "days"))
        if written is None:
            continue
        for key in QUIET_KEYS:
            if key not in written.entries:
                reading.problems.add(
                    written.line, f'{what} needs {key}: {{from: "22:00", to: "08:00", timezone: Europe/Berlin}}'
                )
        start, end = _time(reading, written, "from", what), _time(reading, written, "to", what)
        zone, days = _zone(reading, written, what), _days(reading, written, what)
        if start is not None and start == end and _text(written, "to") != MIDNIGHT:
            reading.problems.add(
                written.line, f'{what}: begins and ends at once; a whole day is {{from: "00:00", to: "{MIDNIGHT}"}}'
            )
        elif start is not None and end is not None and zone is not None:
            yield QuietHours(start, end, zone, days)


def _time(reading: Reading, written: Tree, key: str, what: str) -> time | None:
    text = _text(written, key)
    if text is None:
        return None
    found = TIME.fullmatch("00:00" if text == MIDNIGHT and key == "to" else text)
    if found is None:
        reading.problems.add(written.lines[key], f'{what}: {key} has to be a time of day such as "22:00"')
        return None
    return time(int(found[1]), int(found[2]))


def _zone(reading: Reading, written: Tree, what: str) -> ZoneInfo | None:
    text = _text(written, "timezone")
    if text is None:
        return None
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):  # unknown, a path, a folder
        hint = nearest(text, available_timezones())
        hint = hint if hint.startswith("did") else "write one such as Europe/Berlin or UTC"
        reading.problems.add(written.lines["timezone"], f"{what}: no time zone is called {text[:60]!r}; {hint}")
        return None


def _days(reading: Reading, written: Tree, what: str) -> frozenset[int]:
    if "days" not in written.entries:
        return frozenset(range(len(DAYS)))
    hint = tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...]
    days = reading.value(written.entries["days"], hint, f"{what}: days")
    return frozenset(DAYS.index(day) for day in days or ())


def _text(written: Tree, key: str) -> str | None:
    node = written.entries.get(key)
    return None if node is None else node.text if isinstance(node, Scalar) else ""
