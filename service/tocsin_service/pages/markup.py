"""HTML for people: self-contained, no scripts, nothing loaded from anywhere, and whatever was sent is text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from tocsin_detectors.texts import Language
from tocsin_service.pictures.curves import Curve
from tocsin_service.pictures.marks import marks_of
from tocsin_service.pictures.plots import plot
from tocsin_service.terminal import printable
from tocsin_service.words import Words

__all__ = ["badge", "document", "explanation", "figure", "joined", "link", "policy", "steps", "text"]

# A plot of a long run shows what is around the onset.
_BEFORE, _AFTER = 240, 120
_STYLE = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def policy(form_action: str = "'none'") -> str:
    """The Content-Security-Policy of a page: its own style and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action {form_action}"


def document(title: str, body: str, lang: Language, head: str = "") -> str:
    """A page.

    Args:
        title: as text.
        body: as HTML.
        lang: of the words.
        head: more HTML for its head.
    """
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}"><head><meta charset="utf-8">{head}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{text(title)}</title>'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def explanation(incident: Mapping[str, Any], say: Words) -> Iterator[str]:
    """What an incident means, what to do, and where to read more."""
    yield f"<p>{text(incident['meaning'])}</p>"
    if incident["remedies"]:
        items = "".join(f"<li>{text(remedy)}</li>" for remedy in incident["remedies"])
        yield f"<h3>{text(say('What to do'))}</h3><ol>{items}</ol>"
    if incident["runbook"] is not None:
        yield f'<p class="facts">{text(say("Runbook: "))}{link(incident["runbook"])}</p>'


def steps(incident: Mapping[str, Any], say: Words) -> list[str]:
    """When it began, was said and ended, and where to go back to."""
    told = [say("since step {step}", step=incident["onset_step"])]
    told.append(say("said at step {step}", step=incident["opened_step"]))
    if incident["resolved_step"] is not None:
        told.append(say("over at step {step}", step=incident["resolved_step"]))
    if incident["last_good_step"] is not None:
        told.append(say("last good step: {step}", step=incident["last_good_step"]))
    return told


def figure(alert: Mapping[str, Any], curve: Curve | None, say: Words) -> Iterator[str]:
    """An alert in words, and the curve of its metric around the onset if it is known."""
    yield f"<figure><figcaption><b>{text(alert['metric'])}</b> {text(alert['rule'])} {badge(alert['severity'], say)}"
    yield f"<br>{text(alert['evidence']['detail'])}</figcaption>"
    if curve is not None:
        shown = curve.around(alert["onset_step"], _BEFORE, _AFTER)
        if shown.steps:
            yield plot(shown, marks_of(alert, say))
    yield "</figure>"


def badge(severity: str, say: Words) -> str:
    """A severity as a word in its colour."""
    return f'<span class="badge {text(severity)}">{text(say(severity))}</span>'


def joined(parts: Sequence[str], say: Words) -> str:
    """Facts in a row."""
    return text(say(", ").join(parts))


def link(address: str, shown: str | None = None) -> str:
    """Only what is surely an address becomes a link."""
    name = text(shown or address)
    if address.startswith(("https://", "http://")):
        return f'<a rel="noreferrer" href="{text(address)}">{name}</a>'
    return text(address)


def text(value: object) -> str:
    """Whatever a trainer has sent, as text and nothing else."""
    return escape(printable(value))
