"""Tokens on which one of the engines is nearly sure that they don't come, or on which the engines differ grossly.

    extreme token   p < 1e-3
    extreme ratio   p_train / p_rollout above 2 or below 1/2

Both shares are of all valid tokens. A few extreme tokens carry most of a mismatch: they are where the engines' errors
of rounding become ratios. Source: notes on RL metrics, monitoring training/inference mismatch (extreme tokens).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finished
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.tally import Tally

__all__ = ["FAMILY"]

EXTREME_PROBABILITY = 1e-3
EXTREME_RATIO = 2.0
_SIDES = {"old_log_probs": "training", "rollout_log_probs": "rollout"}


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    del options  # the limits are part of the metrics' meaning
    given = [name for name in _SIDES if name in tensors]
    both = len(given) == len(_SIDES)
    tally = Tally(rows.device, ("tokens", *given, *(("ratio",) if both else ())))
    for block in rows.blocks(*(tensors[name] for name in given)):
        shares = [value < math.log(EXTREME_PROBABILITY) for value in block.values]
        if both:
            training, rollout = block.values
            shares.append((training - rollout).abs() > math.log(EXTREME_RATIO))
        tally.add(block.lengths, *shares)
    return Accumulated(tally.totals())


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    del outputs, options
    tokens = totals["tokens"]
    if not tokens:
        return Finished({})
    metrics = {
        f"rollout_corr/extreme_token_fraction_{side}": totals[name] / tokens
        for name, side in _SIDES.items()
        if name in totals
    }
    if "ratio" in totals:
        metrics["rollout_corr/extreme_ratio_fraction"] = totals["ratio"] / tokens
    return Finished(metrics)


FAMILY = Family(
    names=("extremes",), needs=(("old_log_probs",), ("rollout_log_probs",)), accumulate=_accumulate, finish=_finish
)
