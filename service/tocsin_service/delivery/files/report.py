"""`tocsin receivers`: a plan in words, and whom it would tell of an incident."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tocsin_detectors.alerts import Severity
from tocsin_service.delivery.files import Plan, ReceiversError, make_receiver, read_plan
from tocsin_service.delivery.making import KINDS, Described, Surroundings
from tocsin_service.delivery.quiet import DAYS, QuietHours
from tocsin_service.delivery.routing import matching, recipients
from tocsin_service.silences import Matchers

__all__ = ["check", "whom"]

# The settings may make receivers of these names: routes may lead to them.
BY_SETTINGS = ("slack", "webhook", "alertmanager")
EVERYTHING = Matchers()


def check(path: Path) -> Iterator[str]:
    """Receivers, routes, and what is worth a look.

    Raises:
        ReceiversError: something is wrong in the file.
    """
    plan = read_plan(path, others=BY_SETTINGS)
    width = max((len(name) for name in plan.names), default=0)
    yield "receivers"
    for described in plan.receivers:
        yield f"  {described.name:{width}s}  {'; '.join(_manner(described))}"
    yield "routes"
    for number, route in enumerate(plan.routes, 1):
        yield f"  {number}. {_matchers(route.matchers)} -> {_names(route.to)}{' (and on)' if route.goes_on else ''}"
    if not plan.routes or plan.routes[-1].matchers != EVERYTHING or plan.routes[-1].goes_on:
        yield f"  {'what no route matches' if plan.routes else 'everything'} -> everybody"
    yield from _notes(plan, path)


def whom(path: Path, *, run: str, severity: Severity, rules: Iterable[str], labels: Mapping[str, str]) -> Iterator[str]:
    """Which routes match an incident, and who is told of it then.

    Raises:
        ReceiversError: something is wrong in the file.
    """
    plan, names = read_plan(path, others=BY_SETTINGS), tuple(rules)
    found = matching(plan.routes, run=run, severity=severity, rules=names, labels=labels)
    for route in found:
        yield f"route {plan.routes.index(route) + 1} matches: {_matchers(route.matchers)}"
    if not found:
        yield "no route matches"
    told = recipients(plan.routes, plan.names, run=run, severity=severity, rules=names, labels=labels)
    yield f"told: {_names(sorted(told))}"


def _notes(plan: Plan, path: Path) -> Iterator[str]:
    led_to = {name for route in plan.routes for name in route.to}
    for described in plan.receivers:
        if plan.routes and described.name not in led_to:
            yield f"note: no route leads to {described.name}"
        try:
            make_receiver(described, Surroundings(), path).close()
        except ReceiversError as error:
            yield f"note: can't be made on this machine: {error}"
    for name in sorted(led_to.difference(plan.names)):
        yield f"note: {name} is not in this file; the service's settings have to make it"


def _manner(described: Described) -> Iterator[str]:
    policy = described.policy
    yield described.kind
    if described.lang is not None:
        yield f"lang {described.lang}"
    yield from (f"quiet {_quiet(hours)}" for hours in policy.quiet)
    if KINDS[described.kind].mirrors:
        yield "shown all that fires"
        return
    yield f"at most {policy.pace.burst} messages at once, then one each {policy.pace.seconds:g} s"
    if policy.remind_seconds is not None:
        yield f"reminded after {policy.remind_seconds / 3600:g} h"


def _quiet(hours: QuietHours) -> str:
    days = "" if len(hours.days) == len(DAYS) else " " + " ".join(DAYS[day] for day in sorted(hours.days))
    return f"{hours.start:%H:%M} to {hours.end:%H:%M} {hours.timezone.key}{days}"


def _matchers(matchers: Matchers) -> str:
    said = [] if matchers.severity is None else [str(matchers.severity)]
    said += [
        f"{name} {pattern}" for name, pattern in (("run", matchers.run), ("rule", matchers.rule)) if pattern != "*"
    ]
    said += [f"label {name}={pattern}" for name, pattern in matchers.labels.items()]
    return ", ".join(said) or "everything"


def _names(found: Iterable[str]) -> str:
    return ", ".join(found) or "nobody"
