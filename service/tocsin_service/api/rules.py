"""The rules in force, for people to read."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from tocsin_detectors.rules import Rule
from tocsin_detectors.runbooks.wording import signs_of
from tocsin_detectors.texts import families, translated
from tocsin_service.api.context import Given, Shown
from tocsin_service.api.errors import StrictJson
from tocsin_service.api.models import RuleList, errors
from tocsin_service.presentation import Presentation

__all__ = ["router"]

router = APIRouter()


@router.get("/v1/rules", summary="List rules", responses={200: {"model": RuleList}, **errors(422)})
def list_rules(context: Given, shown: Shown) -> Response:
    """Every rule in force: what it watches, when it fires, what that means and what to do."""
    return StrictJson({"rules": [rule_to_json(rule, shown) for rule in context.rules]})


def rule_to_json(rule: Rule, shown: Presentation) -> dict[str, Any]:
    """A rule, its texts in a language."""
    told = translated(rule, shown.lang)
    return {
        "name": rule.name,
        "family": rule.family,
        "family_title": families(shown.lang).get(rule.family, rule.family),
        "title": told.title,
        "severity": str(rule.severity),
        "metrics": list(rule.metrics),
        "tests": signs_of(rule),
        "signs": rule.signs,
        "among": rule.among,
        "recovery": rule.recovery,
        "meaning": told.meaning,
        "remedies": list(told.remedies),
        "source": rule.source,
        "runbook": shown.runbook(rule.name),
    }
