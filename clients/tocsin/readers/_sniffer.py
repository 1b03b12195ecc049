"""Chooses the decoder of a log by its content, whatever its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tocsin.readers._decoder import Decoder
from tocsin.readers._fields import has_step
from tocsin.readers._lines import Lines, text_of
from tocsin.readers._source import Line, Source
from tocsin.readers._vector import Vector
from tocsin.readers.console import Console, kind_of
from tocsin.readers.document import Document, is_history
from tocsin.readers.events import Events
from tocsin.readers.json_lines import JsonLines, parse
from tocsin.readers.table import Table, cells_of, is_number
from tocsin.readers.wandb import Wandb

__all__ = ["Sniffer", "restore"]

_DECODERS: Mapping[str, type[Decoder]] = {
    decoder.name: decoder for decoder in (JsonLines, Document, Table, Console, Events, Wandb)
}
# How many bytes, or else lines that aren't blank, have to be seen before the format is settled.
_HEAD = 12
_LINES = 3
_LARGEST_HEAD = 1024 * 1024
_LONGEST_START = 16 * 1024 * 1024
_JSON = re.compile(r'[\[{]\s*(?:["{\[\]}]|$)')


class Sniffer(Decoder):
    """Stands for the decoder to be chosen. The choice depends on the first lines, and not on how they come in."""

    name = "unknown"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.chosen: Decoder | None = None
        self._held = b""

    def feed(self, data: bytes, *, last: bool = False) -> Iterator[Vector]:
        """See :meth:`Decoder.feed`."""
        if self.chosen is None:
            self._held += data
            yield from self._begin(self._choose(self._held, last=last), last=last)
        else:
            yield from self.chosen.feed(data, last=last)

    def flush(self) -> Iterator[Vector]:
        """See :meth:`Decoder.flush`. A single line that is a whole object settles the format without its end."""
        if self.chosen is None and b"\n" not in self._held and _is_object(text_of(self._held, 0)):
            choice = _by_lines([Line(1, text_of(self._held, 0))], settled=False)
            yield from self._begin(choice, last=False)
        if self.chosen is not None:
            yield from self.chosen.flush()

    def _begin(self, choice: type[Decoder] | None, *, last: bool) -> Iterator[Vector]:
        if choice is not None:
            data, self._held = self._held, b""
            self.chosen = choice(self.source)
            yield from self.chosen.feed(data, last=last)

    def _choose(self, head: bytes, *, last: bool) -> type[Decoder] | None:
        """None if there is too little to tell."""
        if len(head) < _HEAD and not last:
            return None
        if Events.fits(head):
            return Events
        if Wandb.fits(head):
            return Wandb
        lines = [line for line in Lines(self.source).feed(head, last=last) if line.text.strip()][:_LINES]
        settled = last or len(lines) == _LINES or len(head) > _LARGEST_HEAD
        if not lines:
            if last or len(head) > _LONGEST_START:
                problem = "is empty" if last else f"has no line in its first {_LONGEST_START} bytes"
                raise self.source.error(None, problem)
            return None
        if "\0" in lines[0].text:
            raise self.source.error(None, "is no text: neither JSON nor CSV")
        return _by_lines(lines, settled=settled)


def restore(name: str, state: Mapping[str, Any], source: Source) -> Decoder:
    """The decoder that had this name and gave this state.

    Raises:
        KeyError: there is none of this name.
    """
    return _DECODERS[name](source, state)


def _by_lines(lines: list[Line], *, settled: bool) -> type[Decoder] | None:
    """The decoder for a log that begins with these lines; None if more of them are needed and not ``settled``."""
    text = lines[0].text.strip()
    if text[0] in "[{":
        return _by_json(text, lines[1:], settled=settled)
    if kind_of(text) is not None:
        return Console
    cells = cells_of(text)
    if (len(cells) > 1 and has_step(cells)) or all(map(is_number, cells)):
        return Table
    if len(lines) == 1:
        return Table if settled else None
    row = cells_of(lines[1].text)
    return Table if len(row) == len(cells) and any(map(is_number, row)) else Console


def _by_json(text: str, following: list[Line], *, settled: bool) -> type[Decoder] | None:
    if text in {"[", "{"}:
        return Document
    try:
        value = parse(text)
    except ValueError:
        if not _JSON.match(text):
            return Console
        # A broken first line, or the beginning of a document.
        if any(_is_object(line.text) for line in following):
            return JsonLines
        return Document if settled else None
    return JsonLines if isinstance(value, dict) and not is_history(value) else Document


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse(text), dict)
    except ValueError:
        return False
