"""Rollouts as trainers send them: NDJSON, a JSON list, Arrow IPC or Parquet become one table, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from tocsin_detectors.entries import number_from_json
from tocsin_service.receiving import json_texts
from tocsin_service.receiving.json_texts import shorten
from tocsin_service.rollouts.columnar import read_arrow, read_parquet
from tocsin_service.rollouts.errors import RolloutsRefused
from tocsin_service.rollouts.limits import LONGEST_NAME, MOST_PROBLEMS, MOST_ROWS, MOST_SCORES
from tocsin_service.rollouts.schema import FIELDS, SENT

__all__ = ["decode"]

LARGEST = 2**53 - 1
EXAMPLE = '{"prompt": "2+2=", "response": "4", "reward": 1}'


def decode(data: bytes, content_type: str, limit: int) -> tuple[pa.Table, list[str]]:
    """The rows in ``data`` as a table of :data:`~.schema.SENT`, and what was changed to make them so.

    Args:
        data: the body after decompression.
        content_type: of the request; what the body itself begins with counts for more.
        limit: most bytes of the decoded rows.

    Raises:
        RolloutsRefused: it can't be read, a row is malformed, or there is none.
    """
    kind = content_type.split(";", maxsplit=1)[0].strip().lower()
    if data.startswith(b"PAR1") or "parquet" in kind:
        table = read_parquet(data, limit)
    elif data.startswith((b"ARROW1", b"\xff\xff\xff\xff")) or "arrow" in kind:
        table = read_arrow(data, limit)
    else:
        return _Rows(data).table()
    if not table.num_rows:
        raise RolloutsRefused("the body has no rows; send at least one")
    _refuse_negative(table)
    return table, []


def _refuse_negative(table: pa.Table) -> None:
    for name in ("length", "index"):
        for row, value in enumerate(table.column(name).to_pylist()):
            if value is not None and not 0 <= value <= LARGEST:
                raise RolloutsRefused(f"row {row}: {name} is {value}; send a whole number from 0")


class _Rows:
    """The rows of a JSON body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._problems: list[dict[str, Any]] = []
        self._replaced = 0

    def table(self) -> tuple[pa.Table, list[str]]:
        columns: dict[str, list[Any]] = {name: [] for name in FIELDS}
        count = 0
        for count, (place, row) in enumerate(self._values(), 1):
            if count > MOST_ROWS:
                raise RolloutsRefused(f"the body has more than {MOST_ROWS} rows; send fewer at a time")
            self._add(columns, place, row)
            if len(self._problems) >= MOST_PROBLEMS:
                break
        if self._problems:
            raise RolloutsRefused("nothing was stored: the body is not valid; see problems", self._problems)
        if not count:
            raise RolloutsRefused("the body has no rows; send at least one")
        warnings = []
        if self._replaced:
            warnings = [f"{self._replaced} texts held halves of surrogate pairs: replaced by U+FFFD"]
        return pa.table({name: pa.array(columns[name], SENT.field(name).type) for name in FIELDS}, SENT), warnings

    def _values(self) -> Iterator[tuple[dict[str, int], Any]]:
        try:
            text = self._data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RolloutsRefused(f"the body is not UTF-8 (byte {error.start})") from None
        self._data = b""
        if not text.strip():
            raise RolloutsRefused(f"the body is empty; send one row a line: {EXAMPLE}")
        if text.lstrip().startswith("["):
            values = _parse(text, "")
            for index, value in enumerate(values):
                yield {"index": index}, value
            return
        # Not splitlines(): a text may hold U+2028, which is no end of a line in NDJSON.
        for number, line in enumerate(_lines(text), 1):
            if line.strip():
                yield {"line": number}, _parse(line, f"line {number}: ")

    def _add(self, columns: Mapping[str, list[Any]], place: dict[str, int], row: Any) -> None:
        if not isinstance(row, dict):
            self._problems.append({**place, "field": "", "problem": f"is {shorten(row)}; send an object: {EXAMPLE}"})
            return
        for name in row.keys() - set(FIELDS):
            problem = f"is no field of a rollout; the fields are {', '.join(FIELDS)}"
            self._problems.append({**place, "field": shorten(name), "problem": problem})
        for name in FIELDS:
            value = row.get(name)
            try:
                columns[name].append(None if value is None and name != "response" else READ[name](value))
            except UnicodeEncodeError:
                columns[name].append(_whole_characters(value) if isinstance(value, str) else None)
                self._replaced += 1
            except ValueError as error:
                self._problems.append({**place, "field": name, "problem": f"is {shorten(value)}; {error}"})


def _lines(text: str) -> Iterator[str]:
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        yield text[begin:end]
        begin = end + 1
    yield text[begin:]


def _parse(text: str, where: str) -> Any:
    try:
        return json_texts.parse(text)
    except json_texts.JsonError as error:
        raise RolloutsRefused(f"{where}{error}") from None


def _whole_characters(text: str) -> str:
    """The text with pairs of surrogates put together and halves replaced, so that it can be stored."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("send a text")  # noqa: TRY004 - what is wrong with the value, collected with others
    value.encode()
    return value


def _name(value: object) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise ValueError(f"send a text of 1 to {LONGEST_NAME} characters, or leave it out")
    value.encode()
    return value


def _answer(value: object) -> str:
    return str(value) if isinstance(value, (bool, int, float)) else _text(value)


def _number(value: object) -> float:
    try:
        return number_from_json(value)
    except ValueError:
        raise ValueError("send a number (NaN and Infinity are taken too), or leave it out") from None


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError("send a whole number from 0, or leave it out")
    return value


def _scores(value: object) -> Iterable[tuple[str, float | None]]:
    if not isinstance(value, dict) or len(value) > MOST_SCORES:
        raise ValueError(f'send an object of at most {MOST_SCORES} names and numbers: {{"format": 0.5}}')
    return [(_name(name), None if score is None else _number(score)) for name, score in value.items()]


READ: Final[Mapping[str, Callable[[object], Any]]] = {
    "prompt": _text,
    "response": _text,
    "reward": _number,
    "scores": _scores,
    "advantage": _number,
    "group": _name,
    "domain": _name,
    "length": _whole,
    "finish_reason": _name,
    "ground_truth": _answer,
    "index": _whole,
}
