"""Sentences with numbers in them: said in English, and read back so that another language can say the same.

The arithmetic of an alert is kept and sent as one English sentence, without a second record beside it. A :class:`Form`
is what such a sentence is made of. Since it tells which place holds a number and which a name, it also finds the values
in a sentence again, digit by digit as they were written. Decision 15 has the reasons.
"""

from __future__ import annotations

import functools
import re
from string import Formatter

__all__ = ["Form", "Sentence"]

_NUMBER = r"-?(?:[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?|inf|nan)"


class Sentence:
    """What a form says with its values. The text is made when somebody reads it: most signs become no alert.

    Two sentences are equal if they read the same.
    """

    __slots__ = ("_form", "_values")

    def __init__(self, form: str, values: dict[str, object] | None) -> None:
        self._form, self._values = form, values

    @classmethod
    def verbatim(cls, text: str) -> Sentence:
        """A sentence that was said before, e.g. one from a snapshot."""
        return cls(text, None)

    def __str__(self) -> str:
        return self._form if self._values is None else self._form.format_map(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sentence) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"Sentence({str(self)!r})"


class Form:
    """An English sentence with places for values: ``Form("{value:.4g} is above {limit:.4g}")(value=3, limit=2)``.

    Every form is written out as one literal, so that a test finds them all and asks for their translations. A place for
    a number says how it is written (``{count:d}``, ``{share:.0%}``); one that says nothing holds any text, such as a
    metric's name.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, **values: object) -> Sentence:
        """The sentence with these values."""
        return Sentence(self.text, values)

    def read(self, sentence: str) -> dict[str, str] | None:
        """The values as they stand in a sentence of this form; None if it is none.

        >>> Form("{value:.4g} is above {limit:.4g}").read("3.25 is above 1e-07")
        {'value': '3.25', 'limit': '1e-07'}
        """
        found = _pattern(self.text).fullmatch(sentence)
        return None if found is None else found.groupdict()


@functools.cache
def _pattern(form: str) -> re.Pattern[str]:
    parts = []
    for words, place, spec, _ in Formatter().parse(form):
        parts.append(re.escape(words))
        if place is not None:
            value = ".*" if not spec else f"{_NUMBER}%" if spec.endswith("%") else _NUMBER
            parts.append(f"(?P<{place}>{value})")
    return re.compile("".join(parts), re.DOTALL)
