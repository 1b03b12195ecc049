"""A secret that may change while the service runs: its file is read again when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tocsin_service.identity import identity

__all__ = ["Secret"]

logger = logging.getLogger(__name__)


def _accept(_: str) -> None:
    pass


class Secret:
    """A text that no log, message or representation may show.

    Args:
        value: the secret; as it was last read, if there is a file.
        file: where it stands, None if it can't change. The file may be replaced at any time; one that is missing,
            empty or refused leaves the earlier secret in use.
        check: raises :class:`ValueError` for a text that can't be this secret, in a message that doesn't repeat it.

    Raises:
        ValueError: ``value`` is none.
    """

    def __init__(self, value: str, file: Path | None = None, check: Callable[[str], object] = _accept) -> None:
        check(value)
        self._value, self._file, self._check = value, file, check
        self._seen: tuple[int, ...] | None = None  # what the file was when it was read last; not at the start

    @classmethod
    def of_file(cls, file: Path, check: Callable[[str], object] = _accept) -> Secret:
        """The secret that stands in ``file``.

        Raises:
            ValueError: it can't be read, is empty, or ``check`` refuses it.
        """
        return cls(_read(file), file, check)

    def read(self) -> str:
        """The secret as it is now."""
        if self._file is not None and (found := identity(self._file)) != self._seen:
            self._seen = found
            try:
                value = _read(self._file)
                self._check(value)
                self._value = value
            except ValueError as problem:
                logger.warning("the earlier secret stays in use: %s", problem)
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"


def _read(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} can't be read: {type(error).__name__}") from None
    if not text:
        raise ValueError(f"{file} is empty")
    return text
