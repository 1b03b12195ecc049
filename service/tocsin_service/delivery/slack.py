"""Slack, by an incoming webhook: one message per incident."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from tocsin_detectors.alerts import Alert, Evidence, Incident
from tocsin_detectors.entries import RunConfig
from tocsin_service.delivery import Reason, Result
from tocsin_service.delivery.posting import TIMEOUT_SECONDS, Poster
from tocsin_service.presentation import PLAIN, Presentation
from tocsin_service.words import Words

__all__ = ["Slack", "escape", "render"]

# Slack takes 3000 characters in a section; the limits below keep every section under it.
TITLE_LIMIT = 150  # Slack's limit for a header block
NAME_LIMIT = 200
METRIC_LIMIT = 100
MEMBERS_SHOWN = 8
REMEDIES_SHOWN = 3
LINK_LIMIT = 1600

_ICONS = {Reason.OPENED: "🔔", Reason.ESCALATED: "🔺", Reason.RESOLVED: "✅"}
_HEADLINES = {Reason.OPENED: "{title}", Reason.ESCALATED: "worse: {title}", Reason.RESOLVED: "resolved: {title}"}


class Slack:
    """Sends to one incoming webhook.

    Args:
        webhook: the address that Slack gave; a secret that is in no message, log or representation.
        shown: language and links of the messages.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
    """

    name = "slack"

    def __init__(self, webhook: str, shown: Presentation = PLAIN, timeout: float = TIMEOUT_SECONDS) -> None:
        self._poster, self._shown = Poster(webhook, "check the webhook in Slack", timeout), shown

    def send(self, reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig) -> Result:
        message = render(reason, incident, alerts, config, self._shown)
        return self._poster.post(json.dumps(message, allow_nan=False).encode())

    def close(self) -> None:
        self._poster.close()


def escape(text: str, limit: int = NAME_LIMIT) -> str:
    """``text`` as Slack shows it literally: no links, mentions or broken lines, at most ``limit`` characters long.

    Everything that came from a client passes through here: a run called ``<!channel>`` must not call the channel.
    """
    flat = " ".join(text.split()).replace("`", "'")
    escaped = ""
    for char in flat:
        piece = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(char, char)
        if len(escaped) + len(piece) > limit - 1:
            return escaped + "…"
        escaped += piece
    return escaped


def render(
    reason: Reason,
    incident: Incident,
    alerts: Sequence[Alert],
    config: RunConfig,
    shown: Presentation = PLAIN,
) -> dict[str, Any]:
    """The message: what broke, the first sign, where to go back to, the numbers, and what to do.

    Args:
        reason: why it is sent.
        incident: as it is now.
        alerts: its members in order of onset.
        config: of the run; its link is shown if it is one.
        shown: language and links.
    """
    say, told = Words(shown.lang), shown.incident(incident)
    headline = say(_HEADLINES[reason], title=told["title"] or incident.rule)
    title = f"{_ICONS[reason]} {say(incident.severity)}{say(': ')}{headline}"
    sections = [_facts(reason, incident, alerts, config, shown)]
    if alerts:
        sections.append(f"{say('*Numbers*')}\n{_numbers(alerts, say)}")
    if told["meaning"]:
        sections.append(f"{say('*What it means*')}\n{escape(told['meaning'], 1000)}")
    if told["remedies"] and reason is not Reason.RESOLVED:
        remedies = [escape(text, 400) for text in told["remedies"][:REMEDIES_SHOWN]]
        numbered = (f"{number}. {text}" for number, text in enumerate(remedies, 1))
        sections.append(f"{say('*What to do*')}\n" + "\n".join(numbered))
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(title, TITLE_LIMIT), "emoji": True}}
    ]
    blocks += [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in sections]
    fallback = say(
        "{title} — run {run}, step {step}", title=escape(title), run=escape(incident.run), step=incident.onset_step
    )
    return {"text": fallback, "blocks": blocks, "unfurl_links": False}


def _facts(reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig, shown: Presentation) -> str:
    say = Words(shown.lang)
    lines = [say("*Run* {run}, attempt {attempt}", run=_run(incident.run, config.link), attempt=incident.attempt)]
    first = next((alert for alert in alerts if alert.id == incident.first_sign), None)
    if first is not None:
        where = f"`{escape(first.source)}`"
        lines.append(say("*First sign* {rule} on {metric}", rule=escape(first.rule), metric=where))
    lines.append(say("*Onset* step {step}", step=incident.onset_step))
    good = incident.last_good_step
    lines.append(say("*Last good step* {step}", step=say("none: wrong from the start") if good is None else good))
    if reason is Reason.RESOLVED and incident.resolved_step is not None:
        lines.append(say("*Resolved* at step {step}", step=incident.resolved_step))
    if (page := shown.runbook(incident.rule)) is not None:
        address = _address(page)
        link = f"`{escape(page)}`" if address is None else f"<{address}|{escape(incident.rule)}>"
        lines.append(say("*Runbook* {link}", link=link))
    return "\n".join(lines)


def _run(run: str, link: str | None) -> str:
    address = _address(link)
    return f"`{escape(run)}`" if address is None else f"<{address}|{escape(run)}>"


def _address(link: str | None) -> str | None:
    """The link as it may stand in a message; None if it isn't a plain http(s) address."""
    if link is None or not link.isprintable() or any(char in link for char in ' <>|"`\\'):
        return None
    try:
        parts = urlsplit(link)
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        return None
    escaped = link.replace("&", "&amp;")
    return escaped if len(escaped) <= LINK_LIMIT else None


def _numbers(alerts: Sequence[Alert], say: Words) -> str:
    lines = [
        say(
            "{numbers} — {rule}, since step {step}",
            numbers=f"• `{escape(alert.source, METRIC_LIMIT)}` {_evidence(alert.evidence, say)}",
            rule=escape(alert.rule, METRIC_LIMIT),
            step=alert.onset_step,
        )
        for alert in alerts[:MEMBERS_SHOWN]
    ]
    if len(alerts) > MEMBERS_SHOWN:
        lines.append(say("… and {count} more", count=len(alerts) - MEMBERS_SHOWN))
    return "\n".join(lines)


def _evidence(evidence: Evidence, say: Words) -> str:
    parts = [f"{evidence.value:.6g}"]
    if evidence.baseline is not None:
        parts.append(say("baseline {value}", value=f"{evidence.baseline:.6g}"))
    if evidence.limit is not None:
        parts.append(say("limit {value}", value=f"{evidence.limit:.6g}"))
    return say(", ").join(parts)


def _cut(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
