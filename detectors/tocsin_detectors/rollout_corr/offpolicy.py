"""Off-policy diagnostics: how far the engine that trains has drifted from the one that generated.

Per token d = log π_train - log π_rollout over valid tokens; per row n tokens, x = -mean d.

    kl             mean of -d over tokens: k1 of KL(rollout || train), of either sign
    k3_kl          mean of exp(d) - 1 - d over tokens
    training_ppl, rollout_ppl            mean over rows of exp(-mean log-probability)
    training_log_ppl, rollout_log_ppl    mean over rows of -mean log-probability
    log_ppl_diff, _abs_diff, _diff_max, _diff_min    mean, mean size, extremes of x over rows
    ppl_ratio      mean over rows of exp(x)
    chi2_token     mean over tokens of exp(2 d) - 1, d within 20
    chi2_seq       mean over rows of exp(2 Σd) - 1, Σd within 20

All in nats. Source: verl, ``rollout_corr_helper``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tocsin_detectors.rollout_corr.block import CLAMP
from tocsin_detectors.rollout_corr.counts import Counts, ratio
from tocsin_detectors.rollout_corr.log_ratio import RowTable
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["accumulate_off_policy", "finish_off_policy"]

_SUMS = (
    "d",
    "k3_free",
    "chi2_token",
    "training_ppl",
    "training_log_ppl",
    "rollout_ppl",
    "rollout_log_ppl",
    "log_ppl_diff",
    "log_ppl_abs_diff",
    "ppl_ratio",
    "chi2_seq",
    "saturated_tokens",
    "saturated_rows",
    "bad_old",
    "bad_rollout",
)


def accumulate_off_policy(table: RowTable) -> Totals:
    """Totals of the off-policy diagnostics, over the rows of this process."""
    training, rollout, x = -table.mean("old"), -table.mean("rollout"), -table.mean("d")
    d = table["d"]
    totals = Totals()
    totals.add_stacked(
        "sum",
        _SUMS,
        table.sums(
            [
                d,
                table["k3_free"],
                table["c2"] + 2 * table["c1"],
                table.exp(training),
                training,
                table.exp(rollout),
                rollout,
                x,
                x.abs(),
                table.exp(x),
                (2 * d.clamp(-CLAMP, CLAMP)).expm1(),
                table["saturated"],
                d.abs() > CLAMP,
                table["bad_old"],
                table["bad_rollout"],
            ]
        ),
    )
    totals.add_stacked("max", ["log_ppl_diff_max"], table.maxima([x]))
    totals.add_stacked("min", ["log_ppl_diff_min"], table.minima([x]))
    return totals


def finish_off_policy(totals: Mapping[str, float], counts: Counts) -> dict[str, float]:
    """The 13 diagnostics. Rows without tokens count as rows of perplexity 1, if ``counts`` has any.

    Returns:
        Metrics by name, without prefix; NaN where there is nothing to divide by.
    """
    rows, empty = counts.rows, counts.empty

    def over_rows(name: str, of_empty: float = 0.0) -> float:
        return ratio(totals[name] + of_empty * empty, rows)

    most, least = totals["log_ppl_diff_max"], totals["log_ppl_diff_min"]
    if empty:  # written so that NaN stays
        most, least = (most if not most < 0 else 0.0), (least if not least > 0 else 0.0)
    return {
        "training_ppl": over_rows("training_ppl", 1.0),
        "training_log_ppl": over_rows("training_log_ppl"),
        "kl": -ratio(totals["d"], counts.tokens),
        "k3_kl": ratio(totals["k3_free"], counts.tokens),
        "rollout_ppl": over_rows("rollout_ppl", 1.0),
        "rollout_log_ppl": over_rows("rollout_log_ppl"),
        "log_ppl_diff": over_rows("log_ppl_diff"),
        "log_ppl_abs_diff": over_rows("log_ppl_abs_diff"),
        "log_ppl_diff_max": most if rows else float("nan"),
        "log_ppl_diff_min": least if rows else float("nan"),
        "ppl_ratio": over_rows("ppl_ratio", 1.0),
        "chi2_token": ratio(totals["chi2_token"], counts.tokens),
        "chi2_seq": over_rows("chi2_seq"),
    }
