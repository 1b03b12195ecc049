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
    source="documented reports of verl, Agent-R1, ms-swift and open-r1; notes on RL metrics: general remarks",
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
    source="beyond the notes: resume behaviour of the frameworks",
)

IMPOSSIBLE_VALUE = Rule(
    name="impossible_value",
    family="data",
    metrics=("{metric}",),
    tests=(),
    signs=2,
    among=3,
    recovery=64,  # a reporting bug comes and goes: say it once
    severity=Severity.WARNING,
    title="A metric has a value that its formula can't give",
    meaning=(
        "A share outside 0 to 1, a negative entropy or norm, a correlation beyond 1, a mean outside its minimum and "
        "maximum: what is reported is not what its name says. Whatever is decided from it is decided wrongly."
    ),
    remedies=(
        "Check how the metric is computed and reduced over ranks and micro-batches (sums reported as means, masks, signs).",
        "If the name means something else here, tell Tocsin the framework, so that it is read as meant.",
    ),
    source="notes on RL metrics: advantages have to comply with what the derivation says; formulas of its verl appendix",
)

METRIC_MISSING = Rule(
    name="metric_missing",
    family="data",
    metrics=("{metric}",),
    tests=(),
    signs=1,
    among=1,
    recovery=1,
    severity=Severity.INFO,
    title="A metric that came regularly stopped coming",
    meaning=(
        "Nothing has been heard of it for 32 steps and more, while others still come. Some trackers drop non-finite values "
        "silently, so a missing gradient norm can be a NaN."
    ),
    remedies=(
        "Look at the trainer's console for warnings about this metric.",
        "If the trainer's configuration was changed on purpose, ignore this.",
    ),
    source="beyond the notes: logging behaviour of the frameworks",
)

STEP_GAP = Rule(
    name="step_gap",
    family="data",
    metrics=("training/global_step",),
    tests=(),
    signs=1,
    among=1,
    recovery=5,
    severity=Severity.INFO,
    title="Steps are missing",
    meaning="The step number jumped much farther than it usually moves: vectors were lost, or the trainer skipped steps.",
    remedies=(
        "Check the client's count of dropped vectors, and whether the trainer was restarted from a later state.",
    ),
    source="beyond the notes: lost steps",
)

TOO_MANY_METRICS = Rule(
    name="too_many_metrics",
    family="data",
    metrics=("training/global_step",),
    tests=(),
    signs=1,
    among=1,
    recovery=5,
    severity=Severity.INFO,
    title="More metric names than can be watched",
    meaning=(
        "The run has used more distinct metric names than a run may have. Those that came first are watched on; new names are "
        "stored, but nothing looks at them. Mostly a name holds something that changes, such as a step, a path or a sample id."
    ),
    remedies=(
        "Take what changes out of the metric names.",
        "Log samples and per-item values elsewhere, not as metrics.",
    ),
    source="beyond the notes: bounded work for each vector",
)

# The rules that the engine itself looks after, for every metric and for the steps.
CHECKS = {
    rule.name: rule
    for rule in (NON_FINITE, IMPOSSIBLE_VALUE, METRIC_MISSING, STEP_WENT_BACK, STEP_GAP, TOO_MANY_METRICS)
}

RULES = tuple(CHECKS.values())
