"""Values as strict JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin_detectors.entries import number_to_json

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """``value`` with NaN and infinities as texts."""
    match value:
        case float():
            return number_to_json(value)
        case Mapping():
            return {str(name): plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
    return value
