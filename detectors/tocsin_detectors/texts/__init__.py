"""What people read of the rules beyond the rules themselves: their texts in other languages, impact and diagnosis.

The English title, meaning and remedies stand in the rules, and the sentences of the arithmetic beside the arithmetic;
``zh.toml`` has the Chinese ones, ``runbooks.toml`` what the runbook pages say besides. Both are read once, when first
needed.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal, get_args

from tocsin_detectors.alerts import SUMMARIES
from tocsin_detectors.rules import Rule, shipped_rules
from tocsin_detectors.rules.incident import MODEL_COLLAPSE
from tocsin_detectors.sentences import Form

__all__ = [
    "LANGUAGES",
    "Language",
    "Story",
    "families",
    "localise",
    "localise_incident",
    "story",
    "translate",
    "translated",
]

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
TEXTS = ("title", "meaning", "remedies")  # what a language has of a rule
REMEMBERED = 2048  # translated sentences: what fires is looked at again and again

# The headline that the incidents' own module gives to a collapse: it names the families.
_COLLAPSE_TITLE = re.compile(r"Model collapse: (?P<families>.+) broke together")


@dataclass(frozen=True, slots=True)
class Story:
    """What a runbook page says beyond the rule.

    Attributes:
        impact: what it costs if nobody acts.
        diagnosis: where to look next, and what tells the causes apart; names in backquotes are metrics or rules.
    """

    impact: str
    diagnosis: tuple[str, ...]


def localise(alert: Mapping[str, Any], lang: Language) -> dict[str, Any]:
    """An alert (as JSON) with its texts in a language.

    Only texts that are the shipped rules' own are translated: what a site wrote into its rule file, or what an older
    version said, stays as it is. So do rules' and metrics' names and severities in the summary, and all numbers.

    Args:
        alert: made by ``alert_to_json``; unchanged.
        lang: one of ``LANGUAGES``.

    Raises:
        ValueError: the language is unknown.
    """
    told = _with_rule_texts(alert, lang)
    if lang != "en":
        detail = translate(alert["evidence"]["detail"], lang)
        told["evidence"] = {**alert["evidence"], "detail": detail}
        told["summary"] = _summary(alert, detail, lang)
    return told


def translate(detail: str, lang: Language) -> str:
    """The arithmetic of an alert in a language; as it is where nobody has translated it.

    Args:
        detail: as ``Evidence.detail`` has it, of this version or of an older one.
        lang: one of ``LANGUAGES``.
    """
    return detail if lang == "en" else _translate(detail, lang)


@functools.lru_cache(REMEMBERED)
def _translate(detail: str, lang: Language) -> str:
    read = ((told, form.read(detail)) for form, told in _sentences(lang))
    found = [told.format_map(values) for told, values in read if values is not None]
    return found[0] if len(found) == 1 else detail  # a metric's name can make a sentence look like two


def _summary(alert: Mapping[str, Any], detail: str, lang: Language) -> str:
    """The summary in a language, with the arithmetic in it; as it is if it is none that we know."""
    values = {"fired": alert["fired_step"], "onset": alert["onset_step"]}
    values |= {name: alert[name] for name in ("rule", "severity", "metric")}
    for form in SUMMARIES:
        if str(form(**values, detail=alert["evidence"]["detail"])) == alert["summary"]:
            told: str = _read(lang)["summaries"][form.text]
            return told.format(**values, detail=detail)
    summary: str = alert["summary"]
    return summary


def _with_rule_texts(alert: Mapping[str, Any], lang: Language) -> dict[str, Any]:
    """Whatever has a rule and its texts, with these in a language."""
    name = alert["rule"]
    translation = _translations(lang).get(name)
    if translation is None or name not in shipped_rules():
        return dict(alert)
    rule = shipped_rules()[name]
    original = {"title": rule.title, "meaning": rule.meaning, "remedies": list(rule.remedies)}
    changes = {key: translation[key] for key in TEXTS if key in alert and alert[key] == original[key]}
    return {**alert, **changes}


def localise_incident(incident: Mapping[str, Any], lang: Language) -> dict[str, Any]:
    """An incident (as JSON) with its texts in a language; see :func:`localise`."""
    told = _with_rule_texts(incident, lang)
    found = _COLLAPSE_TITLE.fullmatch(told["title"]) if told["rule"] == MODEL_COLLAPSE.name else None
    if found is not None and lang == "zh":
        names = families(lang)
        broken = "、".join(names.get(family, family) for family in found["families"].split(", "))
        told["title"] = f"模型崩溃：{broken}同时失守"
    return told


def translated(rule: Rule, lang: Language) -> Rule:
    """The rule with its texts in a language, where that has them."""
    texts = {"rule": rule.name, "title": rule.title, "meaning": rule.meaning, "remedies": list(rule.remedies)}
    told = _with_rule_texts(texts, lang)
    return replace(rule, title=told["title"], meaning=told["meaning"], remedies=tuple(told["remedies"]))


def families(lang: Language) -> Mapping[str, str]:
    """The families' names in a language, for people."""
    found: Mapping[str, str] = _read("runbooks" if lang == "en" else lang)["families"]
    return found


def story(name: str) -> Story:
    """Impact and diagnosis of a shipped rule.

    Raises:
        KeyError: nobody has written them yet.
    """
    found = _read("runbooks")["rules"][name]
    return Story(found["impact"], tuple(found["diagnosis"]))


def _translations(lang: str) -> Mapping[str, Mapping[str, Any]]:
    """By rule name; empty for English, in which the rules are written."""
    if lang not in LANGUAGES:
        raise ValueError(f"no texts in {lang!r}; choose one of {', '.join(LANGUAGES)}")
    found: Mapping[str, Mapping[str, Any]] = {} if lang == "en" else _read(lang)["rules"]
    return found


@functools.cache
def _sentences(lang: Language) -> tuple[tuple[Form, str], ...]:
    """The forms of the arithmetic, each with what a language says for it."""
    return tuple((Form(english), told) for english, told in _read(lang)["sentences"].items())


@functools.cache
def _read(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
