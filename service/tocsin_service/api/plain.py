"""Values as strict JSON, and answers that are too large to be written on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from tocsin_detectors.entries import number_to_json
from tocsin_service.api.errors import StrictJson

__all__ = ["plain", "rendered"]


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


async def rendered(content: Any) -> Response:
    """The answer that says ``content``, written beside the event loop."""
    return await asyncio.to_thread(lambda: StrictJson(plain(content)))
