"""The report of a check as one self-contained page: no scripts, nothing loaded from anywhere."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from tocsin_detectors.entries import number_from_json
from tocsin_detectors.texts import Language
from tocsin_service.curves import Curve
from tocsin_service.plots import Marks, plot
from tocsin_service.report import printable
from tocsin_service.words import Words

__all__ = ["page"]

# A plot of a long run shows what is around the onset.
_BEFORE, _AFTER = 240, 120


def page(told: Sequence[tuple[Mapping[str, Any], Mapping[str, Curve]]], lang: Language = "en") -> str:
    """A page about some verdicts.

    Args:
        told: each verdict as JSON in this language, and the curves of its alerts by their ids.
        lang: language of the words around them.
    """
    say = Words(lang)
    style = resources.files("tocsin_service").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "".join(part for verdict, curves in told for part in _verdict(verdict, curves, say))
    return (
        f'<!DOCTYPE html>\n<html lang="{lang}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{_text(_title(told, say))}</title>'
        f"<style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )


def _title(told: Sequence[tuple[Mapping[str, Any], Mapping[str, Curve]]], say: Words) -> str:
    runs = ", ".join(f"{verdict['run']}: {say(verdict['worst'] or 'quiet')}" for verdict, _ in told[:3])
    return f"Tocsin: {runs}{', …' if len(told) > 3 else ''}"


def _verdict(verdict: Mapping[str, Any], curves: Mapping[str, Curve], say: Words) -> Iterator[str]:
    worst = verdict["worst"] or "quiet"
    facts = [say("{count} vectors", count=verdict["vectors"])]
    if verdict["first_step"] is not None:
        facts.append(say("steps {first} to {last}", first=verdict["first_step"], last=verdict["last_step"]))
    if verdict["attempts"] > 1:
        facts.append(say("{count} attempts", count=verdict["attempts"]))
    yield f"<header><h1>{_text(verdict['run'])} {_badge(worst, say)}</h1>"
    yield f'<p class="facts">{_joined(facts, say)}</p></header>'
    alerts = {alert["id"]: alert for alert in verdict["alerts"]}
    for incident in verdict["incidents"]:
        yield from _incident(incident, alerts, curves, say)


def _incident(
    incident: Mapping[str, Any], alerts: Mapping[str, Mapping[str, Any]], curves: Mapping[str, Curve], say: Words
) -> Iterator[str]:
    steps = [say("since step {step}", step=incident["onset_step"])]
    steps.append(say("said at step {step}", step=incident["opened_step"]))
    if incident["resolved_step"] is not None:
        steps.append(say("over at step {step}", step=incident["resolved_step"]))
    if incident["last_good_step"] is not None:
        steps.append(say("last good step: {step}", step=incident["last_good_step"]))
    severity = incident["severity"]
    yield f'<section class="{_text(severity)}"><h2>{_text(incident["title"])} {_badge(severity, say)}</h2>'
    yield f'<p class="facts">{_joined(steps, say)} · {_text(incident["id"])}</p>'
    yield f"<p>{_text(incident['meaning'])}</p>"
    if incident["remedies"]:
        items = "".join(f"<li>{_text(remedy)}</li>" for remedy in incident["remedies"])
        yield f"<h3>{_text(say('What to do'))}</h3><ol>{items}</ol>"
    if incident["runbook"] is not None:
        yield f'<p class="facts">{_text(say("Runbook: "))}{_link(incident["runbook"])}</p>'
    for member in incident["members"]:
        if member in alerts:
            yield from _alert(alerts[member], curves.get(member), say)
    yield "</section>"


def _alert(alert: Mapping[str, Any], curve: Curve | None, say: Words) -> Iterator[str]:
    yield f"<figure><figcaption><b>{_text(alert['metric'])}</b> {_text(alert['rule'])} {_badge(alert['severity'], say)}"
    yield f"<br>{_text(alert['evidence']['detail'])}</figcaption>"
    if curve is not None:
        shown = curve.around(alert["onset_step"], _BEFORE, _AFTER)
        if shown.steps:
            yield plot(shown, _marks(alert, say))
    yield "</figure>"


def _marks(alert: Mapping[str, Any], say: Words) -> Marks:
    words = {"onset": say("onset"), "said": say("said"), "baseline": say("baseline"), "limit": say("limit")}
    title = f"{alert['metric']}: {alert['evidence']['detail']}"
    baseline, limit = (_level(alert["evidence"][name]) for name in ("baseline", "limit"))
    return Marks(alert["onset_step"], alert["fired_step"], baseline, limit, words, printable(title))


def _level(value: object) -> float | None:
    level = math.nan if value is None else number_from_json(value)
    return level if math.isfinite(level) else None


def _badge(severity: str, say: Words) -> str:
    return f'<span class="badge {_text(severity)}">{_text(say(severity))}</span>'


def _joined(parts: Sequence[str], say: Words) -> str:
    return _text(say(", ").join(parts))


def _link(address: str) -> str:
    """Only what is surely an address becomes a link."""
    if address.startswith(("https://", "http://")):
        return f'<a rel="noreferrer" href="{_text(address)}">{_text(address)}</a>'
    return _text(address)


def _text(value: object) -> str:
    """Whatever a trainer has sent, as text and nothing else."""
    return escape(printable(value))
