"""What trainers print, between whatever else is printed:

    (TaskRunner pid=17) step:12 - actor/kl_loss:0.013 - actor/grad_norm:np.float64(0.5)     verl
    metrics_tag: {"step": 12, "metrics": {"actor/kl_loss": 0.013}}                          ROLL's stdout tracker
    Global step 12: {'kl': 0.013, 'reward': 0.5}                                            OpenRLHF
    {'loss': 0.0123, 'grad_norm': 0.5, 'epoch': 0.1}                                        Hugging Face trainers

The kind of the first such line settles what is looked for. Prefixes of Ray and of loggers, colours and progress bars
are no hindrance. Lines of Hugging Face trainers have no step: they are counted from 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tocsin._numbers import number
from tocsin.readers._decoder import LineDecoder
from tocsin.readers._fields import Steps, metrics_of
from tocsin.readers._literals import mapping
from tocsin.readers._source import Line, Source
from tocsin.readers._vector import Vector

__all__ = ["Console", "kind_of"]

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.")
_REPEATED = re.compile(r"\[repeated \d+x across cluster\]")
_LARGEST_STEP = 2**53


class Found(NamedTuple):
    """What a printed line tells; no step if such lines have none."""

    step: int | None
    row: Mapping[str, object]


def _verl(text: str) -> Found | None:
    begin = re.search(r"(?:^|[\s)\]|])step:(\d{1,16})(?: - |\s*$)", text)
    if begin is None:
        return None
    row: dict[str, object] = {}
    name = ""
    for part in _REPEATED.split(text[begin.end() :], maxsplit=1)[0].split(" - "):
        # Names may hold colons, and for all we know even the separator: the value is what can be one.
        before, colon, value = part.rpartition(":")
        if colon and _is_number(value):
            row[(name + before).strip()] = value
            name = ""
        else:
            name += f"{part} - "
    return Found(int(begin[1]), row) if row else None


def _roll(text: str) -> Found | None:
    _, tag, rest = text.partition("metrics_tag: ")
    if not tag or not rest.startswith("{"):
        return None
    try:
        data, _ = json.JSONDecoder().raw_decode(rest)
    except (ValueError, RecursionError):
        return None
    step, metrics = data.get("step"), data.get("metrics")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0 or not isinstance(metrics, dict):
        return None
    return Found(step, metrics)


def _openrlhf(text: str) -> Found | None:
    begin = re.search(r"(?:Global step|Eval at step) (\d{1,16}): (?=\{)", text)
    row = mapping(text[begin.end() :]) if begin else None
    return Found(int(begin[1]), row) if begin and row else None


def _huggingface(text: str) -> Found | None:
    begin = text.find("{'")
    if begin < 0 or "'epoch'" not in text:
        return None
    row = mapping(text[begin : text.rfind("}") + 1])
    return Found(None, row) if row and row.keys() & {"loss", "grad_norm", "reward"} else None


# Several frameworks print such lines: the names of the metrics tell which.
_TRAINER = "trainer"
_KINDS: Mapping[str, Callable[[str], Found | None]] = {
    "verl": _verl,
    "roll": _roll,
    "openrlhf": _openrlhf,
    _TRAINER: _huggingface,
}


def kind_of(text: str) -> str | None:
    """Who prints such lines; None if the line tells no metrics."""
    return next((name for name, find in _KINDS.items() if any(map(find, _parts(text)))), None)


class Console(LineDecoder):
    """Decodes it."""

    name = "console"

    def __init__(self, source: Source, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(source, state)
        given = state or {}
        self._kind: str | None = None
        if given.get("kind") in _KINDS:
            self._choose(given["kind"])
        self._steps = Steps(given.get("steps") or {"counted": True})

    def take(self, line: Line) -> Iterator[Vector]:
        """The vectors of one line."""
        if self._kind is None:
            self._choose(kind_of(line.text))
        if self._kind is not None:
            find = _KINDS[self._kind]
            for index, part in enumerate(_parts(line.text)):
                found = find(part)
                if found is not None:
                    yield from self._vector(found, line, index)
        self.taken(line)

    def state(self) -> dict[str, Any]:
        """See :meth:`Decoder.state`."""
        return {**super().state(), "kind": self._kind, "steps": self._steps.state()}

    def _choose(self, kind: str | None) -> None:
        self._kind = kind
        self.framework = None if kind == _TRAINER else kind

    def _vector(self, found: Found, line: Line, index: int) -> Iterator[Vector]:
        metrics, skipped = metrics_of(found.row)
        self.source.skipped += skipped
        step = self._steps.of({})[0] if found.step is None else found.step
        if metrics and step <= _LARGEST_STEP:
            yield Vector(step, metrics, None, line.number, f"{line.mark}-{index}" if index else line.mark)


def _parts(text: str) -> list[str]:
    """A line without colours; a progress bar that is drawn over and over again is several."""
    return _CONTROL.sub("", text).split("\r")


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True
