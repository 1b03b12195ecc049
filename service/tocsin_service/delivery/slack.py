"""Slack, by an incoming webhook: one message per incident."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tocsin_detectors.alerts import Alert, Evidence, Incident
from tocsin_detectors.entries import RunConfig
from tocsin_service.delivery import Failed, Reason, Result, Retry, Sent

__all__ = ["Slack", "escape", "render"]

TIMEOUT_SECONDS = 10.0
LONGEST_RETRY_AFTER = 3600.0  # a receiver must not be able to silence itself for a day
# Slack takes 3000 characters in a section; the limits below keep every section under it.
TITLE_LIMIT = 150  # Slack's limit for a header block
NAME_LIMIT = 200
METRIC_LIMIT = 100
MEMBERS_SHOWN = 8
REMEDIES_SHOWN = 3
LINK_LIMIT = 2000

_ICONS = {Reason.OPENED: "🔔", Reason.ESCALATED: "🔺", Reason.RESOLVED: "✅"}
_VERBS = {Reason.OPENED: "", Reason.ESCALATED: "worse: ", Reason.RESOLVED: "resolved: "}


class Slack:
    """Sends to one incoming webhook.

    Args:
        webhook: the address that Slack gave; a secret that is in no message, log or representation.
        timeout: seconds for an attempt to connect, and for each wait for an answer.
    """

    name = "slack"

    def __init__(self, webhook: str, timeout: float = TIMEOUT_SECONDS) -> None:
        # The HTTP library logs every address it calls, and this address is a password.
        for library in ("httpx2", "httpcore2"):
            logging.getLogger(library).setLevel(logging.WARNING)
        self._webhook = webhook
        self._client = httpx2.Client(timeout=timeout, follow_redirects=False)

    def send(self, reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig) -> Result:
        try:
            response = self._client.post(self._webhook, json=render(reason, incident, alerts, config))
        except httpx2.HTTPError as error:
            return Retry(type(error).__name__)  # its text may hold the address
        status = response.status_code
        if 200 <= status < 300:
            return Sent()
        if status == 429:
            return Retry("HTTP 429: too many messages", _retry_after(response.headers.get("retry-after")))
        if status in {408, 425} or status >= 500:
            return Retry(f"HTTP {status}")
        return Failed(f"HTTP {status}: {self._redact(response.text)[:100]!r}; check the webhook in Slack")

    def close(self) -> None:
        self._client.close()

    def _redact(self, text: str) -> str:
        path = urlsplit(self._webhook).path
        return text.replace(self._webhook, "***").replace(path, "***") if len(path) > 1 else text


def _retry_after(value: str | None) -> float:
    try:
        seconds = float(value or "")
    except ValueError:  # absent, or a date: Slack sends seconds
        return 30.0
    return min(max(seconds, 1.0), LONGEST_RETRY_AFTER) if seconds == seconds else 30.0  # noqa: PLR0124 - NaN


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


def render(reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig) -> dict[str, Any]:
    """The message: what broke, the first sign, where to go back to, the numbers, and what to do.

    Args:
        reason: why it is sent.
        incident: as it is now.
        alerts: its members in order of onset.
        config: of the run; its link is shown if it is one.
    """
    icon = _ICONS[reason]
    title = f"{icon} {incident.severity}: {_VERBS[reason]}{incident.title or incident.rule}"
    sections = [_facts(reason, incident, alerts, config)]
    if alerts:
        sections.append("*Numbers*\n" + _numbers(alerts))
    if incident.meaning:
        sections.append("*What it means*\n" + escape(incident.meaning, 1000))
    if incident.remedies and reason is not Reason.RESOLVED:
        remedies = [escape(text, 400) for text in incident.remedies[:REMEDIES_SHOWN]]
        numbered = (f"{number}. {text}" for number, text in enumerate(remedies, 1))
        sections.append("*What to do*\n" + "\n".join(numbered))
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(title, TITLE_LIMIT), "emoji": True}}
    ]
    blocks += [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in sections]
    fallback = f"{escape(title)} — run {escape(incident.run)}, step {incident.onset_step}"
    return {"text": fallback, "blocks": blocks, "unfurl_links": False}


def _facts(reason: Reason, incident: Incident, alerts: Sequence[Alert], config: RunConfig) -> str:
    lines = [f"*Run* {_run(incident.run, config.link)}, attempt {incident.attempt}"]
    first = next((alert for alert in alerts if alert.id == incident.first_sign), None)
    if first is not None:
        lines.append(f"*First sign* {escape(first.rule)} on `{escape(first.source)}`")
    lines.append(f"*Onset* step {incident.onset_step}")
    good = incident.last_good_step
    lines.append(f"*Last good step* {'none: wrong from the start' if good is None else good}")
    if reason is Reason.RESOLVED and incident.resolved_step is not None:
        lines.append(f"*Resolved* at step {incident.resolved_step}")
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


def _numbers(alerts: Sequence[Alert]) -> str:
    lines = [
        f"• `{escape(alert.source, METRIC_LIMIT)}` {_evidence(alert.evidence)}"
        f" — {escape(alert.rule, METRIC_LIMIT)}, since step {alert.onset_step}"
        for alert in alerts[:MEMBERS_SHOWN]
    ]
    if len(alerts) > MEMBERS_SHOWN:
        lines.append(f"… and {len(alerts) - MEMBERS_SHOWN} more")
    return "\n".join(lines)


def _evidence(evidence: Evidence) -> str:
    parts = [f"{evidence.value:.6g}"]
    if evidence.baseline is not None:
        parts.append(f"baseline {evidence.baseline:.6g}")
    if evidence.limit is not None:
        parts.append(f"limit {evidence.limit:.6g}")
    return ", ".join(parts)


def _cut(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
