"""The runbook: one page per shipped rule, and an index by family, made from the rules and their texts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from tocsin_detectors.rules import Rule, shipped_rules
from tocsin_detectors.runbooks.page import NOTE, page
from tocsin_detectors.texts import families, translated

__all__ = ["INDEX", "pages"]

INDEX = "README.md"


def pages() -> Mapping[str, str]:
    """Every page as Markdown, by file name.

    Raises:
        KeyError: a rule lacks its impact and diagnosis.
    """
    return {INDEX: _index(), **{f"{rule.name}.md": page(rule) for rule in shipped_rules()}}


def _index() -> str:
    lines = [
        NOTE,
        "",
        "# Runbook",
        "",
        f"What each of the {len(shipped_rules())} rules means and what to do when it fires. Alerts link to them.",
        "Severities: *info* is worth a look, *warning* is for today, *critical* pages somebody: the run is being lost.",
    ]
    for family, rules in groupby(sorted(shipped_rules(), key=_place), key=_family):
        lines += ["", f'<a id="{family}"></a>', "", f"## {families('en')[family]} ({families('zh')[family]})", ""]
        lines += ["| Rule | Severity | What happened | 中文 |", "| --- | --- | --- | --- |"]
        lines += [
            f"| [`{rule.name}`]({rule.name}.md) | {rule.severity} | {rule.title} | {translated(rule, 'zh').title} |"
            for rule in rules
        ]
    return "\n".join(lines) + "\n"


def _family(rule: Rule) -> str:
    return rule.family


def _place(rule: Rule) -> int:
    """Where its family stands in the texts: the most telling first."""
    return list(families("en")).index(rule.family)
