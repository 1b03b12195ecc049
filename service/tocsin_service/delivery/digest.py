"""What a message to people says of an incident, or of many, whatever markup it is written in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol
from urllib.parse import urlsplit

from tocsin_detectors.alerts import Alert, Evidence, Severity, State, derive_id
from tocsin_service.delivery import News, Reason
from tocsin_service.presentation import Presentation
from tocsin_service.terminal import printable
from tocsin_service.words import Words

__all__ = ["Digest", "Markup", "Section", "actions", "cut", "digest", "flatten", "summary", "summary_id", "web_address"]

NAME_LIMIT = 200
METRIC_LIMIT = 100
COMMENT_LIMIT = 500
MEMBERS_SHOWN = 8
REMEDIES_SHOWN = 3
LINK_LIMIT = 1600
RUNS_SHOWN = 20
RULES_SHOWN = 10
SHORT_LINK = 400  # where there are many
ALL_INCIDENTS = "GET /v1/incidents"

_ICONS = {Reason.ESCALATED: "🔺", Reason.ACKNOWLEDGED: "👀", Reason.RESOLVED: "✅"}
_HEADLINES = {
    Reason.ESCALATED: "worse: {title}",
    Reason.ACKNOWLEDGED: "acknowledged: {title}",
    Reason.REMINDED: "still firing: {title}",
    Reason.RESOLVED: "resolved: {title}",
}


class Markup(Protocol):
    """How a text is written so that it is shown literally, in one line, whatever a client has put into it."""

    def text(self, text: str, limit: int = NAME_LIMIT) -> str:
        """``text``, at most ``limit`` characters of it."""
        ...

    def label(self, text: str) -> str:
        """``text`` as the name of what follows it."""
        ...

    def name(self, text: str, limit: int = NAME_LIMIT, link: str | None = None) -> str:
        """``text`` as somebody's name for something; leads to ``link``, if that is a plain web address."""
        ...


@dataclass(frozen=True, slots=True)
class Section:
    """Lines that belong together, in the markup, under a heading or without one."""

    heading: str | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Digest:
    """A message: ``title`` is plain text, one line of any length; the sections are in the markup."""

    title: str
    sections: tuple[Section, ...]


def digest(news: News, shown: Presentation, markup: Markup, *, brief: bool = False) -> Digest:
    """What broke, the first sign, where to go back to, the numbers, what it means, and what to do.

    Args:
        news: what there is to say.
        shown: language and links.
        markup: of the sections.
        brief: only what is new, for somebody who has the whole.
    """
    say, told = Words(shown.lang), shown.incident(news.incident)
    sections = [Section(None, tuple(_facts(news, shown, markup, brief=brief)))]
    if news.alerts and not brief:
        sections.append(Section(say("Numbers"), tuple(_numbers(news.alerts, say, markup))))
    if told["meaning"] and not brief:
        sections.append(Section(say("What it means"), (markup.text(told["meaning"], 1000),)))
    if told["remedies"] and not brief and news.reason is not Reason.RESOLVED:
        remedies = enumerate(told["remedies"][:REMEDIES_SHOWN], 1)
        numbered = (f"{number}. {markup.text(text, 400)}" for number, text in remedies)
        sections.append(Section(say("What to do"), tuple(numbered)))
    return Digest(_title(news, shown, say), tuple(sections))


