"""What goes: entries beyond the bounds, a page of a log at a time, and runs that have been silent for long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin_service.store import Retention
from tocsin_service.store.encoding import entry_text, silence_from_text
from tocsin_service.store.redis import keys
from tocsin_service.store.redis.connection import Connection
from tocsin_service.store.redis.entries import NO_LIMITS, Own, Vector, judge
from tocsin_service.store.redis.reading import decode_page
from tocsin_service.store.redis.scripts import REMOVE, TRIM
from tocsin_service.store.trimming import DAY, config_after

__all__ = ["due", "remove_run", "trim_log", "trim_silences"]

PAGE = 500  # runs looked at, or entries removed, in one go
HOUR = 3_600.0  # so much longer than asked for may old entries stay: a log is trimmed by age once an hour


@dataclass(frozen=True, slots=True)
class Due:
    """A run of which something may have to go; ``whole``: all of it."""

    run: str
    whole: bool


def due(connection: Connection, runs: Sequence[str], keep: Retention, now: float) -> list[Due]:
    """Those of ``runs`` at which it is worth to look closer."""
    silent = now - keep.days * DAY if keep.days else 0.0
    found = []
    for start in range(0, len(runs), PAGE):
        page = runs[start : start + PAGE]
        commands: list[tuple[str, ...]] = []
        for run in page:
            commands += [("HMGET", keys.of(run, "run"), "created", "last_seen", "base"), ("XLEN", keys.log(run))]
        answers = iter(connection.ask_all(commands))
        for run in page:
            (created, seen, base), length = next(answers), next(answers)
            if created is None:
                continue
            oldest = float(created) if base is None else keys.seconds(base)
            whole = float(seen or created) < silent
            if whole or 0 < keep.entries < length - 1 or oldest < silent - HOUR:
                found.append(Due(run, whole))
    return found


def trim_log(connection: Connection, run: str, keep: Retention, now: float) -> int:
    """Removes up to :data:`PAGE` entries that are beyond ``keep``; how many."""
    (base, text, committed), saved, length = connection.ask_all(
        [
            ("HMGET", keys.of(run, "run"), "base", "base_entry", "committed"),
            ("HGET", keys.of(run, "state"), "position"),
            ("XLEN", keys.log(run)),
        ]
    )
    if committed is None or saved is None:
        return 0
    folded = min(committed, saved, key=keys.position)
    page = connection.ask("XRANGE", keys.log(run), "-", folded, "COUNT", PAGE)
    before = now - keep.days * DAY if keep.days else 0.0
    aged = sum(keys.seconds(entry) < before for entry, _ in page) - 1
    crowded = length - keep.entries - 1 if keep.entries else 0
    last = min(max(aged, crowded), len(page) - 1)
    if last < 1:
        return 0
    gone = page[: last + 1]
    config = config_after(stored.entry for stored in decode_page(gone, base, text))
    judged = (judge(entry, fields, NO_LIMITS) for entry, fields in gone)
    known = [found.key for found in judged if isinstance(found, (Own, Vector)) and found.key is not None]
    removed = connection.run(TRIM, run, base or keys.START, gone[-1][0], entry_text(config), *known)
    return int(removed or 0)


def remove_run(connection: Connection, run: str, keep: Retention, now: float) -> int | None:
    """Removes a run that is silent; how many log entries went, None if it is silent no more."""
    removed = connection.run(REMOVE, run, repr(now - keep.days * DAY))
    return None if removed is None else int(removed)


def trim_silences(connection: Connection, keep: Retention, now: float) -> None:
    """Forgets silences that were over long ago."""
    kept = connection.ask("HGETALL", keys.SILENCES)
    old = [name for name, text in kept.items() if silence_from_text(text).ends < now - keep.days * DAY]
    if old:
        connection.ask("HDEL", keys.SILENCES, *old)
