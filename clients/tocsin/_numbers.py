"""Numbers in every spelling that trainers, trackers and their logs use."""

from __future__ import annotations

import math
import re

__all__ = ["LONGEST", "number"]

LONGEST = 200
"""Texts longer than this are never numbers (a tensor's repr with its device and gradient function fits)."""

_WORDS = {"none": math.nan, "null": math.nan, "true": 1.0, "false": 0.0, "np.true_": 1.0, "np.false_": 0.0}
# Printed scalars of numpy, torch and jax. Only names of number types: "datetime(2026, 1, 1)" is no number.
_WRAPPED = re.compile(
    r"(?:\w+\.)*(?:tensor|array|(?:b?float|u?int|bool)\w*)\(\s*([^\s,()]+)\s*(?:,.*)?\)", re.IGNORECASE
)


def number(value: object) -> float:
    """The number that ``value`` stands for.

    Args:
        value: a number; a boolean (1 or 0); None, which trackers write for NaN; or the text of one of these, bare
            ("1e-3", "-inf", "NaN", "None", "True") or as a printed scalar ("np.float64(0.5)", "tensor(nan)").

    Returns:
        The value as a float; an integer beyond the range of floats is an infinity of its sign.

    Raises:
        ValueError: ``value`` is no number.
    """
    if value is None:
        return math.nan
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and len(value) <= LONGEST:
        text = value.strip()
        wrapped = _WRAPPED.fullmatch(text)
        text = wrapped.group(1) if wrapped else text
        word = _WORDS.get(text.lower())
        if word is not None:
            return word
        # float() reads "1_2" as 12, but in a log it is a name.
        if "_" not in text:
            return float(text)
    raise ValueError(f"a {type(value).__name__} that is no number")
