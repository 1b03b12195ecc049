"""What callers are told when a request can't be answered as it stands."""

from __future__ import annotations

__all__ = ["OptionError", "TensorError"]


class OptionError(ValueError):
    """An option is invalid, or contradicts another; the message names it and lists what is valid."""


class TensorError(ValueError):
    """A tensor is missing, or of wrong shape, type, device or content; the message names it and says what to send."""
