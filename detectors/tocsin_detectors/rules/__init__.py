"""The rule catalogue: one file per family, each a tuple of rules. Rules know RL and have no arithmetic.

Most of them come from a practitioner's notes (in Chinese) on the metrics of LLM-RL training, what their healthy shapes are
and what their anomalies meant; a rule's ``source`` names the section, or says where else it comes from.
"""

from tocsin_detectors.rules import (
    actor,
    advantage,
    critic,
    data,
    entropy,
    gradient,
    incident,
    kl,
    length,
    mismatch,
    ratio,
    reward,
    throughput,
)
from tocsin_detectors.rules.base import Condition, Guarded, Rule, RuleSet

__all__ = ["Condition", "Guarded", "Rule", "RuleSet", "shipped_rules"]

FAMILIES = (
    data,
    kl,
    reward,
    entropy,
    length,
    mismatch,
    actor,
    gradient,
    ratio,
    critic,
    advantage,
    throughput,
    incident,
)

_SHIPPED = RuleSet(rule for family in FAMILIES for rule in family.RULES)


def shipped_rules() -> RuleSet:
    """Every rule that Tocsin ships, with its default parameters."""
    return _SHIPPED
