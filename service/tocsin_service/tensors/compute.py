"""From bytes to metrics. Imports torch, so it is loaded by the worker alone, when the first tensors come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tocsin_detectors.rollout_corr.errors import OptionError, TensorError
from tocsin_detectors.rollout_corr.measure import measure
from tocsin_detectors.rollout_corr.options import Options
from tocsin_service.tensors.errors import ContentError, OptionsError
from tocsin_service.tensors.header import TensorSpan
from tocsin_service.tensors.intake import Body

__all__ = ["Computed", "compute", "parse_options"]

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
MOST_DOMAINS = 256
DOMAIN_LENGTH = 64
LOG_PROBS = frozenset({"old_log_probs", "rollout_log_probs", "ref_log_prob", "log_probs"})
# Steps between neighbouring numbers around -1, where log-probabilities are; engines differ by about 1e-3.
COARSE = {"BF16": "0.004 to 0.008", "F16": "0.0005 to 0.001"}


@dataclass(frozen=True, slots=True)
class Computed:
    """What came of a body.

    Attributes:
        size: bytes of the tensors.
        metrics: number by canonical name.
        findings: what is exactly wrong with the batch, as plain data.
        warnings: what makes the numbers less than they could be, in words.
    """

    size: int
    metrics: Mapping[str, float]
    findings: list[dict[str, Any]]
    warnings: list[str]


def parse_options(values: Mapping[str, Any]) -> Options:
    """The options in ``values``.

    Raises:
        OptionsError: one is unknown or not valid; the message lists what is.
    """
    try:
        return Options.parse(values)
    except OptionError as error:
        raise OptionsError(str(error)) from None


def compute(body: Body, options: Options, device: str, threads: int) -> Computed:
    """The metrics of the tensors in ``body``.

    Args:
        body: checked as far as its header goes; the content is not trusted.
        options: what to compute.
        device: "auto" (a CUDA device if there is one), or a device of torch.
        threads: how many of the CPU's threads torch may use.

    Raises:
        ContentError: a tensor is missing or malformed, or nothing can be computed.
        OptionsError: the names of the domains are not valid.
        MemoryError: the device or the machine has too little memory now.
    """
    options = _with_domains(options, body.header.metadata)
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    try:
        tensors = {span.name: _tensor(body, span).to(place) for span in body.header.tensors}
        with torch.inference_mode():
            measured = measure(tensors, options)
    except (OptionError, TensorError) as error:
        raise ContentError(str(error)) from None
    except torch.OutOfMemoryError as error:
        raise MemoryError(str(error)) from error
    if not measured.metrics:
        raise ContentError(
            "nothing can be computed of these tensors; send old_log_probs and rollout_log_probs, "
            "and response_mask or response_lengths"
        )
    return Computed(
        body.header.size, measured.metrics, [asdict(finding) for finding in measured.findings], _warnings(body)
    )


def _tensor(body: Body, span: TensorSpan) -> Tensor:
    dtype = DTYPES[span.dtype]
    if span.begin == span.end:
        return torch.empty(span.shape, dtype=dtype)
    # A byte of a bool that is neither 0 nor 1 would be true for some operations and count as more than one for others.
    read_as = torch.uint8 if dtype is torch.bool else dtype
    tensor = torch.frombuffer(body.view(span), dtype=read_as).view(span.shape)
    if dtype is not torch.bool:
        return tensor
    if int(tensor.max()) > 1:
        raise ContentError(f"{span.name} is of dtype BOOL and has bytes other than 0 and 1; send 0 or 1")
    return tensor.view(torch.bool)


def _with_domains(options: Options, metadata: Mapping[str, str]) -> Options:
    """The options with the names of the domains that the tensor ``domain`` counts, from the body's own metadata."""
    if "domains" not in metadata:
        return options
    try:
        names = json.loads(metadata["domains"])
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or len(names) > MOST_DOMAINS or not all(_is_domain(name) for name in names):
        raise OptionsError(
            f"the metadata's domains must be a JSON list of at most {MOST_DOMAINS} printable texts "
            f"of 1 to {DOMAIN_LENGTH} characters"
        )
    try:
        return replace(options, domains=tuple(names))
    except OptionError as error:
        raise OptionsError(str(error)) from None


def _is_domain(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= DOMAIN_LENGTH and name.isprintable()


def _warnings(body: Body) -> list[str]:
    return [
        f"{span.name} is {span.dtype}, whose numbers around -1 are {COARSE[span.dtype]} apart: differences between two "
        "engines are mostly smaller; send F32"
        for span in body.header.tensors
        if span.name in LOG_PROBS and span.dtype in COARSE
    ]
