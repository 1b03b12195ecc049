"""Why a request with tensors is refused: always with what to send instead."""

from __future__ import annotations

__all__ = ["ContentError", "FileError", "HeaderError", "OptionsError", "TensorsRefused"]


class TensorsRefused(ValueError):  # noqa: N818 - reads as what happened
    """The request can't be answered as it stands.

    Attributes:
        reason: one word for /metrics.
    """

    reason = "tensors"


class HeaderError(TensorsRefused):
    """The body is no safetensors that can be used."""

    reason = "header"


class FileError(TensorsRefused):
    """The file that was named can't be read."""

    reason = "file"


class OptionsError(TensorsRefused):
    """An option isn't valid."""

    reason = "options"


class ContentError(TensorsRefused):
    """The tensors don't fit together, or hold what they must not."""

    reason = "content"
