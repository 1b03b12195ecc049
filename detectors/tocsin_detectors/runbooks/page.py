"""One runbook page as Markdown: what an alert means and costs, how to find the cause, what to do, how it is judged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields

from tocsin_detectors.algorithms import Test
from tocsin_detectors.rules import Guarded, Rule, shipped_rules
from tocsin_detectors.rules.incident import MODEL_COLLAPSE
from tocsin_detectors.runbooks.wording import (
    exceptions,
    knows_severe,
    needs_company,
    plain_tests,
    signs_of,
    urgency,
)
from tocsin_detectors.texts import story, translated

__all__ = ["NOTE", "page"]

NOTE = "<!-- Generated from the rules by `make runbooks`; changes here are lost. -->"


def page(rule: Rule) -> str:
    """The page of a shipped rule.

    Raises:
        KeyError: its impact and diagnosis, or the words for what the engine looks for, have not been written.
    """
    told, chinese = story(rule.name), translated(rule, "zh")
    at_first = " at first" if list(urgency(rule)) else ""
    lines = [
        NOTE,
        "",
        f"# {rule.name}",
        "",
        f"**{rule.title}.** Family [{rule.family}](README.md#{rule.family}), {rule.severity}{at_first}.",
        *_section("Meaning", [rule.meaning]),
        *_section("Impact", [_linked(told.impact, rule.name)]),
        *_section("Diagnosis", [f"- {_linked(point, rule.name)}" for point in told.diagnosis]),
        *_section("Mitigation", _numbered(_linked(remedy, rule.name) for remedy in rule.remedies)),
        *_section("How it is judged", [f"- {line}" for line in _judged(rule)]),
        *_section("To change it", _override(rule)),
        *_section("中文", [f"**{chinese.title}。** {chinese.meaning}", "", *_numbered(chinese.remedies)]),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", *lines]


def _numbered(lines: Iterable[str]) -> list[str]:
    return [f"{number}. {line}" for number, line in enumerate(lines, 1)]


def _linked(text: str, own: str) -> str:
    """The text with the names of other rules as links to their pages."""

    def link(found: re.Match[str]) -> str:
        name = found["name"]
        return f"[`{name}`]({name}.md)" if name in shipped_rules() and name != own else found[0]

    return re.sub(r"(?P<quote>`?)(?<![\w./])(?P<name>[a-z]+(?:_[a-z0-9]+)+)(?P=quote)(?![\w/(=])", link, text)


def _judged(rule: Rule) -> Iterator[str]:
    yield f"**Watches** {_subject(rule)}."
    told = signs_of(rule)
    for number, sign in enumerate(told, 1):
        label = "Sign" if not rule.tests else f"Test {number}" if len(told) > 1 else "Test"
        yield f"**{label}.** {sign}"
    if rule is not MODEL_COLLAPSE:
        yield f"**Alert.** {_alert(rule)}"
    yield f"**Severity.** {_severity(rule)}"
    if found := list(exceptions(rule)):
        yield f"**Exceptions.** {_linked(' '.join(found), rule.name)}"
    if rule.collapse:
        yield f"**Collapse.** It is one of the signs of [`{MODEL_COLLAPSE.name}`]({MODEL_COLLAPSE.name}.md)."
    yield f"**Source.** {rule.source[:1].upper()}{rule.source[1:]}."


def _subject(rule: Rule) -> str:
    if rule is MODEL_COLLAPSE:
        return "the alerts of a run"
    if rule.expression is not None:
        return f"`{rule.metrics[0]}`, computed as `{rule.expression.text}`"
    if rule.metrics == ("{metric}",):
        return "every metric"
    names = ", ".join(f"`{name}`" for name in rule.metrics)
    return f"the first that the run reports of {names}" if rule.first_of else names


def _alert(rule: Rule) -> str:
    tests = plain_tests(rule)
    company = [test for test in tests if needs_company(test)]
    said = "The first sign fires it"
    if company or not tests:
        signs = "1 sign" if rule.signs == 1 else f"{rule.signs} signs"
        said = f"It fires at {signs} among {rule.among} values" if rule.signs > 1 else said
        if rule.signs > 2 and any(map(knows_severe, company)):
            said += f", or {rule.signs - 1} if one is severe"
        if len(company) < len(tests) and rule.signs > 1:
            said += "; a test that judges several values at once needs no second one"
    over = "with the first value" if rule.recovery == 1 else f"after {rule.recovery} values in a row"
    return f"{said}. It is over {over} back to normal."


def _severity(rule: Rule) -> str:
    reasons = list(urgency(rule))
    first = rule.severity.capitalize()
    return f"{first}. Critical when {', or when '.join(reasons)}." if reasons else f"{first}."


def _override(rule: Rule) -> list[str]:
    if rule is MODEL_COLLAPSE:
        return [
            "It can't be changed or turned off. To keep a rule from being one of its signs, write in a rule file:",
            "",
            *_yaml("version: 1", "rules:", "  length_shift:", "    collapse: false"),
        ]
    tests = [f"      {number}: {_parameters(entry)}" for number, entry in enumerate(rule.tests, 1)]
    return [
        "In a [rule file](../rules.md); leave out what stays as it is (these are the shipped values):",
        "",
        *_yaml(
            "version: 1",
            "rules:",
            f"  {rule.name}:",
            f"    severity: {rule.severity}",
            f"    signs: {rule.signs}",
            f"    among: {rule.among}",
            f"    recovery: {rule.recovery}",
            *(["    tests:", *tests] if tests else []),
        ),
        "",
        "Or turn it off:",
        "",
        *_yaml("version: 1", f"off: [{rule.name}]"),
    ]


def _yaml(*lines: str) -> list[str]:
    return ["```yaml", *lines, "```"]


def _parameters(entry: Test | Guarded) -> str:
    """A test's parameters as YAML, without those that are not set."""
    test = entry.test if isinstance(entry, Guarded) else entry
    given = ((one.name, getattr(test, one.name)) for one in fields(test))
    words = {True: "true", False: "false"}
    pairs = (
        f"{name}: {words[value] if isinstance(value, bool) else value}" for name, value in given if value is not None
    )
    return f"{{{', '.join(pairs)}}}"
