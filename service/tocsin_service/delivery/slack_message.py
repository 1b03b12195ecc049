"""Slack's messages: Block Kit, within its limits, with nothing in it that a client could make call or link.

Formats and limits: https://docs.slack.dev/block-kit and https://docs.slack.dev/messaging/formatting-message-text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tocsin_service.delivery import News, Reason
from tocsin_service.delivery.digest import (
    LINK_LIMIT,
    NAME_LIMIT,
    Digest,
    Section,
    actions,
    cut,
    digest,
    flatten,
    summary,
    web_address,
    width,
)
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.words import Words

__all__ = ["Mrkdwn", "escape", "render", "render_reply", "render_summary", "without_picture"]

HEADER_LIMIT = 150
SECTION_LIMIT = 3000
ADDRESS_LIMIT = 2900  # Slack: 3000 for a button and for a picture
ALT_LIMIT = 2000
FALLBACK_LIMIT = 1000  # the text of notifications, which Slack cuts at some 40,000


class Mrkdwn:
    """Slack's markup. It escapes three characters; what it can't escape is replaced."""

    def text(self, text: str, limit: int = NAME_LIMIT) -> str:
        return escape(text, limit)

    def label(self, text: str) -> str:
        return f"*{escape(text)}*"

    def name(self, text: str, limit: int = NAME_LIMIT, link: str | None = None) -> str:
        address = (web_address(link) or "").replace("&", "&amp;")
        escaped = escape(text, limit)
        return f"<{address}|{escaped}>" if 0 < len(address) <= LINK_LIMIT else f"`{escaped}`"


def escape(text: str, limit: int = NAME_LIMIT) -> str:
    """``text`` as Slack shows it literally: no links, mentions or broken lines, at most ``limit`` characters long.

    Everything that came from a client passes through here: a run called ``<!channel>`` must not call the channel.
    """
    escaped, length = "", 0
    for char in flatten(text).replace("`", "'"):
        piece = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(char, char)
        length += width(piece)
        if length > limit - 1:
            return escaped + "…"
        escaped += piece
    return escaped


def render(news: News, shown: Presentation = PLAIN) -> dict[str, Any]:
    """The whole message: what is known of the incident, its picture, and buttons to act."""
    told = digest(news, shown, Mrkdwn())
    blocks = [_header(told.title), *_sections(told), *_picture(news, shown, told.title), *_buttons(news, shown)]
    return _message(news, shown, told, blocks)


def render_reply(news: News, shown: Presentation = PLAIN) -> dict[str, Any]:
    """The message for those who have an earlier one: the whole again if it got worse, else only what is new."""
    if news.reason is Reason.ESCALATED:
        return render(news, shown)
    told = digest(news, shown, Mrkdwn(), brief=True)
    buttons = _buttons(news, shown) if news.reason is Reason.REMINDED else []
    return _message(news, shown, told, [_header(told.title), *_sections(told), *buttons])


def render_summary(news: Sequence[News], shown: Presentation = PLAIN) -> dict[str, Any]:
    """One message for many pieces of news."""
    told = summary(news, shown, Mrkdwn())
    return _wrapped(escape(told.title, FALLBACK_LIMIT), [_header(told.title), *_sections(told)])


def without_picture(message: dict[str, Any]) -> dict[str, Any] | None:
    """The message without its picture; None if it has none."""
    blocks = [block for block in message["blocks"] if block["type"] != "image"]
    return None if len(blocks) == len(message["blocks"]) else {**message, "blocks": blocks}


def _message(news: News, shown: Presentation, told: Digest, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    fallback = Words(shown.lang)(
        "{title} — run {run}, step {step}",
        title=escape(told.title, FALLBACK_LIMIT - 2 * NAME_LIMIT),
        run=escape(news.incident.run),
        step=news.incident.onset_step,
    )
    return _wrapped(fallback, blocks)


def _wrapped(fallback: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"text": fallback, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _header(title: str) -> dict[str, Any]:
    return {"type": "header", "text": _plain(title, HEADER_LIMIT)}


def _plain(text: str, limit: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": _literal(text, limit), "emoji": True}


def _literal(text: str, limit: int) -> str:
    """For where Slack has no markup, and thus no way to escape: nothing that it could take for some."""
    return cut(text.replace("<", "‹").replace(">", "›"), limit)


def _sections(told: Digest) -> Iterable[dict[str, Any]]:
    for section in told.sections:
        for text in _packed(section):
            # verbatim: Slack looks for no addresses and names in it by itself
            yield {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _packed(section: Section) -> Iterable[str]:
    """The section's lines, in as few texts as Slack's limit allows; every line is far shorter than that."""
    text = "" if section.heading is None else f"*{section.heading}*"
    for line in section.lines:
        if text and width(text) + 1 + width(line) > SECTION_LIMIT:
            yield text
            text = ""
        text = f"{text}\n{line}" if text else line
    if text:
        yield text


def _picture(news: News, shown: Presentation, title: str) -> list[dict[str, Any]]:
    address = web_address(shown.link("picture", news.incident), ADDRESS_LIMIT)
    if address is None:
        return []
    return [{"type": "image", "image_url": address, "alt_text": _literal(title, ALT_LIMIT)}]


def _buttons(news: News, shown: Presentation) -> list[dict[str, Any]]:
    """Links to the incident's page: what they lead to changes nothing by being looked at."""
    page, say = web_address(shown.link("incident", news.incident), ADDRESS_LIMIT), Words(shown.lang)
    if page is None or not actions(news):
        return []
    texts = {"acknowledge": say("Acknowledge"), "silence": say("Silence")}
    buttons = [
        {"type": "button", "action_id": action, "text": _plain(texts[action], 75), "url": f"{page}#{action}"}
        for action in actions(news)
    ]
    return [{"type": "actions", "elements": buttons}]
