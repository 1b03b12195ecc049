"""Held vectors to JSON, as the server takes it."""

from __future__ import annotations

import json
import math

from tocsin._numbers import number
from tocsin._queue import Held
from tocsin._tally import Tally
from tocsin._values import numbers, whole

__all__ = ["Encoder"]


class Encoder:
    """Turns vectors into bodies, and says which of their values can't be sent.

    Args:
        session: unique to the process; with a vector's own number it makes its ``sequence``, by which the server
            knows one that was sent twice.
        attempt: the trainer's restart counter, None if it doesn't count.
        tally: where skipped values are counted.
    """

    def __init__(self, session: str, attempt: int | None, tally: Tally) -> None:
        self._session = session
        self._attempt = attempt
        self._tally = tally

    def encode(self, held: Held) -> bytes:
        """The vector as one line of JSON, ASCII only.

        Raises:
            Exception: any, as step and time are foreign objects.
        """
        metrics, refused = numbers(held.metrics)
        for name, why in refused.items():
            self._tally.skip(name, why)
        vector: dict[str, object] = {
            "step": whole(held.step),
            "metrics": metrics,
            "time": _time(held.time, held.logged),
            "sequence": held.sequence if isinstance(held.sequence, str) else f"{self._session}-{held.sequence}",
        }
        if self._attempt is not None:
            vector["attempt"] = self._attempt
        return json.dumps(vector, separators=(",", ":")).encode()


def _time(value: object, logged: float) -> float:
    """The time as given by the trainer, or the time of the call if it gave none that is a number."""
    try:
        given = number(value)
    except ValueError:
        return logged
    return given if math.isfinite(given) else logged
