"""The page of one incident, for whoever has its link: what broke, what to do, and forms to act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tocsin_service.pages.markup import badge, document, explanation, figure, joined, link, steps, text
from tocsin_service.pictures.curves import Curve
from tocsin_service.silences import Silence
from tocsin_service.words import Words

__all__ = ["HOURS", "Shown", "page", "refusal"]

HOURS = {1: "1 hour", 4: "4 hours", 24: "1 day", 168: "1 week"}  # for which it can be silent
_NAMES = {"acknowledge": "Acknowledge", "silence": "Silence", "rebaseline": "This is the new normal"}
_DONE = {
    "acknowledge": "Done: whoever was told of it hears that you look after it.",
    "silence": "Done: nobody is told of it until the silence ends.",
    "rebaseline": "Done: what is now is the new normal. What was raised by these metrics ends in a moment.",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of an incident.

    Attributes:
        incident: as the API shows it, in the language of the page.
        alerts: its members likewise, in order of onset.
        curves: of the alerts' metrics by the alerts' ids.
        rules: its own and those that fire in it.
        learnt: metrics of it for which there can be a new normal.
        run_link: of the run's page in an experiment tracker.
        silence: what keeps the incident silent now.
        done: what was just done: "acknowledge", "silence" or "rebaseline".
        problems: why what was sent was not done.
        view: link to the incident in the dashboard.
        samples: link to what the model wrote there. The page itself shows none of it: whoever has a link may see the
            incident, and rollouts only with a token.
    """

    incident: Mapping[str, Any]
    alerts: Sequence[Mapping[str, Any]]
    curves: Mapping[str, Curve] = field(default_factory=dict)
    rules: Sequence[str] = ()
    learnt: Sequence[str] = ()
    run_link: str | None = None
    silence: Silence | None = None
    done: str | None = None
    problems: Sequence[str] = ()
    view: str | None = None
    samples: str | None = None


def page(shown: Shown, say: Words) -> str:
    """The page as HTML; its policy has to allow forms that lead to itself."""
    incident = shown.incident
    body = "".join((*_head(shown, say), *_notices(shown, say), *_facts(shown, say), *_forms(shown, say)))
    return document(f"{say(incident['severity'])}{say(': ')}{incident['title']} ({incident['run']})", body, say.lang)


def refusal(title: str, what_to_do: str, say: Words) -> str:
    """A page that says why there is nothing to see; both texts are phrases of :class:`Words`."""
    return document(say(title), f"<header><h1>{text(say(title))}</h1></header><p>{text(say(what_to_do))}</p>", say.lang)


def _head(shown: Shown, say: Words) -> Iterator[str]:
    incident = shown.incident
    run = text(incident["run"]) if shown.run_link is None else link(shown.run_link, incident["run"])
    yield f"<header><h1>{text(incident['title'])} {badge(incident['severity'], say)}</h1>"
    yield f'<p class="facts">{text(say("Run"))} {run}{text(say(", "))}'
    facts = [say("attempt {number}", number=incident["attempt"]), *steps(incident, say)]
    yield f"{joined(facts, say)} · {text(incident['id'])}</p></header>"


def _notices(shown: Shown, say: Words) -> Iterator[str]:
    if shown.problems:
        items = "".join(f"<li>{text(problem)}</li>" for problem in shown.problems)
        yield f'<div class="notice failed" role="alert">{text(say("Nothing was done:"))}<ul>{items}</ul></div>'
    elif shown.done in _DONE:
        yield f'<p class="notice done" role="status">{text(say(_DONE[shown.done]))}</p>'


def _facts(shown: Shown, say: Words) -> Iterator[str]:
    incident = shown.incident
    yield f'<section class="{text(incident["severity"])}">'
    yield "".join(f'<p class="state">{text(line)}</p>' for line in _state(shown, say))
    links = " ".join(f'<a href="#{act}">{text(say(_NAMES[act]))}</a>' for act in _acts(shown))
    yield f"<nav>{links}</nav>"
    yield from explanation(incident, say)
    yield from _elsewhere(shown, say)
    for alert in shown.alerts:
        yield from figure(alert, shown.curves.get(alert["id"]), say)
    yield "</section>"


def _elsewhere(shown: Shown, say: Words) -> Iterator[str]:
    """What is to be seen in the dashboard, which asks for a token."""
    links = {
        say("Dashboard"): (shown.view, say("curves and evidence")),
        say("What the model wrote"): (shown.samples, say("samples at the onset and before it")),
    }
    for label, (address, name) in links.items():
        if address is not None:
            yield f'<p class="facts">{text(label + say(": "))}{link(address, name)}</p>'


def _acts(shown: Shown) -> Iterator[str]:
    """What can be done now."""
    yield "acknowledge"
    if shown.incident["state"] != "resolved":
        yield "silence"
        if shown.learnt:
            yield "rebaseline"


def _state(shown: Shown, say: Words) -> Iterator[str]:
    incident, silence = shown.incident, shown.silence
    yield say("It is over.") if incident["state"] == "resolved" else say("It is going on.")
    if (by := incident["acknowledged"]) is None:
        yield say("Nobody has acknowledged it.")
    else:
        since = say("{author} looks after it since {time}.", author=by["author"], time=_time(by["time"]))
        yield since + (say("“{comment}”", comment=by["comment"]) if by["comment"] else "")
    if silence is not None:
        who = {"author": silence.author, "time": _time(silence.ends), "comment": silence.comment}
        yield say("Silent until {time}, says {author}: “{comment}”", **who)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _forms(shown: Shown, say: Words) -> Iterator[str]:
    for act in _acts(shown):
        match act:
            case "acknowledge":
                told = say("Says that you look after it: whoever was told hears so, and nobody is reminded any more.")
                fields = _author(say) + _comment(say, required=False)
            case "silence":
                told = say("Until then nobody is told. What still fires afterwards is told then.")
                fields = _scope(shown.rules, say) + _author(say) + _comment(say, required=True)
            case _:
                told = say(
                    "Forgets what was normal for {metrics} and learns it anew from here: only if the change is meant. "
                    "Until it is learnt, nothing is said of these metrics. This can't be undone.",
                    metrics=", ".join(shown.learnt),
                )
                fields = _author(say) + _comment(say, required=True)
        yield _form(act, told, fields, say)


def _scope(rules: Sequence[str], say: Words) -> str:
    scopes = {"rule": say("in this run: {rules}", rules=", ".join(rules)), "run": say("all of this run")}
    hours = {str(number): say(words) for number, words in HOURS.items()}
    return _choice("scope", say("What"), scopes) + _choice("hours", say("How long"), hours)


def _form(act: str, told: str, fields: str, say: Words) -> str:
    name = text(say(_NAMES[act]))
    return (
        f'<form method="post" id="{act}"><h2>{name}</h2><p>{text(told)}</p>{fields}'
        f'<button name="act" value="{act}">{name}</button></form>'
    )


def _author(say: Words) -> str:
    return f'<label>{text(say("Your name"))}<input name="author" required maxlength="100" autocomplete="name"></label>'


def _comment(say: Words, *, required: bool) -> str:
    name = say("Why") if required else say("Comment")
    return f'<label>{text(name)}<input name="comment" maxlength="1000"{" required" if required else ""}></label>'


def _choice(name: str, label: str, options: Mapping[str, str]) -> str:
    told = "".join(f'<option value="{text(value)}">{text(words)}</option>' for value, words in options.items())
    return f'<label>{text(label)}<select name="{name}">{told}</select></label>'
