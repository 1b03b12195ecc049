"""The core's metrics written down naively in float64, from the formulas: nothing of ours is used here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Rows:
    """The valid tokens of each row, as float64; rows may be empty."""

    old: list[np.ndarray]
    rollout: list[np.ndarray]

    @property
    def d(self) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [old - rollout for old, rollout in zip(self.old, self.rollout, strict=True)]


def clamp(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -20.0, 20.0)


def mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else NAN


def std(values: Sequence[float] | np.ndarray, *, sample: bool) -> float:
    if len(values) <= 1:
        return 0.0 if len(values) else NAN
    return float(np.std(values, ddof=int(sample)))


def share(flags: Sequence[bool] | np.ndarray) -> float:
    return float(np.mean(flags)) if len(flags) else NAN


def most(values: Sequence[float] | np.ndarray) -> float:
    return float(np.max(values)) if len(values) else NAN


def least(values: Sequence[float] | np.ndarray) -> float:
    return float(np.min(values)) if len(values) else NAN


def off_policy(rows: Rows, *, strict: bool) -> dict[str, float]:
    chosen = [i for i, row in enumerate(rows.old) if len(row) or not strict]

    def row_mean(values: list[np.ndarray]) -> np.ndarray:
        return np.array([np.mean(values[i]) if len(values[i]) else 0.0 for i in chosen])

    d = rows.d
    training, rollout, x = -row_mean(rows.old), -row_mean(rows.rollout), -row_mean(d)
    tokens = np.concatenate([*d, np.zeros(0)])
    sums = clamp(np.array([np.sum(d[i]) for i in chosen]))
    return {
        "training_ppl": mean(np.exp(training)),
        "training_log_ppl": mean(training),
        "kl": -mean(tokens),
        "k3_kl": mean(np.expm1(tokens) - tokens),
        "rollout_ppl": mean(np.exp(rollout)),
        "rollout_log_ppl": mean(rollout),
        "log_ppl_diff": mean(x),
        "log_ppl_abs_diff": mean(np.abs(x)),
        "log_ppl_diff_max": most(x),
        "log_ppl_diff_min": least(x),
        "ppl_ratio": mean(np.exp(x)),
        "chi2_token": mean(np.expm1(2 * clamp(tokens))),
        "chi2_seq": mean(np.expm1(2 * sums)),
    }


def weights(
    rows: Rows, level: str, lower: float | None, upper: float, *, strict: bool
) -> tuple[list[np.ndarray], dict[str, float]]:
    """Weights per valid token before normalisation, and the statistics with the factor of normalisation."""
    low = 1 / upper if lower is None else lower
    d = rows.d
    log_ratio = [clamp(row) if level == "token" else np.full(len(row), clamp(np.sum(row))) for row in d]
    raw = [np.exp(row) for row in log_ratio]
    if lower is None:
        applied = [np.minimum(row, upper) for row in raw]
    else:
        applied = [np.where((row >= lower) & (row <= upper), row, 0.0) for row in raw]
    tokens, raw_tokens = np.concatenate([*applied, np.zeros(0)]), np.concatenate([*raw, np.zeros(0)])
    chosen = [i for i, row in enumerate(d) if len(row) or not strict]
    row_means = np.array([np.mean(applied[i]) if len(d[i]) else 0.0 for i in chosen])
    raw_means = np.array([np.mean(raw[i]) if len(d[i]) else 0.0 for i in chosen])
    said = {"mean": mean(tokens)}
    if level == "token":
        said |= {"max": most(tokens), "min": least(tokens)}
        said |= {"ratio_fraction_high": share(raw_tokens > upper), "ratio_fraction_low": share(raw_tokens < low)}
    else:
        sums = np.array([np.sum(d[i]) for i in chosen])
        said |= {"max": math.exp(min(most(sums), 20.0)) if len(sums) else NAN}
        said |= {"min": math.inf if least(sums) > 88.7 else float(np.exp(least(sums)))}
        said |= {
            "ratio_fraction_high": share(sums > math.log(upper)),
            "ratio_fraction_low": share(sums < math.log(low)),
        }
        if np.isnan(sums).any():
            said |= {"max": NAN, "min": NAN}
    said["std"] = std(tokens, sample=False)
    squares = mean(tokens**2)
    said["eff_sample_size"] = 0.0 if squares == 0 else mean(tokens) ** 2 / squares
    said |= {
        "seq_mean": mean(row_means),
        "seq_std": std(row_means, sample=True),
        "seq_max": most(row_means),
        "seq_min": least(row_means),
        "seq_max_deviation": most(np.abs(row_means - 1)),
        "seq_fraction_high": share(raw_means > upper),
        "seq_fraction_low": share(raw_means < low),
    }
    if lower is not None:
        said["oob_ratio"] = share(~((raw_tokens >= lower) & (raw_tokens <= upper)))
    live = [np.mean(row) for row in applied if len(row)]
    factor = mean(tokens) if level == "token" else mean(live)
    said["batch_norm_factor"] = factor if factor > 1e-8 else 1.0
    return applied, said


def statistic(rows: Rows, option: str) -> list[np.ndarray]:
    """Per valid token: of itself, or of its row."""
    level, estimator = option.rsplit("_", 1)
    result = []
    for row in rows.d:
        e = clamp(row)
        k = {"k1": -e, "k2": e**2 / 2, "k3": np.expm1(e) - e}[estimator]
        if level == "token" or not len(k):
            result.append(k)
        else:
            value = {"seq_sum": np.sum, "seq_mean": np.mean, "seq_max": np.max}[level](k)
            result.append(np.full(len(k), value))
    return result


def rejection(
    rows: Rows, options: Sequence[tuple[str, float | None, float]], *, strict: bool
) -> tuple[list[np.ndarray], dict[str, float]]:
    """Which valid tokens are kept, and the statistics; bounds are those of the statistic itself."""
    kept = [np.ones(len(row), bool) for row in rows.old]
    live = [i for i, row in enumerate(rows.old) if len(row)]
    said: dict[str, float] = {}
    for name, lower, upper in options:
        low = -INF if lower is None else lower
        values = statistic(rows, name)
        inside = [(row >= low) & (row <= upper) for row in values]
        kept = [a & b for a, b in zip(kept, inside, strict=True)]
        tokens = np.concatenate([*values, np.zeros(0)])
        row_values = np.array([np.mean(values[i]) for i in live])
        judged = tokens if name.startswith("token") else row_values
        one = {
            "mean": mean(tokens),
            "max": most(tokens),
            "min": least(tokens),
            "fraction_high": share(judged > upper),
            "fraction_low": share(judged < low),
            "std": std(np.clip(tokens, low, upper), sample=False),
            "seq_mean": mean(row_values),
            "seq_std": std(row_values, sample=True),
            "seq_max": most(row_values),
            "seq_min": least(row_values),
            "seq_max_deviation": most(np.abs(row_values)),
            "seq_fraction_high": share(row_values > upper),
            "masked_fraction": share(~np.concatenate([*inside, np.zeros(0, bool)])),
            "seq_masked_fraction": share([not inside[i].all() for i in live]),
        }
        if lower is not None:
            one["seq_fraction_low"] = share(row_values < low)
        said |= {f"{name}_{key}": value for key, value in one.items()}
    said["masked_fraction"] = share(~np.concatenate([*kept, np.zeros(0, bool)]))
    chosen = live if strict else range(len(kept))
    said["seq_masked_fraction"] = share([not kept[i].all() for i in chosen])
    return kept, said
