"""Runs the cases of a file of rule tests, and tells in words where what came differs from what was to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tocsin_detectors.alerts import Alert, AlertEvent, Event, Incident, State
from tocsin_detectors.engine import Engine
from tocsin_detectors.entries import RunConfig, StepVector
from tocsin_detectors.rulefile.problems import Problems, nearest
from tocsin_detectors.rules import RuleSet
from tocsin_detectors.rules.incident import MODEL_COLLAPSE
from tocsin_detectors.ruletest.suite import Case, Expectation, Suite

__all__ = ["Outcome", "run_case", "run_suite"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        differences: in words; empty: it passed.
    """

    case: Case
    differences: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """All that was expected came, and nothing else of what was to be quiet."""
        return not self.differences


def run_suite(suite: Suite, rules: RuleSet) -> list[Outcome]:
    """Run all cases.

    Args:
        suite: the file.
        rules: those that its rule file makes, or the shipped ones.

    Raises:
        RuleFileError: a case names a rule that there isn't.
    """
    problems = Problems(suite.source)
    names = [rule.name for rule in rules]
    for case in suite.cases:
        named = [(case.line, name) for name in sorted(case.quiet)]
        named += [(one.line, name) for one in case.expect for name in (one.rule, *one.members)]
        for line, name in named:
            if name not in rules:
                problems.add(line, f"no rule is called {name!r}; {nearest(name, names)}")
    problems.settle()
    return [run_case(case, rules) for case in suite.cases]


def run_case(case: Case, rules: RuleSet) -> Outcome:
    """Fold the case's run, and compare."""
    said = _fold(case, rules)
    differences: list[str] = []
    left = list(said.alerts.values())
    for expectation in case.expect:
        if expectation.incident:
            differences.extend(_miss_incident(expectation, said))
            continue
        candidates = [
            alert for alert in left if alert.rule == expectation.rule and expectation.metric in {None, alert.metric}
        ]
        best = min(candidates, key=lambda alert: len(_miss(expectation, alert)), default=None)
        if best is None:
            others = [alert for alert in said.alerts.values() if alert.rule == expectation.rule and alert in left]
            differences.append(_absent(expectation, others))
        else:
            left.remove(best)
            differences.extend(_miss(expectation, best))
    differences.extend(
        f"nothing was to be said of it, but {_tell(alert)}: {alert.evidence.detail}"
        for alert in left
        if case.all_quiet or alert.rule in case.quiet
    )
    differences.extend(_unwanted_collapses(case, said))
    return Outcome(case, tuple(differences))


@dataclass
class _Said:
    """All that was said in a run: alerts and incidents in their last form."""

    alerts: dict[str, Alert] = field(default_factory=dict)
    incidents: dict[str, Incident] = field(default_factory=dict)
    became: dict[tuple[str, str], int] = field(default_factory=dict)  # (incident, rule): since which step

    def take(self, event: Event) -> None:
        if isinstance(event, AlertEvent):
            self.alerts[event.alert.id] = event.alert
        else:
            incident = event.incident
            self.incidents[incident.id] = incident
            self.became.setdefault((incident.id, incident.rule), event.step)


def _fold(case: Case, rules: RuleSet) -> _Said:
    engine, said = Engine(case.name, rules), _Said()
    for entry in _entries(case):
        for event in engine.feed(entry):
            said.take(event)
    return said


def _entries(case: Case) -> Iterator[StepVector | RunConfig]:
    if case.config != RunConfig():
        yield case.config
    told: set[int] = set()
    for row, step in enumerate(case.steps):
        if step in case.changes and step not in told:
            told.add(step)
            yield case.changes[step]
        metrics = {name: value for name, values in case.series.items() if (value := values[row]) is not None}
        if metrics:
            yield StepVector(step, metrics)


def _miss(expectation: Expectation, alert: Alert) -> list[str]:
    """In what the alert isn't the expected one."""
    found = []
    if expectation.fires is not None and alert.fired_step not in expectation.fires:
        found.append(f"{_tell(alert)}; expected at step {expectation.fires}")
    if expectation.severity not in {None, alert.severity}:
        found.append(f"{_tell(alert)}; expected to become {expectation.severity}")
    found.extend(_miss_end(expectation, alert, _tell(alert)))
    return found


def _miss_incident(expectation: Expectation, said: _Said) -> list[str]:
    incidents = [one for one in said.incidents.values() if (one.id, expectation.rule) in said.became]
    if not incidents:
        others = sorted({incident.rule for incident in said.incidents.values()})
        there = f"incidents were of {', '.join(others)}" if others else "there was no incident"
        return [f"no incident became {expectation.rule}; {there}"]
    return min((_miss_one_incident(expectation, one, said) for one in incidents), key=len)


def _miss_one_incident(expectation: Expectation, incident: Incident, said: _Said) -> list[str]:
    since = said.became[incident.id, expectation.rule]
    subject = f"the incident became {expectation.rule} at step {since}"
    found = []
    if expectation.fires is not None and since not in expectation.fires:
        found.append(f"{subject}; expected at step {expectation.fires}")
    if expectation.severity not in {None, incident.severity}:
        found.append(f"{subject} and is {incident.severity}; expected {expectation.severity}")
    members = [said.alerts[member].rule for member in incident.members]
    absent = [rule for rule in expectation.members if rule not in members]
    if absent:
        found.append(f"{subject} without {', '.join(absent)}; its members are {', '.join(members)}")
    found.extend(_miss_end(expectation, incident, subject))
    return found


def _miss_end(expectation: Expectation, one: Alert | Incident, subject: str) -> list[str]:
    over = one.state is State.RESOLVED
    if expectation.never and over:
        return [f"{subject} and was resolved at step {one.resolved_step}; expected to last"]
    if expectation.resolved is not None and one.resolved_step not in expectation.resolved:
        end = f"was resolved at step {one.resolved_step}" if over else "was never resolved"
        return [f"{subject} and {end}; expected to be resolved at step {expectation.resolved}"]
    return []


def _unwanted_collapses(case: Case, said: _Said) -> Iterator[str]:
    """An incident that became a collapse is news of its own, beside the alerts in it."""
    name = MODEL_COLLAPSE.name
    if not (case.all_quiet or name in case.quiet) or any(one.incident and one.rule == name for one in case.expect):
        return
    for (incident, rule), step in said.became.items():
        if rule == name:
            members = ", ".join(said.alerts[member].rule for member in said.incidents[incident].members)
            yield f"nothing was to be said of it, but an incident became {name} at step {step}: {members}"


def _absent(expectation: Expectation, others: list[Alert]) -> str:
    where = f" on {expectation.metric}" if expectation.metric else ""
    when = f" at step {expectation.fires}" if expectation.fires else ""
    instead = f"; instead {_tell(others[0])}" if others else ""
    return f"{expectation.rule}{where} didn't fire; expected{when or ' to'}{instead}"


def _tell(alert: Alert) -> str:
    return f"{alert.rule} on {alert.metric} fired at step {alert.fired_step} ({alert.severity})"
