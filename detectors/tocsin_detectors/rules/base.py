"""What a rule is: data. Which metric, which tests with which parameters, how urgent, what it means, what to do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Test
from tocsin_detectors.expressions import Expression
from tocsin_detectors.scale import Scale

__all__ = ["Condition", "Guarded", "Rule", "RuleSet"]


class Condition(StrEnum):
    """What else must hold of the run for a test to count. The engine knows how to look."""

    REWARD_RISING = "reward_rising"
    REWARD_NOT_RISING = "reward_not_rising"
    REWARD_SPREAD = "reward_spread"  # the rewards of the last steps were not all alike: there was something to learn
    NO_REWARD_SPREAD = "no_reward_spread"
    LEARNING = "learning"  # the learning rate isn't 0, as far as anybody says
    MIXTURE_OF_EXPERTS = "mixture_of_experts"
    DENSE = "dense"  # told, or not told otherwise
    WHITENED = "whitened"  # advantages are normalised over the batch
    NOT_WHITENED = "not_whitened"
    HAS_CRITIC = "has_critic"
    GROUP_NORMALISED = "group_normalised"  # GRPO and kin: advantages are centred within the group
    MEAN_PER_SEQUENCE = "mean_per_sequence"  # the reported advantage mean weighs every sequence the same
    MEAN_PER_TOKEN = "mean_per_token"  # it weighs every token the same, so long answers count more  # noqa: S105


@dataclass(frozen=True, slots=True)
class Guarded:
    """A test that counts only while its conditions hold."""

    test: Test
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the rule catalogue.

    Attributes:
        name: snake case, unique; also the name of its runbook page.
        family: the family of metrics it belongs to (kl, entropy, reward ...); incidents count families.
        metrics: canonical names to watch; a ``{placeholder}`` matches any text. With an ``expression`` the one name that
            its value gets.
        expression: arithmetic of several metrics, computed at every step that has all of them.
        scale: how to look at the expression's value; linear if not given.
        tests: any of them makes a sign.
        severity: of an alert when it begins to fire.
        signs, among: how many signs among how many values of the metric make an alert.
        recovery: values back to normal in a row that resolve it.
        critical_if_severe: a severe reading makes it critical.
        critical_after: signs in one episode that make it critical; None: never.
        critical_with: families whose alerts, begun within a few steps of this one, make it critical.
        first_of: watch only the first of ``metrics`` that the run reports, not each.
        skip_zero: an exact 0 is no measurement (nothing was updated, KL not yet counted): pass it over.
        unless: rules that say it better: while one of them fires, this one doesn't begin to.
        collapse: an alert of it is one of the signs that make a model collapse together.
        title: what happened, for a headline.
        meaning: what it says about the run.
        remedies: what to do, most helpful first, with the configuration keys of verl and TRL where they exist.
        source: where the rule comes from.
    """

    name: str
    family: str
    metrics: tuple[str, ...]
    tests: tuple[Test | Guarded, ...]
    severity: Severity
    title: str
    meaning: str
    remedies: tuple[str, ...]
    source: str
    signs: int = 2
    among: int = 3
    recovery: int = 5
    critical_if_severe: bool = False
    critical_after: int | None = None
    critical_with: frozenset[str] = frozenset()
    first_of: bool = False
    skip_zero: bool = False
    unless: frozenset[str] = frozenset()
    collapse: bool = False
    expression: Expression | None = None
    scale: Scale | None = None

    def __post_init__(self) -> None:
        if self.expression is not None and (len(self.metrics) != 1 or "{" in self.metrics[0]):
            raise ValueError(f"{self.name}: a rule with an expression has exactly one metric name, for its value")
        if not 1 <= self.signs <= self.among <= 16:
            raise ValueError(f"{self.name}: signs must be 1 to among, among at most 16")

    @property
    def keeps_zero_out(self) -> bool:
        """Exact zeros mustn't enter the series' baseline: a test of this rule judges by it, and they are no measurements."""
        tests = (entry.test if isinstance(entry, Guarded) else entry for entry in self.tests)
        return self.skip_zero and any(test.uses_baseline for test in tests)

    @property
    def version(self) -> str:
        """Digest of everything that decides when it fires (not of its texts): the key of its running state."""
        decisive = (
            self.name, self.metrics, self.tests, self.severity, self.signs, self.among, self.recovery,
            self.critical_if_severe, self.critical_after, sorted(self.critical_with), self.first_of, self.skip_zero,
            self.expression, self.scale, self.collapse, sorted(self.unless),
        )  # fmt: skip
        return hashlib.blake2b(repr(decisive).encode(), digest_size=6).hexdigest()


class RuleSet:
    """Rules by name, in the order in which they are judged.

    Raises:
        ValueError: two rules share a name.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules: dict[str, Rule] = {}
        for rule in rules:
            if rule.name in self._rules:
                raise ValueError(f"two rules are called {rule.name!r}; give one of them another name")
            self._rules[rule.name] = rule

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, name: object) -> bool:
        return name in self._rules

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    @property
    def version(self) -> str:
        """Digest of all rules' versions."""
        return hashlib.blake2b("".join(rule.version for rule in self).encode(), digest_size=6).hexdigest()
