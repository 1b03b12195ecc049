"""The policy's entropy over a batch, in the four ways in which verl averages losses.

    token-mean                 sum of all tokens / number of tokens
    seq-mean-token-mean        mean over responses of their mean
    seq-mean-token-sum         mean over responses of their sum
    seq-mean-token-sum-norm    that, divided by the longest possible response: ``response_limit``, else the width of
                               padded tensors, else (ragged) the longest response

Empty responses count in none of them. Source: verl ``core_algos.agg_loss``. Entropies come per token; logits are too
large to send.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finished
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.tally import Tally

__all__ = ["FAMILY"]


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    tally = Tally(rows.device, ("tokens", "rows", "sum", "means"))
    for block in rows.blocks(tensors["entropys"]):
        sums = block.values[0].sum(1, dtype=torch.float64)
        tally.add(block.lengths, block.lengths > 0, sums, sums / block.lengths.clamp(min=1))
    totals = tally.totals()
    limit = options.response_limit or rows.width
    totals.add("max", {"limit": torch.tensor(limit, dtype=torch.float64, device=rows.device)})
    return Accumulated(totals)


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    del outputs  # it has none
    if not totals["tokens"]:
        return Finished({})
    per_row = totals["sum"] / totals["rows"]
    by_mode = {
        "token-mean": totals["sum"] / totals["tokens"],
        "seq-mean-token-mean": totals["means"] / totals["rows"],
        "seq-mean-token-sum": per_row,
        "seq-mean-token-sum-norm": per_row / totals["limit"],
    }
    metrics = {f"actor/entropy_{mode.replace('-', '_')}": value for mode, value in by_mode.items()}
    return Finished({"actor/entropy": by_mode[options.entropy_aggregation], **metrics})


FAMILY = Family(names=("entropy",), needs=(("entropys",),), accumulate=_accumulate, finish=_finish)
