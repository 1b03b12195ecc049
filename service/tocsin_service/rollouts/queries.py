"""Questions to the rollout log, asked with DuckDB: rows of a step, extremes of a range, two steps beside each other.

Every statement is written here; what a client chooses are values of parameters and names out of fixed sets. The
database can read the rollout folder and nothing else, loads no extension, and has a bound on its memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import duckdb

from tocsin_service.rollouts.attempts import Within
from tocsin_service.rollouts.errors import RolloutsUnavailable
from tocsin_service.rollouts.files import Folder, Stored
from tocsin_service.rollouts.schema import KEPT

__all__ = ["SORTS", "Choice", "Queries", "Sort"]

Sort: TypeAlias = Literal["row", "reward", "advantage", "length", "chars", "repetition"]
SORTS: Final = ("row", "reward", "advantage", "length", "chars", "repetition")
Row: TypeAlias = dict[str, Any]
T = TypeVar("T")

_MEMORY = "1GB"
_THREADS = 2
_SECONDS = 30.0
_TRIES = 10
_TEXTS = ("prompt", "response", "ground_truth")
_ORDERS: Final = {
    (name, descending): f'"{name}" {"DESC" if descending else "ASC"} NULLS LAST'
    for name in SORTS
    for descending in (False, True)
}
_SUMMARY: Final = """
    count(*) AS rows, avg(reward) AS reward_mean, min(reward) AS reward_min, max(reward) AS reward_max,
    quantile_cont(reward, 0.5) AS reward_median, avg(length) AS length_mean, avg(chars) AS chars_mean,
    avg(repetition) AS repetition_mean, avg((trim(response) = '')::DOUBLE) AS empty_ratio,
    avg((lower(finish_reason) = 'length')::DOUBLE) AS truncated_ratio
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows, in which order.

    Attributes:
        first: least step, ``last``: greatest; equal for one step. None: no bound.
        attempt: only rows of this attempt of the trainer, and those that name none.
        within: only rows of an attempt of the run, whether they name it or not.
        sort: column to sort by; "row": as they were sent.
        descending: the greatest first. Rows without a value come last; NaN counts as the greatest number.
        text: most characters of each text in the answer.
    """

    first: int | None = None
    last: int | None = None
    attempt: int | None = None
    within: Within | None = None
    group: str | None = None
    domain: str | None = None
    finish_reason: str | None = None
    contains: str | None = None
    least_reward: float | None = None
    most_reward: float | None = None
    sort: Sort = "row"
    descending: bool = False
    limit: int = 20
    offset: int = 0
    text: int = 4000


class Queries:
    """Asks; from any thread, one question at a time.

    Args:
        root: the setting ``rollout_dir``.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def rows(self, run: str, choice: Choice) -> list[Row]:
        """The rows, each with the fields of the log; ``score`` columns as mappings."""
        return self._ask(run, choice.first, choice.last, lambda paths: self._rows(paths, choice))

    def steps(self, run: str, first: int | None, last: int | None, limit: int) -> list[Row]:
        """Steps that are kept, the latest first, with the number of rows."""
        where, values = _where(Choice(first, last))
        text = f"SELECT step, count(*) AS rows FROM {_FROM} {where} GROUP BY step ORDER BY step DESC LIMIT ?"
        return self._ask(run, first, last, lambda paths: self._fetch(text, [paths, *values, limit]))

    def nearest(self, run: str, step: int, within: Within | None = None, *, before: bool) -> int | None:
        """The kept step closest to ``step``: the last one before it, or the first one from it on."""
        first, last = (None, step - 1) if before else (step, None)
        where, values = _where(Choice(first, last, within=within))
        text = f"SELECT {'max' if before else 'min'}(step) AS step FROM {_FROM} {where}"
        found = self._ask(run, first, last, lambda paths: self._fetch(text, [paths, *values]))
        return found[0]["step"] if found else None

    def summary(self, run: str, step: int, within: Within | None = None) -> Row | None:
        """Counts, means and shares of one step's kept rows; None if none is kept."""
        where, values = _where(Choice(step, step, within=within))
        text = f"SELECT {_SUMMARY} FROM {_FROM} {where}"
        found = self._ask(run, step, step, lambda paths: self._fetch(text, [paths, *values]))
        return found[0] if found and found[0]["rows"] else None

    def shared_prompts(self, run: str, before: int, after: int, limit: int, text: int) -> list[Row]:
        """Prompts that both steps have, those first whose mean reward fell most."""
        statement = f"""
            WITH mean AS (
                SELECT prompt, step, count(*) AS rows, avg(reward) AS reward, avg(chars) AS chars
                FROM {_FROM} WHERE step IN (?, ?) AND prompt IS NOT NULL GROUP BY prompt, step
            )
            SELECT left(old.prompt, ?) AS prompt, old.rows AS before_rows, old.reward AS before_reward,
                   old.chars AS before_chars, new.rows AS after_rows, new.reward AS after_reward,
                   new.chars AS after_chars
            FROM mean AS old JOIN mean AS new ON old.prompt = new.prompt AND old.step = ? AND new.step = ?
            ORDER BY new.reward - old.reward NULLS LAST, old.prompt LIMIT ?
        """
        values = [before, after, text, before, after, limit]
        wanted = (before, after)
        return self._ask(run, min(wanted), max(wanted), lambda paths: self._fetch(statement, [paths, *values]))

    def interrupt(self) -> None:
        """Ends the question that is being answered."""
        if (connection := self._connection) is not None:
            connection.interrupt()

    def close(self) -> None:
        """Lets go of the database."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _rows(self, paths: list[str], choice: Choice) -> list[Row]:
        """First which rows, by their numbers alone; then their texts, which are most of the bytes."""
        where, values = _where(choice)
        order = _ORDERS[choice.sort, choice.descending]
        found = self._fetch(
            f"SELECT filename, file_row_number, step FROM {_FROM} {where} "
            f"ORDER BY {order}, step, time, row, filename, file_row_number LIMIT ? OFFSET ?",
            [paths, *values, choice.limit, choice.offset],
        )
        if not found:
            return []
        needed = sorted({one["filename"] for one in found})
        steps = sorted({one["step"] for one in found})
        places = {(one["filename"], one["file_row_number"]): rank for rank, one in enumerate(found)}
        columns = ", ".join(f"left({name}, ?) AS {name}" if name in _TEXTS else f'"{name}"' for name in KEPT.names)
        rows = self._fetch(
            f"SELECT filename, file_row_number, {columns} FROM {_FROM} "
            "WHERE step >= ? AND step <= ? AND list_contains(?::BIGINT[], step) "
            "AND list_contains(?::BIGINT[], file_row_number)",
            [*[choice.text] * len(_TEXTS), needed, steps[0], steps[-1], steps, [key[1] for key in places]],
        )
        chosen = [row for row in rows if (row["filename"], row["file_row_number"]) in places]
        chosen.sort(key=lambda row: places[row["filename"], row["file_row_number"]])
        for row in chosen:
            del row["filename"], row["file_row_number"]
        return chosen

    def _ask(self, run: str, first: int | None, last: int | None, question: Callable[[list[str]], list[T]]) -> list[T]:
        folder = Folder(self._root, run)
        for attempt in range(_TRIES):
            paths = [str(one.path) for one in folder.files() if _overlaps(one, first, last)]
            if not paths:
                return []
            try:
                with self._lock:
                    return question(paths)
            except duckdb.IOException as error:
                # A file that was merged into another while we looked; the next look finds the other one.
                if attempt == _TRIES - 1:
                    raise RolloutsUnavailable("the rollout files can't be read now") from error
            except (duckdb.OutOfMemoryException, duckdb.InterruptException) as error:
                raise RolloutsUnavailable(
                    f"the question takes more than {_MEMORY} of memory or {_SECONDS:.0f} seconds; ask for fewer steps"
                ) from error
            except duckdb.Error as error:
                raise RolloutsUnavailable(f"the rollout files can't be read ({type(error).__name__})") from error
        return []

    def _fetch(self, text: str, values: Sequence[Any]) -> list[Row]:
        connection = self._connected()
        timer = threading.Timer(_SECONDS, connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            result = connection.execute(text, list(values))
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        finally:
            timer.cancel()

    def _connected(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            config: dict[str, Any] = {
                "memory_limit": _MEMORY,
                "threads": _THREADS,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
            connection = duckdb.connect(":memory:", config=config)
            folder = str(self._root).replace("'", "''")
            connection.execute(f"SET allowed_directories = ['{folder}']")
            connection.execute("SET temp_directory = ''")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            self._connection = connection
        return self._connection


_FROM: Final = "read_parquet(?, filename = true, file_row_number = true)"


def _overlaps(file: Stored, first: int | None, last: int | None) -> bool:
    return (first is None or file.last >= first) and (last is None or file.first <= last)


def _where(choice: Choice) -> tuple[str, list[Any]]:
    """The condition and its values."""
    conditions = {
        "step >= ?": choice.first,
        "step <= ?": choice.last,
        "(attempt IS NULL OR attempt = ?)": choice.attempt,
        '"group" = ?': choice.group,
        "domain = ?": choice.domain,
        "finish_reason = ?": choice.finish_reason,
        "contains(response, ?)": choice.contains,
        "reward >= ?": choice.least_reward,
        "reward <= ?": choice.most_reward,
    }
    given = {text: value for text, value in conditions.items() if value is not None}
    texts, values = list(given), list(given.values())
    if choice.within is not None:
        text, more = choice.within.condition()
        texts, values = [*texts, text], [*values, *more]
    return ("WHERE " + " AND ".join(texts) if texts else ""), values
