"""The families "off_policy", "is" and "rs": what follows from the log-ratio of the two engines, in one pass."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.block import Plan
from tocsin_detectors.rollout_corr.counts import Counts
from tocsin_detectors.rollout_corr.errors import OptionError, TensorError
from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finding, Finished
from tocsin_detectors.rollout_corr.literal import (
    Literal,
    literal_off_policy,
    literal_rejections,
    literal_weights,
)
from tocsin_detectors.rollout_corr.log_ratio import RowTable, row_table
from tocsin_detectors.rollout_corr.offpolicy import accumulate_off_policy, finish_off_policy
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rejection import accumulate_rejections, finish_rejections, row_verdicts
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.totals import Totals
from tocsin_detectors.rollout_corr.weights import (
    accumulate_weights,
    batch_norm_factor,
    finish_weights,
    sequence_weights,
)

__all__ = ["FAMILY", "HALF", "MASK", "NEEDED", "PREFIX", "WEIGHTS"]

NEEDED = ("old_log_probs", "rollout_log_probs")
PREFIX = "rollout_corr/"
WEIGHTS = "rollout_is_weights"
MASK = "response_mask"
HALF = frozenset({torch.float16, torch.bfloat16})


def wanted(options: Options, name: str) -> bool:
    """Whether the family ``name`` of the three is to be computed."""
    return options.metrics is None or name in options.metrics


def _accumulate(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    for name, option in (("is", options.rollout_is), ("rs", options.rollout_rs)):
        if options.metrics is not None and name in options.metrics and option is None:
            raise OptionError(f"metrics has {name!r}, but rollout_{name} says nothing; set rollout_{name}")
    findings = [_low_precision(name, tensors[name]) for name in NEEDED if tensors[name].dtype in HALF]
    if _is_literal(tensors, rows, options):
        result = _accumulate_literally(tensors, rows, options)
        result.findings.extend(findings)
        return result
    plan = _plan(options)
    table = row_table(tensors["old_log_probs"], tensors["rollout_log_probs"], rows, plan)
    totals = Totals()
    Counts.add(totals, rows)
    totals.merge(accumulate_off_policy(table), "off.")
    result = Accumulated(totals, findings=findings)
    if options.truncation is not None and options.rollout_is is not None and wanted(options, "is"):
        totals.merge(accumulate_weights(table, options.truncation, options.rollout_is), "is.")
        if options.return_weights:
            result.outputs[WEIGHTS] = _weights(table, options)
    if options.rejections and wanted(options, "rs"):
        verdict = row_verdicts(table, options.rejections)
        totals.merge(accumulate_rejections(table, options.rejections, verdict), "rs.")
        if options.return_mask:
            result.outputs[MASK] = _mask(table, verdict)
    return result


def _is_literal(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> bool:
    """Whether the types of the tensors decide verl's numbers, or its mask is one of weights."""
    if options.strict or rows.mask is None or not rows.tokens:
        return False
    mask = tensors[MASK]
    if any(tensors[name].dtype in HALF for name in NEEDED):
        return True
    return mask.is_floating_point() and not bool((mask == rows.mask).all())


def _accumulate_literally(tensors: Mapping[str, Tensor], rows: Rows, options: Options) -> Accumulated:
    """The finished metrics as totals: they are of this process alone."""
    old, rollout = (tensors[name] for name in NEEDED)
    batch = Literal(old, rollout, tensors[MASK])
    totals = Totals()
    Counts.add(totals, rows)
    result = Accumulated(totals)
    metrics: dict[str, float] = {}
    if options.rejections and wanted(options, "rs"):
        kept, numbers = literal_rejections(batch, options.rejections)
        metrics |= {f"rollout_rs_{name}": value for name, value in numbers.items()}
        if options.return_mask:
            result.outputs[MASK] = kept
    if options.truncation is not None and options.rollout_is is not None and wanted(options, "is"):
        normalize = options.rollout_is_batch_normalize
        weights, numbers = literal_weights(batch, options.truncation, options.rollout_is, normalize=normalize)
        metrics |= {f"rollout_is_{name}": value for name, value in numbers.items()}
        if options.return_weights:
            result.outputs[WEIGHTS] = weights
    if wanted(options, "off_policy"):
        metrics |= literal_off_policy(batch)
    values = torch.tensor([*metrics.values()], dtype=torch.float64, device=rows.device)
    totals.add_stacked("sum", [f"literal.{name}" for name in metrics], values)
    return result


def _low_precision(name: str, tensor: Tensor) -> Finding:
    text = f"{name} is {tensor.dtype}: it is rounded by more than engines that agree differ; send float32"
    return Finding("low_precision", text, {"tensor": name})


