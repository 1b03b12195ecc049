"""Names with placeholders: matching a name against "val-core/{source}/{var}/mean@{n}", and filling one in."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["Pattern", "fill"]

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SEGMENT = "[^/]+"
# What a placeholder may stand for; anything else is one segment between slashes.
_KINDS: Mapping[str, str] = {
    "source": ".+",  # data sources are often named like repositories: "openai/gsm8k"
    "ds": "(?!(?:lag_)?steps?$)[^/]+",  # beside "eval/gsm8k" stands the step axis "eval/step"
    "stage": ".+",
    "rest": ".+",
    "n": r"\d+",
    "i": r"\d+",
    "word": "[^/_]+",  # the last part of a name whose slashes became underscores
    "stat": "mean|std",
    "pick": "best|worst|maj",
    "spread": "mean|std",
    # verl's rejection options: all, those of k1, which has a sign, and those of k2 and k3, which have none
    "option": "token_k[123]|seq_(?:sum|mean)_k[123]|seq_max_k[23]",
    "signed": "token_k1|seq_(?:sum|mean)_k1",
    "unsigned": "token_k[23]|seq_(?:sum|mean|max)_k[23]",
}


class Pattern:
    """A name with placeholders.

    Args:
        template: the name, e.g. "timing_s/{stage}". A placeholder may occur more than once: then with equal text.
    """

    __slots__ = ("_prefix", "_regex", "_suffix", "rank", "template")

    def __init__(self, template: str) -> None:
        self.template = template
        literals = _PLACEHOLDER.sub("\0", template).split("\0")
        self._prefix, self._suffix = literals[0], literals[-1]
        self._regex: re.Pattern[str] | None = None
        # The pattern with the most literal text is the most specific one and is tried first.
        self.rank = (-sum(map(len, literals)), template)

    def match(self, name: str) -> dict[str, str] | None:
        """What the placeholders stand for in ``name``; None if it doesn't fit."""
        if not (name.startswith(self._prefix) and name.endswith(self._suffix)):
            return None
        if self._regex is None:
            self._regex = _compile(self.template)  # late: most patterns never meet a name with their beginning
        found = self._regex.fullmatch(name)
        return None if found is None else found.groupdict()


def fill(template: str, parts: Mapping[str, str]) -> str:
    """The template with its placeholders replaced."""
    return _PLACEHOLDER.sub(lambda found: parts[found.group(1)], template)


def _compile(template: str) -> re.Pattern[str]:
    seen: set[str] = set()
    pieces: list[str] = []
    end = 0
    for found in _PLACEHOLDER.finditer(template):
        name = found.group(1)
        pieces.append(re.escape(template[end : found.start()]))
        pieces.append(f"(?P={name})" if name in seen else f"(?P<{name}>{_KINDS.get(name, _SEGMENT)})")
        seen.add(name)
        end = found.end()
    pieces.append(re.escape(template[end:]))
    return re.compile("".join(pieces), re.DOTALL)
