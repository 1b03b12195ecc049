"""What a family of metrics is, to ``measure``: which tensors it needs, how it adds up, how it finishes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tocsin_detectors.rollout_corr.options import Options
from tocsin_detectors.rollout_corr.rows import Rows
from tocsin_detectors.rollout_corr.totals import Totals

__all__ = ["Accumulated", "Family", "Finding", "Finished"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a number can't say.

    Attributes:
        kind: a word for programs: "non_finite", "saturated", "low_precision", "empty_rows", "degenerate_groups", ...
        text: one sentence for people.
        data: plain data that goes with it: counts, row numbers.
    """

    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Accumulated:
    """What a family knows after its pass over the tensors of this process.

    Attributes:
        totals: what will be summed over processes and sent to the host.
        outputs: tensors to return, on the device.
        findings: what is known without the totals, of this process's rows alone.
    """

    totals: Totals
    outputs: dict[str, Tensor] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Finished:
    """What a family says in the end.

    Attributes:
        metrics: numbers under their canonical names.
        findings: what only the totals tell.
    """

    metrics: dict[str, float]
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Family:
    """A family of metrics.

    Attributes:
        names: the families of ``Options.metrics`` that it answers; it is asked when one of them is wanted.
        needs: names of tensors without which it can't say anything; several tuples are alternatives. When the family
            is asked for by name and none of them is complete, the call is refused; otherwise the family is left out.
        accumulate: tensors (checked and detached), the layout and options to totals.
        finish: the host's numbers of ``totals`` (combined over processes if asked for), outputs (which it may change in
            place) and options to metrics.
    """

    names: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]
    accumulate: Callable[[Mapping[str, Tensor], Rows, Options], Accumulated]
    finish: Callable[[Mapping[str, float], dict[str, Tensor], Options], Finished]
