"""A body that may be very large: its size is known before a place is given, and it is read only after that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request

from tocsin_service.api.body import DRAINED
from tocsin_service.api.errors import ApiError, shorten
from tocsin_service.tensors.intake import Body, Intake
from tocsin_service.tensors.names import NAMES

__all__ = ["Incoming"]

PATIENCE_SECONDS = 30.0  # for any body, and longer for a large one:
SLOWEST = 2**22  # bytes per second; who sends slower holds a place for nothing


class Incoming:
    """The body of a request, nothing of which has been asked for yet."""

    def __init__(self, request: Request) -> None:
        self._headers = request.headers
        self._stream: AsyncIterator[bytes] = request.stream()
        self._begun = False

    def declared(self) -> int:
        """Bytes of the body, as its sender says.

        Raises:
            ApiError: 411 nothing is said; 415 it is compressed.
        """
        encoding = self._headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", ""}:
            raise ApiError(
                415,
                f"Content-Encoding {shorten(encoding)} is refused: the low bits of floats hardly compress, and the "
                "size must be known before memory is taken; send the ragged layout, which has no padding",
                "encoding",
            )
        length = self._length
        if length is None:
            raise ApiError(411, "send the Content-Length: room is made before the body is read", "length")
        return length

    @property
    def _length(self) -> int | None:
        length = self._headers.get("content-length", "")
        return int(length[:20]) if length.isascii() and length.isdigit() else None  # 20 digits are too many anyway

    async def read(self, size: int) -> Body:
        """The body, ``size`` bytes, in memory.

        Raises:
            ApiError: 400 incomplete, 408 too slow.
            HeaderError: it is no safetensors that can be used.
            MemoryError: there is no room for it.
        """
        self._begun = True
        intake = Intake(size, NAMES)
        seconds = PATIENCE_SECONDS + size / SLOWEST
        try:
            async with asyncio.timeout(seconds):
                async for chunk in self._stream:
                    intake.feed(chunk)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {seconds:.0f} seconds", "slow") from None
        except ClientDisconnect:
            raise ApiError(400, "the connection ended before the body did", "disconnect") from None
        return intake.finish()

    async def discard(self) -> None:
        """Reads on to the end of what isn't wanted: many clients hear an answer only after they have sent everything.

        Not what nobody has asked for (``Expect: 100-continue``), and not without end.
        """
        asked = self._begun or "100-continue" not in self._headers.get("expect", "").lower()
        if not asked or (self._length or 0) > DRAINED:
            return
        seen = 0
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(PATIENCE_SECONDS):
                async for chunk in self._stream:
                    seen += len(chunk)
                    if seen > DRAINED:
                        break
