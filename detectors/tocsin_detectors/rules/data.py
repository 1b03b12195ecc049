"""Data quality: what no metric may be, and steps that don't follow one another. The engine itself looks for these."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.rules.base import Rule

# Where a non-finite value means that the update itself is lost.
VITAL_FAMILIES = frozenset({"actor", "critic", "gradient", "kl"})

NON_FINITE = Rule(
    name="non_finite",
    family="data",
    metrics=("{metric}",),
    tests=(),
    signs=1,
    among=1,
    recovery=5,
    severity=Severity.WARNING,
    critical_if_severe=True,
    title="A metric is not a number",
    meaning=(
        "NaN or infinity. In a loss, a gradient norm or a KL it means that the update of this step was lost or has "
        "poisoned the weights; the answers often turn into one repeated character right after. It comes without "
        "warning: the step before is usually normal."
    ),
    remedies=(
        "Stop, and resume from the last checkpoint before this step.",
        "Print old log-probs, log-probs and their ratio for the batch: a NaN usually shows in the old log-probs first.",
        "Clamp the log ratio before the exponential of the k3 estimator (verl kl_loss_type=low_var_kl), or use another "
        "estimator.",
        "Check the mask for rows without a single valid token, and the precision (bf16, fused kernels, sequence "
        "parallelism).",
    ),
    source="documented reports of verl, Agent-R1, ms-swift and open-r1; seed: general remarks",
)

STEP_WENT_BACK = Rule(
    name="step_went_back",
    family="data",
    metrics=("training/global_step",),
    tests=(),
    signs=1,
    among=1,
    recovery=5,
    severity=Severity.INFO,
    title="The run went back to an earlier step",
    meaning=(
        "The trainer resumed from a checkpoint (or two trainers share one run id). A new attempt begins: baselines carry "
        "over, alerts of the last attempt are resolved."
    ),
    remedies=("If nobody restarted the run, check that no two jobs log under the same run id.",),
    source="beyond the seed: resume behaviour of the frameworks",
)

RULES = (NON_FINITE, STEP_WENT_BACK)