def summary(news: Sequence[News], shown: Presentation, markup: Markup) -> Digest:
    """Many pieces of news in one message: how many, of which severity and rule, and the worst of the first runs."""
    say = Words(shown.lang)
    runs: dict[str, list[News]] = {}
    for one in sorted(news, key=_urgency):
        runs.setdefault(one.incident.run, []).append(one)
    counts = (
        ("Severity", [say(one.incident.severity) for one in news]),
        ("News", [say(one.reason) for one in news]),
        ("Rules", [one.incident.rule for one in news]),
    )
    facts = [f"{markup.label(say(label))} {_counted(values, say, markup)}" for label, values in counts]
    lines = [_run_line(of_run, shown, say, markup) for of_run in list(runs.values())[:RUNS_SHOWN]]
    if len(runs) > RUNS_SHOWN:
        lines.append(say("… and {count} more", count=len(runs) - RUNS_SHOWN))
    places = [markup.name(ALL_INCIDENTS)]
    if shown.links is not None:
        places.insert(0, markup.name(say("the dashboard"), NAME_LIMIT, shown.links.all_runs()))
    everything = f"{markup.label(say('All of them'))} {say(', ').join(places)}"
    title = say("{count} incidents of {runs} runs", count=len(news), runs=len(runs))
    icon = "✅" if all(one.reason is Reason.RESOLVED for one in news) else "🔔"
    sections = (Section(None, tuple(facts)), Section(say("Runs"), tuple(lines)), Section(None, (everything,)))
    return Digest(f"{icon} {title}", sections)


def actions(news: News) -> tuple[Literal["acknowledge", "silence"], ...]:
    """What there is to do about it on the incident's page, by the names of the page's parts."""
    if news.reason is Reason.RESOLVED:
        return ()
    return ("acknowledge", "silence") if news.acknowledged is None else ("silence",)


def summary_id(news: Sequence[News]) -> str:
    """The id of a message for many pieces of news: the same for every attempt to say just these."""
    return derive_id("summary", "summary_id", *sorted(one.id for one in news))


def flatten(text: str) -> str:
    """``text`` in one line, without characters that aren't shown or change the direction of others."""
    return printable(" ".join(text.split()))


def width(text: str) -> int:
    """Its length as programs count that count in UTF-16: what is beyond the basic plane counts twice."""
    return len(text) + sum(char > "\uffff" for char in text)


def cut(text: str, limit: int) -> str:
    """``text`` in one line of at most ``limit`` characters, counted as in :func:`width`."""
    flat = flatten(text)
    if width(flat) <= limit:
        return flat
    while width(flat) > limit - 1:
        flat = flat[: min(len(flat) - 1, limit - 1)]
    return flat + "…"


def web_address(link: str | None, limit: int = LINK_LIMIT) -> str | None:
    """The link as it may stand in a message; None if it isn't a plain http(s) address, or is too long."""
    if link is None or len(link) > limit or not link.isprintable() or any(char in link for char in ' <>|"`\\'):
        return None
    try:
        parts = urlsplit(link)
    except ValueError:
        return None
    return link if parts.scheme in {"http", "https"} and parts.netloc else None


def _title(news: News, shown: Presentation, say: Words) -> str:
    title = shown.incident(news.incident)["title"] or news.incident.rule
    headline = say(_HEADLINES.get(news.reason, "{title}"), title=title)
    return f"{_ICONS.get(news.reason, '🔔')} {say(news.incident.severity)}{say(': ')}{headline}"


def _facts(news: News, shown: Presentation, markup: Markup, *, brief: bool) -> Iterable[str]:
    say, incident, resolved = Words(shown.lang), news.incident, news.reason is Reason.RESOLVED
    run = markup.name(incident.run, NAME_LIMIT, news.config.link)
    yield f"{markup.label(say('Run'))} {say('{run}, attempt {attempt}', run=run, attempt=incident.attempt)}"
    named = markup.name(incident.id, METRIC_LIMIT)
    opened = say("{incident}, opened at step {step}", incident=named, step=incident.opened_step)
    yield f"{markup.label(say('Incident'))} {opened}"
    first = next((alert for alert in news.alerts if alert.id == incident.first_sign), None)
    if first is not None and not brief:
        sign = say("{rule} on {metric}", rule=markup.text(first.rule), metric=markup.name(first.source))
        yield f"{markup.label(say('First sign'))} {sign}"
    yield f"{markup.label(say('Onset'))} {say('step {step}', step=incident.onset_step)}"
    if resolved or not brief:
        good = incident.last_good_step
        yield f"{markup.label(say('Last good step'))} {say('none: wrong from the start') if good is None else good}"
    if resolved and incident.resolved_step is not None:
        yield f"{markup.label(say('Resolved'))} {say('at step {step}', step=incident.resolved_step)}"
    if news.acknowledged is not None:
        yield _acknowledged(news, say, markup)
    elif news.reason is Reason.REMINDED:
        yield say("Nobody has acknowledged it.")
    if not brief and (page := shown.runbook(incident.rule)) is not None:
        address = web_address(page)
        shown_page = markup.name(page) if address is None else markup.name(incident.rule, NAME_LIMIT, address)
        yield f"{markup.label(say('Runbook'))} {shown_page}"
    if not brief:
        yield from _views(news, shown, markup)


