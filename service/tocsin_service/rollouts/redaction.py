"""What must not be kept is taken out of the texts before they reach the disk.

Two ways, one after the other: regular expressions of a file, whose matches become ``[redacted]``, and a function of the
operator's own, ``module:function``, that takes a text and gives back another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from tocsin_service.rollouts.errors import RolloutsUnavailable
from tocsin_service.rollouts.schema import TEXTS

__all__ = ["Redaction"]

MARK = "[redacted]"
Hook = Callable[[str], str]


class Redaction:
    """Takes texts out.

    Args:
        patterns: file with one regular expression a line; lines that are empty or begin with # say nothing.
        hook: ``module:function``.

    Raises:
        ValueError: the file can't be read, an expression is none, or there is no such function.
    """

    def __init__(self, patterns: Path | None, hook: str | None) -> None:
        self._patterns = [] if patterns is None else _read(patterns)
        self._hook = None if hook is None else _load(hook)

    def apply(self, table: pa.Table) -> pa.Table:
        """The table with its texts redacted.

        Raises:
            RolloutsUnavailable: the function failed, so nothing may be kept.
        """
        if not self._patterns and self._hook is None:
            return table
        for name in TEXTS:
            column = table.column(name)
            # Prompts stand many times: each text is looked at once.
            texts: list[str | None] = column.to_pylist()
            redacted = {text: self._redacted(text) for text in set(texts) if text is not None}
            changed = [None if text is None else redacted[text] for text in texts]
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(changed, column.type))
        return table

    def _redacted(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(MARK, text)
        if self._hook is None:
            return text
        try:
            text = self._hook(text)
            text.encode()
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            # Not its message: it may hold the text.
            raise RolloutsUnavailable(f"the redaction hook failed ({type(error).__name__}); nothing was kept") from None
        return text


def _read(path: Path) -> Sequence[re.Pattern[str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"rollout_redact: {path} can't be read: {type(error).__name__}") from None
    patterns = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                patterns.append(re.compile(line))
            except re.error as error:
                raise ValueError(f"rollout_redact: {path}, line {number}: no regular expression: {error}") from None
    return patterns


def _load(hook: str) -> Hook:
    module, _, name = hook.partition(":")
    try:
        found: Hook = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"rollout_hook: {hook} can't be loaded: {error}") from None
    if not callable(found):
        raise ValueError(f"rollout_hook: {hook} is no function")  # noqa: TRY004 - a setting is wrong
    return found
