"""What carries vectors to a server: one interface, HTTP or Redis behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tocsin._policy import Verdict

__all__ = ["Courier", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request.

    Attributes:
        verdict: what it means.
        detail: what the server or the network said, on one short line, without secrets.
        answered: whether the server said anything at all.
    """

    verdict: Verdict
    detail: str = ""
    answered: bool = True


class Courier(Protocol):
    """One run's connection to its server, used by one thread at a time. Nothing here raises for a server's fault."""

    def configure(self, config: bytes) -> Outcome:
        """Sends the run's configuration, a JSON object."""

    def deliver(self, vectors: Sequence[bytes]) -> Outcome:
        """Sends vectors, each a JSON object, oldest first: all of them are stored or none is."""

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
