"""What an Alertmanager has been shown, and what it is to be shown next: pure but for the state it keeps.

Alertmanager knows nothing of Tocsin's alerts but what it is sent: an alert fires until the end that came with it, so
what fires is sent again and again, each time with an end that is some sends away. If nobody sends any more, it ends by
itself. What is over is sent with its end for some minutes, in case an answer or Alertmanager's memory is lost.

An end is said late on purpose, when the alert would have ended by itself. A Prometheus that sends the same alert from
what it has scraped may not know of the end yet, and would light it again. And what was never shown is shown firing for
as long: Alertmanager tells nobody of an alert that it sees only when it is over, and it waits before it tells.

An alert begins when it is first shown. Alertmanager doesn't wait for a group whose first alert says that it is old, and
would tell of the first of an incident's alerts before it has read the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tocsin_detectors.alerts import Severity
from tocsin_service.firing import Labels

__all__ = ["RESEND_SECONDS", "Ledger", "Message"]

RESEND_SECONDS = 30.0  # between two sends of what fires
LASTING_SENDS = 4  # an alert ends by itself if it isn't sent for as long as so many sends take
RESOLVED_SECONDS = 300.0  # for so long an end is sent
MOST_ENDED = 10_000  # so many ends are kept until they can be sent, the latest

Message: TypeAlias = Mapping[str, Any]  # labels, annotations and generatorURL


@dataclass(slots=True)
class _Entry:
    """An alert as Alertmanager is to see it. All times are Unix seconds.

    Attributes:
        shown: when Alertmanager was first shown it firing, None before.
        ended: when it ended, None while it fires.
        closed: when Alertmanager was first told of the end.
    """

    message: Message
    shown: float | None = None
    ended: float | None = None
    closed: float | None = None


class Ledger:
    """What has been shown. Not for several threads at a time.

    Args:
        resend: seconds between two sends of what fires.
    """

    def __init__(self, resend: float = RESEND_SECONDS) -> None:
        self._lasting = LASTING_SENDS * resend
        self._entries: dict[Labels, _Entry] = {}

    def __contains__(self, labels: Labels) -> bool:
        return labels in self._entries

    def of_incident(self, incident: str) -> set[Labels]:
        """What it has of an incident."""
        return {labels for labels in self._entries if labels.incident == incident}

    def fire(self, messages: Mapping[Labels, Message]) -> None:
        """These fire."""
        for labels, message in messages.items():
            entry = self._entries.get(labels)
            if entry is None or entry.closed is not None:
                self._entries[labels] = _Entry(message)
            else:
                entry.message, entry.ended = message, None

    def end(self, gone: Iterable[Labels], now: float) -> None:
        """These don't fire any more; what has ended before keeps its end."""
        for labels in gone:
            entry = self._entries.get(labels)
            if entry is not None and entry.ended is None:
                entry.ended = now

    def end_shown(self, messages: Mapping[Labels, Message], now: float) -> None:
        """These are over, and another process has shown them firing: their end needs no delay."""
        for labels, message in messages.items():
            past = now - self._lasting
            self._entries.setdefault(labels, _Entry(message, shown=past, ended=past))

    def keep(self, firing: Iterable[Labels], now: float) -> None:
        """Nothing but these fires."""
        self.end(self._entries.keys() - set(firing), now)

    def due(self, now: float, wanted: Iterable[Labels] | None = None) -> list[dict[Labels, Message]]:
        """What is to be sent, in the order in which it has to arrive.

        What is critical inhibits warnings, so it comes before them when it fires, and ends after them.

        Args:
            now: Unix time in seconds.
            wanted: all of these that are known, with the end that they have or will have. None: everything, but for
                what has ended and whose end isn't to be said yet.
        """
        if wanted is None:
            waiting = (labels for labels, entry in self._entries.items() if self._is_waiting(entry, now))
            wanted = self._entries.keys() - set(waiting)
        parts: list[dict[Labels, Message]] = [{}, {}, {}, {}]
        for labels in sorted(wanted):
            if entry := self._entries.get(labels):
                critical, over = labels.severity == Severity.CRITICAL, self._is_over(entry, now)
                part = (3 if critical else 0) if over else (1 if critical else 2)
                parts[part][labels] = self._message(entry, now)
        return [part for part in parts if part]

    def sent(self, messages: Mapping[Labels, Message], now: float) -> None:
        """Alertmanager has these, as :meth:`due` gave them at ``now``."""
        for labels in messages:
            entry = self._entries.get(labels)
            if entry is None:
                continue
            if self._is_over(entry, now):
                entry.closed = now if entry.closed is None else entry.closed
            elif entry.shown is None:
                entry.shown = now

    def forget(self, now: float) -> None:
        """Lets go of ends that have been sent for long enough, and of those that are too many."""
        for labels, entry in list(self._entries.items()):
            if entry.closed is not None and now - entry.closed > RESOLVED_SECONDS:
                del self._entries[labels]
        ended = sorted((entry.ended, labels) for labels, entry in self._entries.items() if entry.ended is not None)
        for _, labels in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._entries[labels]

    def clear(self) -> None:
        """Another process serves Alertmanager now: it alone knows what ends."""
        self._entries.clear()

    def _end(self, entry: _Entry, now: float) -> float:
        """When it ends, or would if it weren't sent again."""
        shown = now if entry.shown is None else entry.shown
        return (now if entry.ended is None else max(entry.ended, shown)) + self._lasting

    def _is_over(self, entry: _Entry, now: float) -> bool:
        return entry.ended is not None and self._end(entry, now) <= now

    def _is_waiting(self, entry: _Entry, now: float) -> bool:
        return entry.ended is not None and entry.shown is not None and not self._is_over(entry, now)

    def _message(self, entry: _Entry, now: float) -> Message:
        starts, ends = now if entry.shown is None else entry.shown, self._end(entry, now)
        return {**entry.message, "startsAt": _iso(starts), "endsAt": _iso(max(starts, ends))}


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")
