"""Finds the logs in a folder: of several runs, of one in several files, or a single file."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tocsin.readers._fields import has_step
from tocsin.readers._lines import text_of
from tocsin.readers._naming import is_events, name_in, name_of
from tocsin.readers._open import pieces
from tocsin.readers._source import ReadError, Source
from tocsin.readers.json_lines import parse, row_format
from tocsin.readers.table import cells_of

__all__ = ["Finder", "Log", "find"]

_DEEPEST = 8
_MOST_FILES = 100_000
_MOST_LOGS = 1_000
_LINES = (".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv")
_STATE = "trainer_state.json"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_EVENTS_TIME = re.compile(r"tfevents\.(\d+)")
# What rows of samples have, and rows of metrics don't.
_SAMPLE = frozenset(
    {"prompt", "prompts", "completion", "completions", "response", "responses", "messages", "input", "output", "text"}
)
_LONGEST_TEXT = 200


class Log(NamedTuple):
    """The log of one run.

    Attributes:
        name: an id for the run, made from the path.
        key: tells it from all other logs; it stays when further files of the run are found.
        paths: its files, in the order in which they are to be read.
    """

    name: str
    key: str
    paths: tuple[Path, ...]


def find(source: str | os.PathLike[str]) -> list[Log]:
    """The logs of a source: a file is one; of a folder see :class:`Finder`.

    Raises:
        ReadError: a folder without any log.
    """
    logs = Finder(Path(source)).find()
    if not logs:
        raise ReadError(os.fspath(source), None, "is a folder without a log that could be told by its name and content")
    return logs


class Finder:
    """Finds the logs of a source, again and again, without reading a file twice to see what it is.

    In a folder, each of these is a run of its own: a folder with TensorBoard's event files; an offline run of wandb;
    each JSONL or CSV file of metrics (those of samples are passed over); a folder with Hugging Face checkpoints, of
    which the newest has the whole history, if there is no other log in it. Hidden folders and links are left alone.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self._known: dict[tuple[Path, int], bool] = {}

    def find(self) -> list[Log]:
        """The logs that are there now, by their path."""
        if self.source.is_dir():
            return self._in_folder()[:_MOST_LOGS]
        name = "stdin" if str(self.source) == "-" else name_of(self.source)
        return [Log(name, str(self.source.absolute()), (self.source,))]

    def _in_folder(self) -> list[Log]:
        groups: dict[Path, list[Path]] = defaultdict(list)
        histories: dict[Path, list[Path]] = defaultdict(list)
        for path in self._files():
            if is_events(path):
                groups[path.parent / "events"].append(path)
            elif path.name == _STATE:
                parent = path.parent
                histories[parent.parent if _CHECKPOINT.fullmatch(parent.name) else parent].append(path)
            elif path.suffix == ".wandb" or self._has_metrics(path):
                groups[path].append(path)
        for folder, states in histories.items():
            if not any(folder in path.parents for path in groups):
                groups[folder / _STATE].append(_newest(states))
        return [self._log(key, paths) for key, paths in sorted(groups.items())]

    def _log(self, key: Path, paths: list[Path]) -> Log:
        ordered = tuple(sorted(paths, key=_age))
        name = name_in(self.source, ordered[0] if key.name == "events" else key)
        return Log(name, str(key.absolute()), ordered)

    def _files(self) -> Iterator[Path]:
        count = 0
        for folder, folders, names in os.walk(self.source):
            here = Path(folder)
            deep = len(here.relative_to(self.source).parts) >= _DEEPEST
            folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                count += 1
                if count > _MOST_FILES:
                    return
                path = here / name
                if not name.startswith(".") and not path.is_symlink():
                    yield path

    def _has_metrics(self, path: Path) -> bool:
        kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
        if kind not in _LINES + _TABLES:
            return False
        try:
            known = (path, path.stat().st_ino)
            if known not in self._known:
                line = _first_line(path)
                if line is None:
                    return False
                self._known[known] = has_step(cells_of(line)) if kind in _TABLES else _is_row(line)
        except (OSError, ReadError):
            return False
        return self._known[known]


def _newest(states: list[Path]) -> Path:
    """The state with the longest history: of the last checkpoint, or of the end if that was written after it."""
    numbered = [path for path in states if _CHECKPOINT.fullmatch(path.parent.name)]
    last = max(numbered, key=lambda path: int(path.parent.name.rpartition("-")[2]), default=states[0])
    return max((path for path in states if path == last or path not in numbered), key=_modified)


def _modified(path: Path) -> tuple[int, int]:
    try:
        return path.stat().st_mtime_ns, -len(path.parts)
    except OSError:
        return 0, 0


def _age(path: Path) -> tuple[int, str]:
    found = _EVENTS_TIME.search(path.name)
    return int(found[1]) if found else 0, path.name


def _first_line(path: Path) -> str | None:
    """The first line; None if it isn't complete."""
    piece = next(pieces(Source(str(path), skip_broken=True)), b"")
    line, end, _ = piece.partition(b"\n")
    return text_of(line, 0) if end else None


def _is_row(line: str) -> bool:
    """Whether a line of JSON tells metrics rather than what a model wrote."""
    try:
        data = parse(line)
    except ValueError:
        return False
    if not isinstance(data, Mapping):
        return False
    if row_format(data) != "flat":
        return True
    names = {str(name).lower() for name in data}
    return not names & _SAMPLE and not any(isinstance(v, str) and len(v) > _LONGEST_TEXT for v in data.values())