def _views(news: News, shown: Presentation, markup: Markup) -> Iterable[str]:
    """Where to look closer: the dashboard, and there what the model wrote, if that is kept and says something."""
    say = Words(shown.lang)
    if (page := web_address(shown.view(news.incident))) is not None:
        yield f"{markup.label(say('Dashboard'))} {markup.name(say('curves and evidence'), NAME_LIMIT, page)}"
    if (page := web_address(shown.samples(news.incident, news.alerts))) is not None:
        name = markup.name(say("samples at the onset and before it"), NAME_LIMIT, page)
        yield f"{markup.label(say('What the model wrote'))} {name}"


def _acknowledged(news: News, say: Words, markup: Markup) -> str:
    assert news.acknowledged is not None  # noqa: S101 - for the type checker
    author, comment = news.acknowledged.author, news.acknowledged.comment
    said = f"{say(': ')}{markup.text(comment, COMMENT_LIMIT)}" if comment.strip() else ""
    return f"{markup.label(say('Acknowledged'))} {say('by {author}', author=markup.text(author, METRIC_LIMIT))}{said}"


def _numbers(alerts: Sequence[Alert], say: Words, markup: Markup) -> Iterable[str]:
    for alert in alerts[:MEMBERS_SHOWN]:
        yield say(
            "{numbers} — {rule}, since step {step}",
            numbers=f"• {markup.name(alert.source, METRIC_LIMIT)} {_evidence(alert.evidence, say)}",
            rule=markup.text(alert.rule, METRIC_LIMIT),
            step=alert.onset_step,
        )
    if len(alerts) > MEMBERS_SHOWN:
        yield say("… and {count} more", count=len(alerts) - MEMBERS_SHOWN)


def _evidence(evidence: Evidence, say: Words) -> str:
    parts = [f"{evidence.value:.6g}"]
    if evidence.baseline is not None:
        parts.append(say("baseline {value}", value=f"{evidence.baseline:.6g}"))
    if evidence.limit is not None:
        parts.append(say("limit {value}", value=f"{evidence.limit:.6g}"))
    return say(", ").join(parts)


def _urgency(news: News) -> tuple[bool, int]:
    """First what fires, the most severe of it first; what began earlier stays in front."""
    return news.incident.state is State.RESOLVED, len(Severity) - news.incident.severity.rank


def _run_line(of_run: Sequence[News], shown: Presentation, say: Words, markup: Markup) -> str:
    worst = of_run[0]
    run = markup.name(worst.incident.run, METRIC_LIMIT, web_address(worst.config.link, SHORT_LINK))
    page = web_address(shown.link("incident", worst.incident), SHORT_LINK)
    title = _title(worst, shown, say)
    told = markup.text(title, NAME_LIMIT) if page is None else markup.name(title, NAME_LIMIT, page)
    line = f"• {run} {told}"
    return line if len(of_run) == 1 else f"{line} {say('(and {count} more)', count=len(of_run) - 1)}"


def _counted(values: Sequence[str], say: Words, markup: Markup) -> str:
    counts = Counter(values).most_common()
    parts = [f"{markup.text(value, METRIC_LIMIT)} {count}" for value, count in counts[:RULES_SHOWN]]
    if len(counts) > RULES_SHOWN:
        parts.append(say("… and {count} more", count=len(counts) - RULES_SHOWN))
    return say(", ").join(parts)
