"""One call for a batch: whatever the tensors allow, or what is asked for, with one transfer to the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, distributed

from tocsin_detectors.rollout_corr import (
    accuracy,
    advantages,
    core,
    data,
    debug,
    entropy,
    extremes,
    kl,
    ratio,
)
from tocsin_detectors.rollout_corr.errors import TensorError
from tocsin_detectors.rollout_corr.family import Accumulated, Family, Finding
from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.sequences import gather_rows
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["FAMILIES", "ROW_LEVEL", "TOKEN_LEVEL", "Measured", "measure"]

FAMILIES: Sequence[Family] = tuple(
    module.FAMILY for module in (core, debug, kl, ratio, entropy, extremes, advantages, data, accuracy)
)
TOKEN_LEVEL = (
    "old_log_probs",
    "rollout_log_probs",
    "ref_log_prob",
    "log_probs",
    "entropys",
    "advantages",
    "returns",
    "values",
    "token_level_scores",
    "token_level_rewards",
)
ROW_LEVEL = ("scores", "rewards", "prompt_lengths", "group", "prompt", "domain", "gradient_step")
LAYOUT = ("response_mask", "response_lengths", "cu_seqlens")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a batch says.

    Attributes:
        metrics: numbers under their canonical names.
        outputs: what options asked to be returned: ``rollout_is_weights`` (token-level, 0 in padding) and
            ``response_mask`` (token-level, of the type of the mask given; bool if the layout is ragged).
        findings: what numbers can't say, in words and plain data.
    """

    metrics: dict[str, float]
    outputs: dict[str, Tensor] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def measure(
    tensors: Mapping[str, Tensor],
    options: Options | None = None,
    *,
    group: distributed.ProcessGroup | None = None,
    reduce: bool = False,
) -> Measured:
    """Measure a batch.

    Args:
        tensors: by verl's names. Token level, ``[B, T]`` padded or ``[N]`` ragged: those of ``TOKEN_LEVEL``. Row level,
            ``[B]``: those of ``ROW_LEVEL``. The layout, one of: ``response_mask`` ``[B, T]``, ``response_lengths``
            ``[B]``, ``cu_seqlens`` ``[B + 1]``. All on one device.
        options: what to compute, in which behaviour.
        group: the processes to combine with; None: all of them. Only read with ``reduce``.
        reduce: the batch is spread over the processes of ``torch.distributed``: combine their totals, so that each of
            them gets the metrics of the whole batch (outputs stay those of its own rows). All have to call alike.

    Raises:
        TensorError: a tensor is missing, unknown or unfit.
        OptionError: options that don't fit together.
    """
    options = options or Options()
    rows = layout(tensors, fractions=not options.strict and not reduce)
    checked = _checked(tensors, rows, widen=reduce)
    families = [family for family in FAMILIES if _applies(family, checked, options)]
    if not families:
        raise TensorError(f"nothing can be computed of {', '.join(sorted(tensors))}; send old_log_probs, for one")
    with torch.no_grad():
        parts = [family.accumulate(checked, rows, options) for family in families]
        host = _to_host(parts, group, reduce=reduce)
        if reduce:
            for part in parts:
                gather_rows(part.outputs, group)
        measured = Measured({})
        for number, (family, part) in enumerate(zip(families, parts, strict=True)):
            prefix = f"{number}."
            mine = {name.removeprefix(prefix): value for name, value in host.items() if name.startswith(prefix)}
            finished = family.finish(mine, part.outputs, options)
            measured.metrics.update(finished.metrics)
            measured.outputs.update(part.outputs)
            measured.findings.extend([*part.findings, *finished.findings])
    mask = tensors.get("response_mask")
    if mask is not None and core.MASK in measured.outputs:
        measured.outputs[core.MASK] = measured.outputs[core.MASK].to(mask.dtype)
    return measured


def layout(tensors: Mapping[str, Tensor], *, fractions: bool = False) -> Rows:
    """The layout that the tensors say.

    Args:
        tensors: among others one of ``LAYOUT``.
        fractions: take a mask of weights; what isn't 0 is valid.

    Raises:
        TensorError: none or several of the three ways to say it, or an invalid one.
    """
    given = [name for name in LAYOUT if name in tensors]
    if len(given) != 1:
        said = " and ".join(given) if given else "neither"
        raise TensorError(f"{said} given; send one of response_mask [B, T], response_lengths [B], cu_seqlens [B + 1]")
    if given == ["response_mask"]:
        return Rows.padded(tensors["response_mask"], fractions=fractions)
    if given == ["response_lengths"]:
        return Rows.ragged(tensors["response_lengths"])
    bounds = tensors["cu_seqlens"]
    if bounds.ndim != 1 or not bounds.shape[0] or bounds.dtype not in {torch.int32, torch.int64} or int(bounds[0]) != 0:
        raise TensorError("cu_seqlens is not [B + 1] int32 or int64 beginning with 0; send the rows' bounds")
    return Rows.ragged(bounds.diff())


def _checked(tensors: Mapping[str, Tensor], rows: Rows, *, widen: bool) -> dict[str, Tensor]:
    """The tensors that families get; with ``widen`` none of them of half precision, whose sums can't be combined."""
    checked = {}
    for name, tensor in tensors.items():
        if name in TOKEN_LEVEL:
            checked[name] = rows.check(name, tensor)
            if widen and tensor.dtype in {torch.float16, torch.bfloat16}:
                checked[name] = checked[name].to(torch.float32)
        elif name in ROW_LEVEL:
            checked[name] = rows.check_row_level(name, tensor)
        elif name == "response_mask":
            checked[name] = tensor.detach()
        elif name not in LAYOUT:
            known = ", ".join((*TOKEN_LEVEL, *ROW_LEVEL, *LAYOUT))
            raise TensorError(f"there is no tensor {name!r}; valid: {known}")
    return checked


def _applies(family: Family, tensors: Mapping[str, Tensor], options: Options) -> bool:
    """Whether the family is to be computed.

    Raises:
        TensorError: it is asked for by name, and tensors that it needs are missing.
    """
    able = any(all(name in tensors for name in needed) for needed in family.needs)
    if options.metrics is None:
        return able
    asked = [name for name in family.names if name in options.metrics]
    if asked and not able:
        ways = ", or ".join(" and ".join(needed) for needed in family.needs)
        raise TensorError(f"metrics asks for {', '.join(asked)}, which needs {ways}; send them")
    return bool(asked)


def _to_host(parts: Sequence[Accumulated], group: distributed.ProcessGroup | None, *, reduce: bool) -> dict[str, float]:
    totals = Totals()
    for number, part in enumerate(parts):
        totals.merge(part.totals, f"{number}.")
    return totals.to_host(group, reduce=reduce)
