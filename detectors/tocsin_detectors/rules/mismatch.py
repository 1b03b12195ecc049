"""Training engine against inference engine: two opinions on the same tokens."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, LevelShift, Trend
from tocsin_detectors.rules.base import Rule

GAP = (
    "rollout_corr/k3_kl",
    "rollout_corr/kl",
    "training/rollout_probs_diff_mean",
    "rollout_corr/logprob_abs_diff_mean",
)

RULES = (
    Rule(
        name="mismatch_kl_rising",
        family="mismatch",
        metrics=GAP,
        first_of=True,
        # From 1.2e-3 to 2.1e-3 over a long run is what a healthy dense model does.
        tests=(
            LevelShift("up", z=5, ratio=2.0, absolute=0.002, local=8),
            LevelShift("up", z=3, ratio=2.0, absolute=0.002, smooth=5, min_rows=12),
            Trend("up", z=3.3, ratio=4.0, block=4, blocks=12, skip=8),
        ),
        severity=Severity.WARNING,
        critical_with=frozenset({"reward", "kl", "entropy", "length"}),
        title="The gap between training and inference engine grows",
        meaning=(
            "Both engines should give the same tokens the same probability. A gap that grows is a typical prelude of a "
            "collapse: the policy is being updated with data that it wouldn't have written."
        ),
        remedies=(
            "Correct for it: truncated importance weights or rejection (verl algorithm.rollout_correction, TRL "
            "vllm_importance_sampling_correction).",
            "Check that the weights are synchronised at every step, and the precision of both engines (fp16 on both sides "
            "has less rounding than bf16).",
            "Lower the learning rate: a sharper policy makes the same numerical error count more.",
        ),
        source="seed: monitoring and correcting training/inference mismatch",
    ),
    Rule(
        name="mismatch_kl_gross",
        family="mismatch",
        metrics=("rollout_corr/kl", "rollout_corr/k3_kl"),
        tests=(Bound(above=0.1),),
        signs=3,
        among=4,
        severity=Severity.CRITICAL,
        title="Training and inference engine don't run the same policy",
        meaning=(
            "A mismatch KL of 0.1 and more is no rounding. One of the two sides misses the temperature (at T = 0.6 that "
            "alone gives 0.1 to 1), or the inference engine has old weights."
        ),
        remedies=(
            "Check that both sides divide the logits by the same temperature.",
            "Check that the weights reach the inference engine (sleep mode, partial updates, wrong parameter names).",
        ),
        source="seed: appendix on temperature and rollout_corr/kl",
    ),
)