def _plan(options: Options) -> Plan:
    by_token = tuple(option for option in options.rejections if option.by_token)
    return Plan(
        weights=options.truncation if options.rollout_is == "token" and wanted(options, "is") else None,
        rejections=by_token if wanted(options, "rs") else (),
        squares=any(option.estimator == "k2" and option.level in {"sum", "mean"} for option in options.rejections),
        return_weights=options.return_weights,
        return_mask=options.return_mask,
    )


def _weights(table: RowTable, options: Options) -> Tensor:
    """Token-level weights, 0 in padding, before normalisation."""
    if table.weights is not None:
        return table.weights
    assert options.truncation is not None  # noqa: S101 - asked for only where there are weights
    return table.spread(sequence_weights(table, options.truncation).to(table.dtype))


def _mask(table: RowTable, verdict: Tensor) -> Tensor:
    """Token-level bool: valid, and kept by all options."""
    kept = table.kept
    if kept is None:
        return table.spread(verdict)
    return table.clear(kept, ~verdict)


def _finish(totals: Mapping[str, float], outputs: dict[str, Tensor], options: Options) -> Finished:
    counts = Counts.of(totals, strict=options.strict)
    if not counts.tokens and not options.strict:
        raise TensorError("response_mask has no valid token; send at least one (compat='strict' answers with NaN)")
    metrics = {f"{PREFIX}{name}": value for name, value in _part(totals, "literal.").items()}
    if metrics:
        return Finished(metrics)
    off = _part(totals, "off.")
    if options.rejections and wanted(options, "rs"):
        rejected = finish_rejections(_part(totals, "rs."), counts, options.rejections)
        metrics |= {f"{PREFIX}rollout_rs_{name}": value for name, value in rejected.items()}
    if options.truncation is not None and options.rollout_is is not None and wanted(options, "is"):
        mine = _part(totals, "is.")
        normalize = options.rollout_is_batch_normalize
        weights = finish_weights(
            mine, counts, options.truncation, options.rollout_is, strict=options.strict, normalize=normalize
        )
        metrics |= {f"{PREFIX}rollout_is_{name}": value for name, value in weights.items()}
        if normalize and WEIGHTS in outputs:
            outputs[WEIGHTS].div_(batch_norm_factor(mine, counts, options.rollout_is))
    if wanted(options, "off_policy"):
        metrics |= {f"{PREFIX}{name}": value for name, value in finish_off_policy(off, counts).items()}
    if options.strict:
        metrics |= _quality(totals, off)
    return Finished(metrics, _findings(totals, off))


def _part(totals: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in totals.items() if name.startswith(prefix)}


def _quality(totals: Mapping[str, float], off: Mapping[str, float]) -> dict[str, float]:
    return {
        f"{PREFIX}saturated_tokens": off["saturated_tokens"],
        f"{PREFIX}saturated_rows": off["saturated_rows"],
        f"{PREFIX}non_finite_old_log_probs": off["bad_old"],
        f"{PREFIX}non_finite_rollout_log_probs": off["bad_rollout"],
        f"{PREFIX}empty_rows": totals["empty"],
    }


def _findings(totals: Mapping[str, float], off: Mapping[str, float]) -> list[Finding]:
    findings = []
    for name, tensor in (("bad_old", "old_log_probs"), ("bad_rollout", "rollout_log_probs")):
        if off[name]:
            text = f"{tensor} has {off[name]:.0f} valid tokens that are NaN or infinite"
            findings.append(Finding("non_finite", text, {"tensor": tensor, "tokens": int(off[name])}))
    if off["saturated_tokens"] or off["saturated_rows"]:
        tokens, rows = off["saturated_tokens"], off["saturated_rows"]
        text = (
            f"the log-ratio is beyond 20 at {tokens:.0f} tokens, its sum in {rows:.0f} rows: "
            "what is exponentiated there says that it is large, not how large"
        )
        findings.append(Finding("saturated", text, {"tokens": int(tokens), "rows": int(rows)}))
    if totals["empty"]:
        text = f"{totals['empty']:.0f} of {totals['empty'] + totals['live']:.0f} rows have no valid token"
        findings.append(Finding("empty_rows", text, {"rows": int(totals["empty"])}))
    if not totals["tokens"]:
        findings.append(Finding("no_tokens", "no token is valid: means are NaN"))
    return findings


FAMILY = Family(
    names=("off_policy", "is", "rs"),
    needs=(NEEDED,),
    accumulate=_accumulate,
    finish=_finish,
)
