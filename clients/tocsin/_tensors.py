"""Tensors on their way to the server: packed on the trainer's thread, sent on one of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from tocsin import _packing
from tocsin._guard import Mistake
from tocsin._packing import pack, pieces_of, size_of
from tocsin._parcels import Body, ParcelChannel

__all__ = ["TensorChannel"]


class TensorChannel(ParcelChannel):
    """The way to the server for a run's tensors."""

    kind = "tensors"
    meaning = {  # noqa: RUF012 a constant of the class
        "full": "the server is slower than the trainer or away: the oldest that waits gives way to the newest",
        "too_large": "larger than max_tensor_bytes, or than the server takes: send fewer rows, or the ragged layout",
        "invalid": "the step must be a whole number >= 0",
        "unsupported": "the server can't compute tensors: install it with the extra [torch]",
        "no_service": "they need the service's address, and the run's is a Redis",
    }

    def put(self, tensors: Mapping[str, Any], step: object, time: float | None, options: Mapping[str, Any]) -> None:
        """Copies the tensors and leaves them to the thread.

        Raises:
            Mistake: they can't be packed; counted as dropped.
        """
        beside = self._beside(time, {name: value for name, value in options.items() if name != "domains"})
        domains = options.get("domains")
        metadata = {} if domains is None else {"domains": json.dumps(list(domains))}
        if not self._has_service():
            return
        try:
            pieces, refused = pieces_of(tensors)
        except Mistake:
            self.dropped["invalid"] += 1
            raise
        if refused:
            self._tally.warn("tensors beside", f"not sent, the server knows no such tensors: {refused}", "")
        size = size_of(pieces)
        if not self._reserve(size):
            return
        try:
            packed = pack(pieces, metadata)
        except BaseException:
            self._release(size)
            self.dropped["invalid"] += 1
            raise
        self._enqueue(size, step, beside, partial(_load, packed))


def _load(packed: _packing.Parcel) -> Body:
    packed.wait()
    return Body(packed.body, {"Content-Type": "application/octet-stream"})
