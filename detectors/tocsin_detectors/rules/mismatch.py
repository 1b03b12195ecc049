"""Training engine against inference engine: two opinions on the same tokens."""

from tocsin_detectors.alerts import Severity
from tocsin_detectors.algorithms import Bound, FromStart, LevelShift, RepeatedSpikes, Trend
from tocsin_detectors.expressions import Expression
from tocsin_detectors.rules.base import Condition, Guarded, Rule
from tocsin_detectors.scale import Scale

GAP = (
    "rollout_corr/k3_kl",
    "rollout_corr/kl",
    "training/rollout_probs_diff_mean",
    "rollout_corr/logprob_abs_diff_mean",
)

RULES = (
    Rule(
        name="mismatch_kl_rising",
        collapse=True,
        family="mismatch",
        metrics=GAP,
        first_of=True,
        # From 1.2e-3 to 2.1e-3 over a long run is what a healthy dense model does.
        tests=(
            Guarded(LevelShift("up", z=5, ratio=2.0, absolute=0.002, local=8), (Condition.DENSE,)),
            LevelShift("up", z=3, ratio=2.0, absolute=0.002, smooth=5, min_rows=12),
            Trend("up", z=3.8, ratio=2.5, block=3, blocks=10, skip=4),
            Trend("up", z=3.8, ratio=3.0, block=10, blocks=12, skip=10),
            # A gap that has doubled since the start of a short run is no drift of a healthy dense model any more.
            FromStart(ratio=2.0, early=5, smooth=5, at_least=0.02),
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
        source="notes on RL metrics: monitoring and correcting training/inference mismatch",
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
        source="notes on RL metrics: appendix on temperature and rollout_corr/kl",
    ),
    Rule(
        name="mismatch_kl_spike",
        unless=frozenset({"mismatch_kl_rising", "mismatch_kl_gross"}),
        family="mismatch",
        metrics=GAP,
        first_of=True,
        # Mixture-of-experts models spike from 1.5e-3 to 1.5e-2, rarely 5e-2, without harm as long as the level holds.
        tests=(
            Guarded(RepeatedSpikes(count=4, rows=64, z=8, ratio=5, min_rows=16), (Condition.DENSE,)),
            Guarded(Bound(above=0.06), (Condition.MIXTURE_OF_EXPERTS,)),
        ),
        severity=Severity.WARNING,
        title="The gap between training and inference engine spikes",
        meaning=(
            "On a dense model the gap has (nearly) no spikes. Single steps far above the level mean that now and then the two "
            "engines run different weights, masks or precisions. Mixtures of experts spike by nature: there only values "
            "beyond what is known to be harmless count."
        ),
        remedies=(
            "Tell Tocsin the profile (moe) if the model is a mixture of experts.",
            "Look at the steps' longest responses, and at what changed in the inference engine (cache, batch, speculation).",
        ),
        source="notes on RL metrics: monitoring training/inference mismatch (dense 20B against mixture of experts 500B)",
    ),
    Rule(
        name="probs_diff_high",
        family="mismatch",
        metrics=("training/rollout_probs_diff_mean",),
        tests=(Bound(above=0.01, severe=0.05),),
        signs=4,
        among=5,
        severity=Severity.WARNING,
        title="Training and inference give tokens different probabilities",
        meaning="The mean difference is above 0.01, where less than 0.005 is healthy: a precision problem of the inference engine.",
        remedies=(
            "Check dtype, quantisation and fused kernels of the inference engine.",
            "Check that both sides use the same temperature.",
        ),
        source="documented guard rails of verl; notes on RL metrics: debug metrics",
    ),
    Rule(
        name="logprob_diff_high",
        family="mismatch",
        metrics=("rollout_corr/logprob_abs_diff_mean",),
        tests=(Bound(above=0.1, severe=1.0),),
        signs=4,
        among=5,
        severity=Severity.WARNING,
        title="Training and inference give tokens different log-probs",
        meaning=(
            "The mean difference of the log-probs is above 0.1, ten times what a healthy pair of engines shows: old weights, "
            "other settings, or data that are far too old."
        ),
        remedies=(
            "Check that the inference engine gets the weights of each step.",
            "One epoch per rollout, a lower learning rate, a larger rollout batch: less off-policy data.",
            "Check temperature, dtype and quantisation of the inference engine.",
        ),
        source="documented reports; notes on RL metrics: training/inference mismatch",
    ),
    Rule(
        name="mult_prob_error_high",
        family="mismatch",
        metrics=("rollout_corr/mult_prob_error",),
        tests=(Bound(above=1.05, severe=1.5),),
        signs=3,
        among=4,
        severity=Severity.WARNING,
        title="Training and inference differ by more than 5 % per token",
        meaning="The multiplicative error between the engines' token probabilities is 1 when they agree; the framework itself warns beyond 1.05.",
        remedies=("Check precision and refit of the weights of the inference engine.",),
        source="NeMo-RL's own warning level for token_mult_prob_error",
    ),
    Rule(
        name="logit_error_rising",
        unless=frozenset({"mismatch_kl_rising", "mismatch_kl_gross"}),
        family="mismatch",
        metrics=("logit_error_std",),
        # KL = Var(eps) / (2 T^2), so T * sqrt(2 KL) is the logits' error itself and can be compared across temperatures.
        expression=Expression("{config.temperature} * sqrt(2 * max({rollout_corr/kl}, 0))"),
        scale=Scale("symlog", 1e-3),
        tests=(Trend("up", z=3.5, ratio=2.5, block=5, blocks=12, skip=10),),
        severity=Severity.WARNING,
        title="The engines' logits drift apart",
        meaning=(
            "The standard deviation of the logit error, T times the root of twice the KL, has grown by a factor of two and a "
            "half. Unlike the KL it doesn't depend on the sampling temperature: the numerical gap itself grows."
        ),
        remedies=(
            "Compare precision and kernels of both engines; fp32 for the final projection helps most.",
            "Correct for the gap: truncated importance weights or rejection (verl algorithm.rollout_correction).",
        ),
        source="notes on RL metrics: appendix on temperature and rollout_corr/kl",
    ),
    Rule(
        name="mismatch_selfcheck",
        family="mismatch",
        metrics=("k1_against_k3",),
        expression=Expression("abs({rollout_corr/kl} - {rollout_corr/k3_kl}) / (abs({rollout_corr/k3_kl}) + 0.0001)"),
        tests=(Bound(above=1.0, skip=5),),
        signs=12,
        among=16,
        severity=Severity.INFO,
        title="Two estimators of the engines' gap disagree",
        meaning=(
            "While the mismatch is small both estimators are half the variance of the log ratio. They differ by more than "
            "their size (or the KL is negative): the mismatch isn't small, or the two sides are masked differently."
        ),
        remedies=("Look at the largest log ratios of a batch, and at the masks of both sides.",),
        source="notes on RL metrics: appendix on temperature and rollout_corr/kl (third conclusion)",
    ),
    Rule(
        name="mismatch_ppl_identity",
        family="mismatch",
        metrics=("ppl_gap_against_kl",),
        expression=Expression(
            "abs({rollout_corr/log_ppl_diff} - {rollout_corr/kl}) / (abs({rollout_corr/kl}) + 0.0001)"
        ),
        tests=(Bound(above=1.0, skip=5),),
        signs=12,
        among=16,
        severity=Severity.INFO,
        title="The mismatch depends on the responses' length",
        meaning=(
            "The mean over sequences and the mean over tokens of the same difference would be equal if all responses had the "
            "same length. A lasting gap means that length and mismatch go together."
        ),
        remedies=("Look at the mismatch of the longest responses: errors that build up along a sequence.",),
        source="notes on RL metrics: training/inference mismatch (perplexity and k1 are nearly the same)",
    ),
    Rule(
        name="is_weight_off_one",
        family="mismatch",
        metrics=("rollout_corr/rollout_is_mean",),
        tests=(Bound(above=2.0), Bound(below=0.5)),
        signs=4,
        among=5,
        severity=Severity.WARNING,
        title="The importance weights are far from 1",
        meaning="The mean weight is outside 0.5 to 2, so the gradient is scaled by as much. Weights of whole sequences are usually far below 1.",
        remedies=(
            "Use token-level weights (verl rollout_is=token), or normalise them over the batch (rollout_is_batch_normalize).",
            "Find the cause of the mismatch.",
        ),
        source="notes on RL metrics: importance-sampling weights; documented guard rails",
    ),
    Rule(
        name="ess_low",
        family="mismatch",
        metrics=("rollout_corr/rollout_is_eff_sample_size",),
        tests=(Bound(below=0.3), LevelShift("down", z=4, absolute=0.25, smooth=5, min_rows=16)),
        signs=4,
        among=5,
        severity=Severity.WARNING,
        title="Few samples carry the whole update",
        meaning="The effective sample size is below 30 % of the batch, or fell by a quarter of it: a handful of tokens has nearly all the weight.",
        remedies=("Truncate the weights harder (verl rollout_is_threshold).", "Find the cause of the mismatch."),
        source="notes on RL metrics: importance-sampling weights (effective sample size); documented guard rails",
    ),
    Rule(
        name="is_out_of_bounds",
        family="mismatch",
        metrics=(
            "rollout_corr/rollout_is_ratio_fraction_high",
            "rollout_corr/rollout_is_ratio_fraction_low",
            "rollout_corr/rollout_is_oob_ratio",
        ),
        tests=(Bound(above=0.1),),
        signs=4,
        among=5,
        severity=Severity.WARNING,
        title="Many importance weights are out of bounds",
        meaning="More than a tenth of the weights is beyond the thresholds, where they are cut or zeroed.",
        remedies=("Find the cause of the mismatch before widening the thresholds (verl rollout_is_threshold).",),
        source="notes on RL metrics: importance-sampling weights (share out of bounds)",
    ),
    Rule(
        name="rejection_high",
        family="mismatch",
        metrics=("rollout_corr/rollout_rs_masked_fraction", "rollout_corr/rollout_rs_seq_masked_fraction"),
        tests=(Bound(above=0.5),),
        signs=4,
        among=5,
        severity=Severity.WARNING,
        title="Most of the batch is rejected",
        meaning="More than half of the data is thrown away by rejection sampling: the run learns from a selected minority.",
        remedies=(
            "Find the cause of the mismatch; thresholds of whole sequences tighten with their length (verl rollout_rs_threshold).",
        ),
        source="notes on RL metrics: rejection sampling",
    ),
    Rule(
        name="chi2_explosion",
        family="mismatch",
        metrics=("rollout_corr/chi2_token",),
        # chi2_seq grows exponentially with the length by nature; only the token's value has a meaning of its own.
        tests=(Bound(above=1.0), LevelShift("up", z=5, ratio=10.0, absolute=0.05, smooth=3, min_rows=16)),
        signs=3,
        among=4,
        severity=Severity.WARNING,
        title="The importance weights' variance explodes",
        meaning="The chi-square divergence per token is above 1, or has grown tenfold: importance sampling no longer works there.",
        remedies=("Truncate or reject (verl algorithm.rollout_correction).", "Find the cause of the mismatch."),
        source="notes on RL metrics: chi-square divergence; documented guard rails",
    ),
    Rule(
        name="extreme_tokens_rising",
        family="mismatch",
        metrics=("rollout_corr/extreme_token_fraction_training", "rollout_corr/extreme_token_fraction_rollout"),
        tests=(LevelShift("up", z=4, absolute=0.02, smooth=5, min_rows=16),),
        severity=Severity.WARNING,
        title="More tokens have a tiny probability",
        meaning="The share of tokens with a probability below 0.001 on one of the sides rose: such tokens make the largest ratios.",
        remedies=("Mask extreme tokens.", "Lower the temperature, or sample with top-p below 1."),
        source="notes on RL metrics: extreme tokens",
    ),
    Rule(
        name="probs_correlation_low",
        family="mismatch",
        metrics=("training/rollout_actor_probs_pearson_corr",),
        tests=(Bound(below=0.9), LevelShift("down", z=2, relative=0.02, absolute=0.01, smooth=5, min_rows=16)),
        signs=4,
        among=5,
        severity=Severity.WARNING,
        title="The engines' probabilities no longer agree",
        meaning="The correlation between training and inference probabilities of the sampled tokens fell; healthy runs are above 0.99.",
        remedies=("Check precision (fp32 for the final projection), kernels and the synchronisation of weights.",),
        source="notes on RL metrics: debug metrics (rollout_actor_probs_pearson_corr)",
    ),
)
