"""The report of a check as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tocsin_detectors.texts import Language
from tocsin_service.pages.markup import badge, document, explanation, figure, joined, policy, steps, text
from tocsin_service.pictures.curves import Curve
from tocsin_service.words import Words

__all__ = ["page"]


def page(told: Sequence[tuple[Mapping[str, Any], Mapping[str, Curve]]], lang: Language = "en") -> str:
    """A page about some verdicts.

    Args:
        told: each verdict as JSON in this language, and the curves of its alerts by their ids.
        lang: language of the words around them.
    """
    say = Words(lang)
    body = "".join(part for verdict, curves in told for part in _verdict(verdict, curves, say))
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
    return document(_title(told, say), body, lang, head)


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
    yield f"<header><h1>{text(verdict['run'])} {badge(worst, say)}</h1>"
    yield f'<p class="facts">{joined(facts, say)}</p></header>'
    alerts = {alert["id"]: alert for alert in verdict["alerts"]}
    for incident in verdict["incidents"]:
        yield from _incident(incident, alerts, curves, say)


def _incident(
    incident: Mapping[str, Any], alerts: Mapping[str, Mapping[str, Any]], curves: Mapping[str, Curve], say: Words
) -> Iterator[str]:
    severity = incident["severity"]
    yield f'<section class="{text(severity)}"><h2>{text(incident["title"])} {badge(severity, say)}</h2>'
    yield f'<p class="facts">{joined(steps(incident, say), say)} · {text(incident["id"])}</p>'
    yield from explanation(incident, say)
    for member in incident["members"]:
        if member in alerts:
            yield from figure(alerts[member], curves.get(member), say)
    yield "</section>"
