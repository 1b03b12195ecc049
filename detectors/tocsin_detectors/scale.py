"""The scale on which a metric is watched: the unit in which "far" and "large" make sense for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Scale"]

# Values beyond are all alike absurd: sums, differences and logarithms of what is left stay within the float range.
LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class Scale:
    """A monotone transform, so that medians of transformed values are transformed medians.

    Attributes:
        kind: "symlog" for positive heavy-tailed metrics (KL, norms, lengths, times), "logit" for shares in [0, 1],
            "linear" for the rest.
        linear: symlog only, > 0, in the metric's unit: below it the scale is linear, above it logarithmic, where a
            difference of transformed values is the log of a ratio. It says which values are as good as zero.
    """

    kind: Literal["symlog", "linear", "logit"] = "linear"
    linear: float = 1.0

    def transform(self, value: float) -> float:
        """A finite value of the metric in the unit of the scale; values beyond 1e100 count as 1e100."""
        value = min(max(value, -LARGEST), LARGEST) + 0.0  # the sum makes -0.0 the 0.0 that it equals
        if self.kind == "symlog":
            return math.log1p(value / self.linear) if value >= 0 else -math.log1p(-value / self.linear)
        return value  # shares stay as they are: an absolute difference of shares is what counts

    def inverse(self, x: float) -> float:
        """The value of the metric that ``x`` stands for; infinite beyond the float range."""
        if self.kind == "symlog":
            try:
                return math.copysign(math.expm1(abs(x)) * self.linear, x)
            except OverflowError:
                return math.copysign(math.inf, x)
        return x
