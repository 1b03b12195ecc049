"""Which run a log is of, going by its path: what is in a folder of its own is called like the folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["is_events", "name_in", "name_of", "stem_of"]

# What frameworks call the file of any run.
_COMMON = frozenset({"metrics", "logging", "log", "logs", "train", "trainer_state", "console", "output", "stdout"})
_SEPARATOR = ":"
_LONGEST = 128


def is_events(path: Path) -> bool:
    """Whether a file is named as TensorBoard's writers name theirs."""
    return "tfevents" in path.name


def stem_of(path: Path) -> str:
    """The file's name without its endings."""
    return path.name.split(".")[0] or path.name


def name_of(path: Path) -> str:
    """The name of the run that a log, or a folder of one, is of."""
    whole = path.resolve()
    belongs = whole.parent if _is_common(whole) and not whole.is_dir() else whole
    stem = belongs.name if belongs != whole or whole.is_dir() else stem_of(path)
    return _accepted([stem], str(whole))


def name_in(folder: Path, path: Path) -> str:
    """The same for a log that was found in a folder: from its path there, so that no two have the same."""
    relative = path.relative_to(folder)
    parts = list(relative.parent.parts)
    if not _is_common(path):
        parts.append(stem_of(path))
    return _accepted(parts, relative.as_posix()) if parts else name_of(folder)


def _is_common(path: Path) -> bool:
    return stem_of(path).lower() in _COMMON or is_events(path) or path.suffix == ".wandb"


def _accepted(parts: Iterable[str], path: str) -> str:
    """The parts as one id that the service takes; where it had to be changed, a checksum keeps it apart from others."""
    raw = [*parts]
    name = _SEPARATOR.join(raw)
    accepted = "".join(c if c.isprintable() and c != "\\" else "_" for c in name)
    changed = accepted != name or any(_SEPARATOR in part for part in raw) or len(name) > _LONGEST
    if not changed and accepted.strip() and accepted not in {".", ".."}:
        return accepted
    digest = hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{accepted[: _LONGEST - 9]}-{digest}"
