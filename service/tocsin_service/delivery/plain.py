"""Messages as plain text, for everybody who has no markup that could be relied on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tocsin_service.delivery import News
from tocsin_service.delivery.digest import NAME_LIMIT, Digest, Section, actions, cut, digest, summary, web_address
from tocsin_service.presentation import Presentation
from tocsin_service.words import Words

__all__ = ["Plain", "neutral", "text_of", "text_of_many"]

# What chat programs take for a call of people or a link though they were sent plain text: "@all", "<!channel>",
# "[click](https://...)". An @ within a word, as in "mean@8", calls nobody.
_CALLS = re.compile(r"(?<!\w)@(?=\w)|<(?=\s*[!@#])|\](?=\()")
_HARMLESS = {"@": "＠", "<": "‹", "]": "] "}


def neutral(text: str) -> str:
    """``text`` without anything that chat programs act upon."""
    return _CALLS.sub(lambda found: _HARMLESS[found[0]], text)


class Plain:
    """No markup."""

    def text(self, text: str, limit: int = NAME_LIMIT) -> str:
        return cut(neutral(text), limit)

    def label(self, text: str) -> str:
        return f"{text}:"

    def name(self, text: str, limit: int = NAME_LIMIT, link: str | None = None) -> str:
        address = web_address(link)
        return self.text(text, limit) if address is None else f"{self.text(text, limit)} ({neutral(address)})"


def text_of(news: News, shown: Presentation) -> tuple[str, str]:
    """Title and text of a message; where to act on it stands near the beginning, as some receivers cut the end."""
    told = digest(news, shown, Plain())
    first, *others = told.sections
    say, page = Words(shown.lang), web_address(shown.link("incident", news.incident))
    if page is not None and (possible := actions(news)):
        act = say("Acknowledge or silence") if "acknowledge" in possible else say("Silence")
        first = Section(None, (*first.lines, f"{act}: {page}"))
    return _written(Digest(told.title, (first, *others)))


def text_of_many(news: Sequence[News], shown: Presentation) -> tuple[str, str]:
    """Title and text of one message for many pieces of news."""
    return _written(summary(news, shown, Plain()))


def _written(told: Digest) -> tuple[str, str]:
    paragraphs = [
        "\n".join(section.lines if section.heading is None else (f"{section.heading}:", *section.lines))
        for section in told.sections
    ]
    return Plain().text(told.title), "\n\n".join(paragraphs)
