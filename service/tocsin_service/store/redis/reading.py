"""Reading the log. Whoever reads it in order first admits what trainers wrote into it by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from tocsin_detectors.entries import StepVector
from tocsin_service.store import Stored
from tocsin_service.store.encoding import entry_from_text
from tocsin_service.store.redis import keys
from tocsin_service.store.redis.configs import config_to_hash
from tocsin_service.store.redis.connection import Argument, Connection
from tocsin_service.store.redis.entries import Bad, Config, Judged, Limits, Own, Vector, decode, judge
from tocsin_service.store.redis.scripts import ADMIT, SEEK_LAST

__all__ = ["Raw", "Reader", "decode_page"]

Raw: TypeAlias = tuple[str, dict[str, str]]

PAGE = 64  # entries read at once while a step is looked for; also the distance of marks


@dataclass(frozen=True, slots=True)
class _Page:
    """Entries behind a position; and up to where all is admitted, and what stands for the first entry of all."""

    admitted: str
    base: str | None
    base_text: str | None
    entries: Sequence[Raw]


class Reader:
    """Reads logs.

    Args:
        connection: to Redis.
        limits: of vectors written by hand.
        max_runs: most runs there may be.
    """

    def __init__(self, connection: Connection, limits: Limits, max_runs: int) -> None:
        self._connection, self._limits, self._max_runs = connection, limits, max_runs

    def read(self, run: str, after: int, limit: int) -> list[Stored]:
        """See the contract."""
        found: list[Stored] = []
        start = keys.entry_id(after)
        while True:
            wanted = limit - len(found)
            page = self._page(run, start, wanted)
            good = None if page is None else self._good(run, start, page)
            if page is None or good is None:  # somebody else has trimmed or judged meanwhile
                continue
            found += good
            if len(good) == wanted or len(page.entries) < wanted:
                return found
            # Something was refused. Where all before is admitted it is gone, elsewhere it has to be passed over.
            if keys.position(start) > keys.position(page.admitted):
                start = page.entries[-1][0]
            elif good:
                start = keys.entry_id(good[-1].position)

    def seek(self, run: str, after: int | None, last: int) -> int:
        """See the contract."""
        if after is None:
            return keys.position(self._connection.run(SEEK_LAST, run, last))
        marks = ("ZRANGE", keys.of(run, "marks"), after, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1)
        mark = next(iter(self._connection.ask(*marks)), keys.START)
        position = keys.position(mark)
        while page := self.read(run, position, PAGE):
            for stored in page:
                if isinstance(stored.entry, StepVector) and stored.entry.step > after:
                    return stored.position - 1
            position = page[-1].position
        return position

    def _page(self, run: str, start: str, limit: int) -> _Page | None:
        """Entries behind ``start``; None if the log was trimmed meanwhile."""
        facts = keys.of(run, "run")
        # First up to where all is admitted: none of the entries is taken for admitted that isn't.
        (admitted, base, text), entries, base_now = self._connection.ask_all(
            [
                ("HMGET", facts, "admitted", "base", "base_entry"),
                ("XRANGE", keys.log(run), f"({start}", "+", "COUNT", limit),
                ("HGET", facts, "base"),
            ]
        )
        return _Page(admitted or keys.START, base, text, entries) if base == base_now else None

    def _good(self, run: str, start: str, page: _Page) -> list[Stored] | None:
        """The page without what is refused; None if it has to be read again."""
        admitted = keys.position(page.admitted)
        new = [raw for raw in page.entries if keys.position(raw[0]) > admitted]
        old = decode_page(page.entries[: len(page.entries) - len(new)], page.base, page.base_text)
        if not new:
            return old
        judged = [(raw[0], judge(*raw, self._limits)) for raw in new]
        if keys.position(start) <= admitted:
            kept = self._admit(run, page.admitted, judged)
        else:  # there is a gap that somebody has to judge first
            kept = self._would_be_kept(run, judged)
        if kept is None:
            return None
        return old + [
            Stored(keys.position(entry), found.entry)
            for entry, found in judged
            if entry in kept and not isinstance(found, Bad)
        ]

    def _admit(self, run: str, admitted: str, judged: Sequence[tuple[str, Judged]]) -> set[str] | None:
        arguments: list[Argument] = [run, admitted, self._max_runs]
        for entry, found in judged:
            match found:
                case Own(_, key):
                    arguments += [entry, "o", key]
                case Vector(vector, key):
                    arguments += [entry, "v", key or "", vector.step, repr(vector.time)]
                case Config(config):
                    given = config_to_hash(config)
                    arguments += [entry, "c", len(given), *chain.from_iterable(given.items())]
                case Bad(reason):
                    arguments += [entry, "x", reason]
        kept = self._connection.run(ADMIT, *arguments)
        return None if kept is None else set(kept)

    def _would_be_kept(self, run: str, judged: Sequence[tuple[str, Judged]]) -> set[str]:
        keyed = {
            entry: found.key for entry, found in judged if isinstance(found, (Own, Vector)) and found.key is not None
        }
        free = {entry for entry, found in judged if not isinstance(found, Bad) and entry not in keyed}
        if not keyed:
            return free
        known = self._connection.ask("HMGET", keys.of(run, "keys"), *keyed.values())
        own = {entry for entry, found in judged if isinstance(found, Own)}
        return free | {
            entry
            for entry, first in zip(keyed, known, strict=True)
            if first == entry or (first is None and entry not in own)
        }


def decode_page(page: Sequence[Raw], base: str | None, base_text: str | None) -> list[Stored]:
    """Admitted entries.

    Args:
        page: as Redis has them.
        base: id of the first entry that is kept of a trimmed log; None if nothing was trimmed.
        base_text: what stands for that entry.
    """
    return [
        Stored(
            keys.position(entry),
            entry_from_text(base_text) if entry == base and base_text is not None else decode(entry, fields),
        )
        for entry, fields in page
    ]
