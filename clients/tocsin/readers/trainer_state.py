"""``trainer_state.json`` of Hugging Face trainers (TRL, ms-swift, axolotl, Unsloth): its ``log_history``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tocsin.readers import flat
from tocsin.readers._records import Record
from tocsin.readers._source import Source
from tocsin.readers._vector import Vector

__all__ = ["fits", "vectors"]


def fits(data: Mapping[str, object]) -> bool:
    """Whether ``data``, the first object of a log, is of this format."""
    return isinstance(data.get("log_history"), list)


def vectors(records: Iterable[Record], source: Source) -> Iterator[Vector]:
    """One vector for every row of the history; the rows of training and evaluation at one step stay apart."""
    return flat.vectors(_history(records, source), source)


def _history(records: Iterable[Record], source: Source) -> Iterator[Record]:
    for record in records:
        history = record.data.get("log_history")
        for index, row in enumerate(history if isinstance(history, list) else ()):
            if not isinstance(row, dict):
                raise source.error(None, f"log_history[{index}] is a {type(row).__name__}, not an object")
            yield Record(None, row)
