"""Alerts and incidents as text for a terminal. Everything that came from a client is made printable first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tocsin_detectors.rules import Rule
from tocsin_detectors.runbooks.wording import signs_of
from tocsin_detectors.texts import Language, translated
from tocsin_service.pictures.curves import Curve
from tocsin_service.pictures.sparklines import sparkline
from tocsin_service.presentation import Presentation
from tocsin_service.terminal import columns, printable
from tocsin_service.words import Words

__all__ = ["incident_lines", "printable", "rule_lines", "verdict_lines"]

MARKS = {"critical": "!!", "warning": " !", "info": " i"}
WIDTH = 110
BEFORE, AFTER = 48, 24  # values before and from the onset on that a curve shows
# What a line may break after: a word with its space, or one Chinese character with the punctuation that belongs to it.
_PIECES = re.compile(r"[（“]*[\u3400-\u9fff][，。；：、）”！？]*\s*|[^\s\u3400-\u9fff（“]+\s*|\s+|.")


def incident_lines(
    incident: Mapping[str, Any],
    alerts: Mapping[str, Mapping[str, Any]],
    lang: Language = "en",
    curves: Mapping[str, Curve] | None = None,
) -> Iterator[str]:
    """One incident with its members: what, where, since which step, the numbers, what to do.

    Args:
        incident: as JSON, in this language.
        alerts: alerts as JSON by id; members that are missing from it are passed over.
        lang: language of the words around them.
        curves: of the alerts' metrics, by the alerts' ids; shown for those that are there.
    """
    say = Words(lang)
    mark = MARKS.get(incident["severity"], "  ")
    yield printable(f"{mark} {say(incident['severity']).upper()}  {incident['title']}")
    steps = [say("since step {step}", step=incident["onset_step"])]
    steps.append(say("said at step {step}", step=incident["opened_step"]))
    if incident["resolved_step"] is not None:
        steps.append(say("over at step {step}", step=incident["resolved_step"]))
    yield f"     {say(', ').join(steps)}; id {incident['id']}"
    if incident["last_good_step"] is not None:
        yield f"     {say('last good step: {step}', step=incident['last_good_step'])}"
    for member in incident["members"]:
        if (alert := alerts.get(member)) is not None:
            yield from _wrapped(f"{_member(alert, say)}{say(': ')}{alert['evidence']['detail']}", "     - ")
            if curves and member in curves:
                yield _drawn(curves[member], alert["onset_step"], say)
    yield from _wrapped(incident["meaning"], f"     {say('Meaning: ')}")
    for number, remedy in enumerate(incident["remedies"], 1):
        yield from _wrapped(remedy, f"     {number}. ")
    if incident["runbook"] is not None:
        yield f"     {say('Runbook: ')}{printable(incident['runbook'])}"


def _member(alert: Mapping[str, Any], say: Words) -> str:
    what = say(
        "{rule} ({severity}) on {metric}, step {onset} -> {fired}",
        rule=alert["rule"],
        severity=say(alert["severity"]),
        metric=alert["metric"],
        onset=alert["onset_step"],
        fired=alert["fired_step"],
    )
    if alert["resolved_step"] is None:
        return what
    ended = say("{reason} at step {step}", reason=say(alert["reason"]), step=alert["resolved_step"])
    return f"{what} [{ended}]"


def _drawn(curve: Curve, onset: int, say: Words) -> str:
    """The curve around the onset, on one line."""
    shown = curve.around(onset, BEFORE, AFTER)
    told = say("steps {first} to {last}", first=shown.steps[0], last=shown.steps[-1])
    return f"       {sparkline(shown, onset)} {told}"


def verdict_lines(
    verdict: Mapping[str, Any], curves: Mapping[str, Curve] | None = None, lang: Language = "en"
) -> Iterator[str]:
    """A whole verdict, in a language: a headline, then every incident of it, with the curves that there are."""
    say = Words(lang)
    facts = [say("{count} vectors", count=verdict["vectors"])]
    first, last = verdict["first_step"], verdict["last_step"]
    facts.append(say("no steps") if first is None else say("steps {first} to {last}", first=first, last=last))
    if verdict["attempts"] > 1:
        facts.append(say("{count} attempts", count=verdict["attempts"]))
    said = say(verdict["worst"] or "quiet")
    yield printable(f"{verdict['run']}: {said.upper()}  ({say(', ').join(facts)})")
    alerts = {alert["id"]: alert for alert in verdict["alerts"]}
    for incident in verdict["incidents"]:
        yield from incident_lines(incident, alerts, lang, curves)


def rule_lines(rule: Rule, lang: Language = "en") -> Iterator[str]:
    """A rule explained: when it fires, what that means, what to do."""
    say, told, shown = Words(lang), translated(rule, lang), Presentation(lang)
    counts = {"signs": rule.signs, "among": rule.among, "recovery": rule.recovery}
    yield f"{rule.name}: {told.title}"
    yield ""
    facts = [
        ("Severity", say("{severity} at first", severity=say(rule.severity))),
        ("Family", rule.family),
        ("Metrics", ", ".join(rule.metrics)),
        ("Fires", say("{signs} signs among {among} values; over after {recovery} clear values", **counts)),
        *(("Test", test) for test in signs_of(rule)),
        ("Source", rule.source),
        ("Runbook", shown.runbook(rule.name)),
    ]
    for name, fact in facts:
        label = say(name)
        yield f"{label}{' ' * (11 - columns(label))}{fact}"
    yield from ("", say("Meaning"), f"  {told.meaning}", "", say("What to do"))
    yield from (f"  {number}. {remedy}" for number, remedy in enumerate(told.remedies, 1))


def _wrapped(text: str, head: str) -> Iterator[str]:
    """Lines of at most ``WIDTH`` columns, where no word is that long; Chinese breaks between any two characters."""
    line, used = head, columns(head)
    begun = False
    for piece in _PIECES.findall(printable(text)):
        needed = columns(piece.rstrip())
        if begun and used + needed > WIDTH:
            yield line.rstrip()
            line, used = " " * columns(head), columns(head)
        line, used = line + piece, used + columns(piece)
        begun = True
    if begun:
        yield line.rstrip()
