"""Unit tests of rules: what a run's metrics do, and what is to be said of it. docs/rules.md has the notation."""

from tocsin_detectors.ruletest.judge import Outcome, run_case, run_suite
from tocsin_detectors.ruletest.notation import NotationError, Pattern
from tocsin_detectors.ruletest.suite import Case, Expectation, Suite, read_suite

__all__ = ["Case", "Expectation", "NotationError", "Outcome", "Pattern", "Suite", "read_suite", "run_case", "run_suite"]
