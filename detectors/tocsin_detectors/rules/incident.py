"""Incidents: alerts that began together, and what they mean together."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.rules.base import Rule

TOGETHER = 8  # rows within which alerts belong to one incident

# A collapse shows in several families at once (of the rules that say so of themselves); families that a harmless step can shake alone (gradient, actor loss) don't
# make one without one of those that say how the model behaves.
BEHAVIOUR_FAMILIES = frozenset({"kl", "entropy", "reward", "length"})

MODEL_COLLAPSE = Rule(
    name="model_collapse",
    family="incident",
    metrics=("incident",),
    tests=(),
    severity=Severity.CRITICAL,
    title="Model collapse: several signs began together",
    meaning=(
        "At least two of KL, entropy, reward, response length, actor loss, gradient norm, importance ratio and "
        "training/inference gap broke within a few steps of one another. Single signs can be harmless; together they mean that the model is being lost."
    ),
    remedies=(
        "Stop the run and go back to the last good step named here.",
        "Begin with the first sign: it is nearest to the cause.",
        "Resume with a lower actor learning rate or a higher KL coefficient.",
        "Read the responses at the onset.",
    ),
    source="notes on RL metrics: KL divergence, rewards, actor loss, gradient norm (collapse shows in them together)",
)

RULES = (MODEL_COLLAPSE,)
